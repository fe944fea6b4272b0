"""The recovery of a node that is isolated: climb the ladder until something is proven, then bring the job back."""

from datetime import timedelta

from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Action, Awaited, Ending, Escalation, Family, Outcome, Provider, Refusal, Step
from nodeheal.domain.faults import correlation
from nodeheal.domain.faults.assessment import Case
from nodeheal.domain.faults.diagnosis import Fault
from nodeheal.domain.recovery import guardrails
from nodeheal.domain.recovery.confirmation import ask_node, denial, unconfirmed
from nodeheal.domain.recovery.decision_builder import Spell
from nodeheal.domain.recovery.incident import outlasts_its_boot
from nodeheal.domain.recovery.job_move import move_job, owes_job
from nodeheal.domain.recovery.ladder import next_rungs, why_ended
from nodeheal.domain.recovery.progress import Progress
from nodeheal.domain.verbs import VERBS


def heal(say: Spell, seen: Progress, case: Case) -> Decision:
    """Isolate, then climb the ladder until something is proven, then bring the job back."""
    fault = case.fault
    if not seen.is_isolated:
        return _not_isolated(say, seen, fault)
    if seen.returned is None and say.history.surroundings.is_taken_away:
        return _taken_away(say, seen, case)
    if fault.is_of_new_node and seen.proof is None:
        return say.step(Step.DIAGNOSE, f"{fault.title}: {fault.short_why}")
    moved = move_job(say, seen, case)
    if moved is not None:
        # Another node's diagnosis takes minutes, and this one may fall silent meanwhile.
        evidence = _evidence_first(say, seen, fault) if moved.step is Step.DIAGNOSE else None
        return evidence or moved
    if seen.awaits_proof:
        return _prove(say, seen)
    if seen.returned is not None and seen.contradiction:
        return say.hand_over(
            Escalation.FAILED_AFTER_RETURN, f"{fault.title}: {seen.contradiction}, when it was back in service already"
        )
    if seen.proof is not None and seen.proof.outcome is Outcome.UNKNOWN:
        return say.hand_over(
            Escalation.DIAGNOSTICS_UNCLEAR, f"{fault.title}: the diagnostics prove nothing: {seen.proof.reason}"
        )
    if not seen.is_proven:
        return _climb(say, seen, case)
    if seen.replacement:
        return _after_swap(say, seen, case)
    return _after_repair(say, seen, case)


def _not_isolated(say: Spell, seen: Progress, fault: Fault) -> Decision:
    """A full budget is waited for in line; anything else that kept the node in service is for a human."""
    assert seen.isolation is not None
    waited = seen.waited.get(Awaited.BUDGET)
    since, allowed = seen.in_line_since or say.now, say.policy.deadlines.budget_seconds
    left = allowed - int((say.now - since).total_seconds())
    if fault.is_of_new_node:  # nothing is wrong with it
        return say.close(Ending.OBSERVED_ONLY, f"{fault.title}: it was not diagnosed: {seen.isolation.reason}")
    if not seen.isolation.refused_for(Refusal.BUDGET_FULL):
        is_theirs = seen.isolation.refused_for(Refusal.EXTERNAL_REMEDIATOR)
        code = Escalation.OTHER_OWNER if is_theirs else Escalation.NOT_ISOLATED
        return say.hand_over(code, f"{fault.title}: the node was not isolated: {seen.isolation.reason}")
    if left <= 0 or (waited is not None and waited.outcome is Outcome.TIMED_OUT):
        return say.hand_over(
            Escalation.BUDGET_FULL, f"{fault.title}: no slot was free in {allowed / 3600:g} h: {seen.isolation.reason}"
        )
    told = f"{fault.title}: {seen.isolation.reason}. Waiting in line for a slot"
    return say.wait(Awaited.BUDGET, told, left, fault.action)


def _taken_away(say: Spell, seen: Progress, case: Case) -> Decision:
    """A human has given the node back, or up, while this waited: that was the last word on it."""
    told = f"{case.fault.title}: {say.history.incident.node_id} was given back or retired by hand; nothing more is done"
    is_owed = owes_job(say, seen, case) and not seen.job_is_left_to
    if is_owed and not say.history.surroundings.job_is_running:
        return say.hand_over(Escalation.JOB_NOT_RESTARTED, f"{told}, and {say.job_id} is down")
    return say.close(Ending.OBSERVED_ONLY, told, is_held_back=True)


def _prove(say: Spell, seen: Progress) -> Decision:
    if seen.replacement:
        return say.step(
            Step.DIAGNOSE, f"{seen.replacement} takes over only if it passes diagnostics", node_id=seen.replacement
        )
    return say.step(Step.DIAGNOSE, "it is back with a new boot id; prove the repair by rerunning the diagnostics")


def _climb(say: Spell, seen: Progress, case: Case) -> Decision:
    """The next rung. A swap that brought a bad spare is not followed by another: a human looks at the pool."""
    fault = case.fault
    rungs, notes = next_rungs(fault, seen, say)
    told = "; ".join(filter(None, [seen.told(), *notes]))
    if not rungs:
        question = _unconfirmed(say, seen, fault)
        if question is not None:
            return question
        by_hand = f"{fault.title}{case.told_beside}: the node is isolated until an operator gives it back"
        if fault.is_of_new_node and seen.proof is not None:
            told = f"{seen.proof.reason}; it stays isolated"
        ended = f"{fault.title}: {told or 'isolated, as the catalog asks'}; nothing is left to try"
        return say.hand_over(why_ended(fault, seen, say), by_hand if fault.is_by_hand and not told else ended)
    rung = rungs[0]
    if seen.has_moved_job and rung is Action.REPLACE and say.history.surroundings.provider is Provider.hybrid:
        left = "the job goes on elsewhere; the node stays out of service until a human repairs or retires it"
        handed_over = f"{fault.title}: {'; '.join(filter(None, [told, left]))}"
        return _unconfirmed(say, seen, fault) or say.hand_over(Escalation.BROKEN_NODE_LEFT, handed_over)
    held = guardrails.held_in_the_middle(say, seen, fault, rung) or _no_capacity(say, seen, fault, rung)
    held = held or _evidence_first(say, seen, fault) or _diagnose_new_boot(say, seen, fault)
    if held is not None:
        return held
    if rung is Action.REPLACE and not seen.tried and seen.proof is None:
        end = correlation.other_end(fault, say.history, say.policy)
        if end is not None:
            why = f"{end.node_id} reports the other end of a link; only one end is bad, so diagnose before replacing"
            return say.step(Step.DIAGNOSE, f"{fault.title}: {why}")
    question = _unconfirmed(say, seen, fault) if rung is Action.REPLACE else None
    if question is not None:
        return question
    reason = f"{told}; next is {VERBS[rung].announced}" if told else f"{fault.title}: {fault.short_why}"
    return say.step(VERBS[rung].step, reason, rung).model_copy(update={"boot_id": _boot_in_question(seen, fault)})


def _unconfirmed(say: Spell, seen: Progress, fault: Fault) -> Decision | None:
    """What to ask before the node is replaced, or stays isolated. Of a boot that is over, its diagnostics are asked."""
    question = unconfirmed(say, seen, fault)
    return question and (_diagnose_new_boot(say, seen, fault) or question)


def _diagnose_new_boot(say: Spell, seen: Progress, fault: Fault) -> Decision | None:
    boot_id, now_on = _boot_in_question(seen, fault), say.history.surroundings.boot_id
    if not boot_id or now_on in ("", boot_id):
        return None
    why = f"the node has booted by itself since (boot {now_on[:8]}): its diagnostics say what is left of that"
    return say.step(Step.DIAGNOSE, f"{fault.title}: {why}")


def _boot_in_question(seen: Progress, fault: Fault) -> str:
    """The boot that gives the reason: that of the diagnostics, else that to which the last rung led, else the fault's.
    Empty: what an operator asks for is of none."""
    if outlasts_its_boot(fault.event):
        return ""
    if seen.proof is not None:
        return seen.proof.boot_id or ""
    return (seen.tried[-1].result.boot_id if seen.tried else None) or fault.event.boot_id


def _evidence_first(say: Spell, seen: Progress, fault: Fault) -> Decision | None:
    """Once, before anything is done to the node. One that says nothing any more is not waited for."""
    is_silent = fault.event.family is Family.heartbeat
    if seen.evidence is not None or seen.tried or is_silent or not say.policy.evidence.enabled:
        return None
    why = "what the node can tell of its fault is saved first: afterwards it is gone"
    return ask_node(say, fault, why)


def _no_capacity(say: Spell, seen: Progress, fault: Fault, rung: Action) -> Decision | None:
    """No other node could be had: wait longer each time, then say what is missing. The broken node is held."""
    missing = seen.missing
    if rung is not Action.REPLACE or missing is None or seen.has_waited_for_capacity:
        return None
    rules, tried = say.policy.capacity, seen.capacity_tries
    told = "; ".join(filter(None, [seen.told(), f"no replacement could be had ({missing.reason})"]))
    told = f"{fault.title}: {told}"
    if missing.refused_for(Refusal.REPLACEMENTS_FULL):  # machines are to be had; others are being replaced first
        seconds = min(rules.wait_before(seen.slot_tries), say.policy.deadlines.replace_seconds)
        waits = f"{fault.title}: its replacement has to wait ({missing.reason}); the broken node is held until then"
        return say.wait(Awaited.REPLACEMENT, waits, seconds, rung)
    if tried >= rules.tries:
        return say.hand_over(Escalation.NO_CAPACITY, f"{told}, tried {tried} times; the broken node is held, isolated")
    reason = f"{told}; try {tried} of {rules.tries}, the broken node is held"
    return say.wait(Awaited.CAPACITY, reason, rules.wait_before(tried), rung)


def _after_repair(say: Spell, seen: Progress, case: Case) -> Decision:
    fault = case.fault
    if seen.returned is None:
        settling = _until_stable(say, seen)
        if settling is not None:
            return settling
        passed = "; and ".join(filter(None, [denial(seen), "it passed its diagnostics"]))
        proof = "proven by a new boot id and passed diagnostics" if seen.tried else passed
        where = "it may serve" if fault.is_of_new_node else "back to service, on probation"
        return say.step(Step.RETURN, f"{proof}; {where}")
    if seen.returned.outcome is not Outcome.DONE:
        return say.hand_over(
            Escalation.NOT_BACK_IN_SERVICE, f"{fault.title}: healed, but not back in service: {seen.returned.reason}"
        )
    return _bring_back(say, seen, case) or say.close(Ending.RECOVERED, _ended(say, seen, fault))


def _until_stable(say: Spell, seen: Progress) -> Decision | None:
    """A node that falls over a minute after its reboot has not been healed by it."""
    last = seen.tried[-1] if seen.tried else None
    if last is None:
        return None
    since = last.result.finished_at
    left = (since + timedelta(seconds=say.policy.stable_seconds) - say.now).total_seconds()
    if left <= 0:
        return None
    why = f"diagnostics passed; it must run for {say.policy.stable_seconds} s without a fault before it is back"
    return say.wait(Awaited.STABLE, why, int(left) + 1)


def _after_swap(say: Spell, seen: Progress, case: Case) -> Decision:
    is_new, returned = seen.has_new_machine, seen.returned
    if is_new:
        if returned is None:
            reason = f"{seen.replacement} has passed its diagnostics; it takes the broken node's place"
            return say.step(Step.RETURN, reason, node_id=seen.replacement)
        if returned.outcome is not Outcome.DONE:
            told = f"{seen.told()}, but it is not in service: {returned.reason}"
            return say.hand_over(Escalation.NOT_BACK_IN_SERVICE, f"{case.fault.title}: {told}")
    unfinished = _bring_back(say, seen, case)
    if unfinished:
        return unfinished
    ended = _ended(say, seen, case.fault)
    if not is_new:
        left = f"{ended}; the broken node stays out of service until a human repairs or retires it"
        return say.hand_over(Escalation.BROKEN_NODE_LEFT, left)
    if returned is not None and seen.is_broken_one_left:
        return say.hand_over(Escalation.BROKEN_NODE_LEFT, f"{ended}; but {returned.reason}")
    return say.close(Ending.RECOVERED, ended)


def _bring_back(say: Spell, seen: Progress, case: Case) -> Decision | None:
    """Restart the job once. None when there is nothing (more) to restart."""
    if not owes_job(say, seen, case):
        return None
    if seen.job_is_left_to:
        return None
    if seen.restart:
        failed = f"{seen.told()}, but the job could not be restarted: {seen.restart.reason}"
        return say.hand_over(Escalation.JOB_NOT_RESTARTED, failed)
    where = f"with {seen.replacement} in place of the broken node" if seen.replacement else "on the same nodes"
    return say.step(
        Step.RESTART_WORKLOAD, f"restart the whole gang from its last checkpoint, {where}", Action.RESTART_WORKLOAD
    )


def _ended(say: Spell, seen: Progress, fault: Fault) -> str:
    proof = seen.proof.reason if seen.proof else ""
    if fault.is_of_new_node:
        return f"{fault.title}: {proof}; it may serve"
    job = "no job of ours was running here" if say.job_id is None else "its job had ended before"
    job = seen.restart.reason if seen.restart else job
    if seen.job_is_left_to:
        job = f"{say.job_id} is brought back by {seen.job_is_left_to}, which heals another of its nodes"
    denied = denial(seen) if not seen.tried else ""
    return f"{fault.title}: {'; '.join(filter(None, [denied, seen.told(), proof, job]))}"
