"""The recovery of an isolated node: try the ladder's verbs until one is proven, then restart the job."""

from datetime import timedelta

from nodeheal.contract.names import INSTANCE_GONE
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Action, Awaited, Ending, Escalation, Outcome, Provider, Refusal, Step
from nodeheal.domain.faults import correlation
from nodeheal.domain.faults.assessment import FaultAssessment
from nodeheal.domain.faults.diagnosis import Fault
from nodeheal.domain.fleet.unmanaged_tasks import restart_reports, tasks_gone
from nodeheal.domain.recovery import guardrails
from nodeheal.domain.recovery.confirmation import ask_node, denial_reason, is_silent, unconfirmed
from nodeheal.domain.recovery.decision_builder import DecisionBuilder
from nodeheal.domain.recovery.incident import is_boot_independent
from nodeheal.domain.recovery.job_move import move_job, must_restart_job
from nodeheal.domain.recovery.ladder import escalation_of_ladder, remaining_steps
from nodeheal.domain.recovery.progress import Progress
from nodeheal.domain.verbs import VERBS


def recover(builder: DecisionBuilder, progress: Progress, assessment: FaultAssessment) -> Decision:
    """Returns the next step of a recovery: isolate, try, prove, return, restart the job."""
    fault = assessment.fault
    if not progress.is_isolated:
        return _not_isolated(builder, progress, assessment)
    if progress.has_serving_machine:
        return _after_replacement_by_scheduler(builder, progress, fault)
    if progress.returned is None and builder.history.context.is_released_or_retired:
        return _after_manual_release(builder, progress, assessment)
    if progress.left_alone is not None:
        is_theirs = progress.left_alone.refused_for(Refusal.TAKEN_OVER)
        code = Escalation.TAKEN_OVER if is_theirs else Escalation.MANUAL_REVIEW_REQUIRED
        return builder.escalate(code, f"{fault.title}: {progress.left_alone.reason}")
    if fault.needs_proof_only and progress.proof is None:
        return builder.step(Step.DIAGNOSE, f"{fault.title}: {fault.short_why}")
    moved = move_job(builder, progress, assessment)
    if moved is not None:
        # Another node's diagnosis takes minutes, and this one may fall silent meanwhile.
        evidence = _evidence_first(builder, progress, fault) if moved.step is Step.DIAGNOSE else None
        return evidence or moved
    if progress.awaits_proof:
        return _prove(builder, progress)
    if progress.returned is not None and progress.contradiction:
        return builder.escalate(
            Escalation.FAILED_AFTER_RETURN,
            f"{fault.title}: {progress.contradiction}, when it was back in service already",
        )
    if progress.proof is not None and progress.proof.outcome is Outcome.UNKNOWN:
        return builder.escalate(
            Escalation.DIAGNOSTICS_UNCLEAR, f"{fault.title}: the diagnostics prove nothing: {progress.proof.reason}"
        )
    if not progress.is_proven:
        return _next_step(builder, progress, assessment)
    if progress.replacement:
        return _after_replacement(builder, progress, assessment)
    return _after_repair(builder, progress, assessment)


def _not_isolated(builder: DecisionBuilder, progress: Progress, assessment: FaultAssessment) -> Decision:
    """Queues for a slot of a full budget, or waits for the repair by the service in charge. Any other reason why the
    node is still in service goes to a human.
    """
    assert progress.isolation is not None
    fault = assessment.fault
    waited = progress.waited.get(Awaited.BUDGET)
    since, allowed = progress.queued_since or builder.now, builder.policy.deadlines.budget_seconds
    left = allowed - int((builder.now - since).total_seconds())
    if fault.is_routine:  # nothing is wrong with it
        return builder.close(Ending.OBSERVED_ONLY, f"{fault.title}: it was not diagnosed: {progress.isolation.reason}")
    if not progress.isolation.refused_for(Refusal.BUDGET_FULL):
        theirs = progress.isolation.refused_for(Refusal.EXTERNAL_REMEDIATOR)
        if theirs is not None and theirs.is_in_charge and not fault.is_by_hand:
            return _left_to_its_remediator(builder, progress, assessment)
        code = Escalation.EXTERNAL_REMEDIATOR if theirs is not None else Escalation.NOT_ISOLATED
        return builder.escalate(code, f"{fault.title}: the node was not isolated: {progress.isolation.reason}")
    if left <= 0 or (waited is not None and waited.outcome is Outcome.TIMED_OUT):
        return builder.escalate(
            Escalation.BUDGET_FULL,
            f"{fault.title}: no slot was free in {allowed / 3600:g} h: {progress.isolation.reason}",
        )
    message = f"{fault.title}: {progress.isolation.reason}. Waiting in line for a slot"
    return builder.wait(Awaited.BUDGET, message, left, fault.action)


def _left_to_its_remediator(builder: DecisionBuilder, progress: Progress, assessment: FaultAssessment) -> Decision:
    """Waits until the service in charge of the node has rebooted or replaced it. Nothing is touched, or restarted."""
    assert progress.isolation is not None
    fault, history = assessment.fault, builder.history
    is_gone = any(e.code == INSTANCE_GONE and e.node_id == history.incident.node_id for e in history.events)
    if is_gone or history.has_booted_since(fault.event):
        done = "its machine was given back" if is_gone else f"it has rebooted (boot {history.context.boot_id[:8]})"
        message = f"{fault.title}: repaired without nodeheal: {done}; nothing was checked afterwards"
        if history.must_restart_job_for_others and not history.context.job_is_running:
            return builder.escalate(Escalation.JOB_NOT_RESTARTED, f"{message}; {builder.job_id} is down")
        return builder.close(Ending.RECOVERED, message)
    why = f"{fault.title}: the node is left to its cluster: {progress.isolation.reason}"
    seconds = builder.policy.deadlines.external_repair_seconds
    late = f"{fault.title}: nobody has repaired it in {seconds / 60:g} min: {progress.isolation.reason}"
    waited = progress.waited.get(Awaited.EXTERNAL_REPAIR)
    is_late = waited is not None and waited.outcome is Outcome.TIMED_OUT
    wait = None if is_late else builder.wait_on(progress, Awaited.EXTERNAL_REPAIR, why, seconds, fault.action)
    if wait is None:
        return builder.escalate(Escalation.EXTERNAL_REMEDIATOR, late)
    return wait.model_copy(update={"boot_id": history.context.boot_id})  # another one ends the wait


def _after_manual_release(builder: DecisionBuilder, progress: Progress, assessment: FaultAssessment) -> Decision:
    """Ends the recovery, because a human has released or retired the node meanwhile."""
    node_id = builder.history.incident.node_id
    message = f"{assessment.fault.title}: {node_id} was given back or retired by hand; nothing more is done"
    is_owed = must_restart_job(builder, progress, assessment) and not progress.job_is_left_to
    if is_owed and not builder.history.context.job_is_running:
        return builder.escalate(Escalation.JOB_NOT_RESTARTED, f"{message}, and {builder.job_id} is down")
    return builder.close(Ending.OBSERVED_ONLY, message, is_held_back=True)


def _prove(builder: DecisionBuilder, progress: Progress) -> Decision:
    if progress.replacement:
        return builder.step(
            Step.DIAGNOSE,
            f"{progress.replacement} takes over only if it passes diagnostics",
            node_id=progress.replacement,
        )
    # Without diagnostics only the node itself can say that the fault is there still.
    if not builder.history.context.takes_commands:
        watched = _wait_until_stable(builder, progress, "HyperPod takes no diagnostics")
        if watched is not None:
            return watched
    effect = VERBS[progress.tried[-1].action].done if _keeps_boot(progress) else "it is back with a new boot id"
    proof = builder.step(Step.DIAGNOSE, f"{effect}; prove the repair by rerunning the diagnostics")
    return proof.model_copy(update={"continues": _left_by_reboot(builder)})


def _left_by_reboot(builder: DecisionBuilder) -> int | None:
    """Returns the turn whose reboot has left these diagnostics on the node. None: they are asked for by a command."""
    last = builder.history.turns[-1].decision
    is_left = last.leaves is not None and last.leaves == builder.standing_diagnosis()
    return (last.continues or len(builder.history.turns)) if is_left else None


def _keeps_boot(progress: Progress) -> bool:
    """Whether what was tried last has left the node on its boot."""
    return bool(progress.tried) and VERBS[progress.tried[-1].action].keeps_boot


def _next_step(builder: DecisionBuilder, progress: Progress, assessment: FaultAssessment) -> Decision:
    """Tries the next verb of the ladder. After a bad spare it tries no second one: a human looks at the pool."""
    fault = assessment.fault
    actions, notes = remaining_steps(fault, progress, builder)
    message = "; ".join(filter(None, [progress.summary(), *notes]))
    if not actions:
        question = _confirm_first(builder, progress, fault)
        if question is not None:
            return question
        by_hand = f"{fault.title}{assessment.others_text}: the node is isolated until an operator gives it back"
        if fault.needs_proof_only and progress.proof is not None:
            message = f"{progress.proof.reason}; it stays isolated"
        ended = f"{fault.title}: {message or 'isolated, as the catalog asks'}; nothing is left to try"
        return builder.escalate(
            escalation_of_ladder(fault, progress, builder), by_hand if fault.is_by_hand and not message else ended
        )
    action = actions[0]
    if progress.has_moved_job and action is Action.REPLACE and builder.history.context.provider is Provider.hybrid:
        left = "the job goes on elsewhere; the node stays out of service until a human repairs or retires it"
        handed_over = f"{fault.title}: {'; '.join(filter(None, [message, left]))}"
        return _confirm_first(builder, progress, fault) or builder.escalate(Escalation.REPAIR_PENDING, handed_over)
    blocked = guardrails.blocked_mid_recovery(builder, progress, fault, action, message) or _wait_for_capacity(
        builder, progress, fault, action
    )
    blocked = blocked or _evidence_first(builder, progress, fault) or _diagnose_new_boot(builder, progress, fault)
    if blocked is not None:
        return blocked
    if action is Action.REPLACE and not progress.tried and progress.proof is None:
        end = correlation.other_end(fault, builder.history, builder.policy)
        if end is not None:
            why = f"{end.node_id} reports the other end of a link; only one end is bad, so diagnose before replacing"
            return builder.step(Step.DIAGNOSE, f"{fault.title}: {why}")
    question = _confirm_first(builder, progress, fault) if action is Action.REPLACE else None
    if question is not None:
        return question
    reason = f"{message}{_next_is(action)}" if message else f"{fault.title}: {fault.short_why}"
    leaves = builder.standing_diagnosis() if action is Action.REBOOT else None
    return builder.step(VERBS[action].step, reason, action).model_copy(
        update={"boot_id": _boot_concerned(progress, fault), "leaves": leaves}
    )


def cause_of(decision: Decision) -> str:
    """Returns why an action was decided, without what it said comes next."""
    return decision.reason.removesuffix(_next_is(decision.action)) if decision.action else decision.reason


def _next_is(action: Action) -> str:
    return f"; next is {VERBS[action].announced}"


def _confirm_first(builder: DecisionBuilder, progress: Progress, fault: Fault) -> Decision | None:
    """Returns the question that must be answered before the node is replaced or stays isolated.

    Where the node has rebooted, its diagnostics answer it.
    """
    question = unconfirmed(builder, progress, fault)
    return question and (_diagnose_new_boot(builder, progress, fault) or question)


def _diagnose_new_boot(builder: DecisionBuilder, progress: Progress, fault: Fault) -> Decision | None:
    boot_id, now_on = _boot_concerned(progress, fault), builder.history.context.boot_id
    if not boot_id or now_on in ("", boot_id):
        return None
    why = f"the node has booted by itself since (boot {now_on[:8]}): its diagnostics say what is left of that"
    return builder.step(Step.DIAGNOSE, f"{fault.title}: {why}")


def _boot_concerned(progress: Progress, fault: Fault) -> str:
    """Returns the boot that the reason is about: that of the diagnostics, of the last verb, or of the fault.

    Empty: an operator's request is about no boot.
    """
    if is_boot_independent(fault.event):
        return ""
    if progress.proof is not None:
        return progress.proof.boot_id or ""
    return (progress.tried[-1].result.boot_id if progress.tried else None) or fault.event.boot_id


def _evidence_first(builder: DecisionBuilder, progress: Progress, fault: Fault) -> Decision | None:
    """Saves the node's evidence once, before anything is done to it. A silent node is not waited for."""
    if progress.evidence is not None or progress.tried or is_silent(fault) or not builder.policy.evidence.enabled:
        return None
    why = "what the node can tell of its fault is saved first: afterwards it is gone"
    return ask_node(builder, progress, fault, why)


def _wait_for_capacity(builder: DecisionBuilder, progress: Progress, fault: Fault, action: Action) -> Decision | None:
    """Waits longer after each try while no replacement is available, then escalates. The broken node stays isolated."""
    missing = progress.missing
    if action is not Action.REPLACE or missing is None or progress.has_waited_for_capacity:
        return None
    rules, tried = builder.policy.capacity, progress.capacity_tries
    message = "; ".join(filter(None, [progress.summary(), f"no replacement could be had ({missing.reason})"]))
    message = f"{fault.title}: {message}"
    if missing.refused_for(Refusal.REPLACEMENTS_FULL):  # machines are to be had; others are being replaced first
        seconds = min(rules.wait_before(progress.slot_tries), builder.policy.deadlines.replace_seconds)
        waits = f"{fault.title}: its replacement has to wait ({missing.reason}); the broken node is held until then"
        return builder.wait(Awaited.REPLACEMENT, waits, seconds, action)
    if tried >= rules.tries:
        return builder.escalate(
            Escalation.NO_CAPACITY, f"{message}, tried {tried} times; the broken node is held, isolated"
        )
    reason = f"{message}; try {tried} of {rules.tries}, the broken node is held"
    return builder.wait(Awaited.CAPACITY, reason, rules.wait_before(tried), action)


def _after_repair(builder: DecisionBuilder, progress: Progress, assessment: FaultAssessment) -> Decision:
    fault = assessment.fault
    if progress.returned is None:
        settling = _wait_until_stable(builder, progress, "diagnostics passed")
        if settling is not None:
            return settling
        passed = "; and ".join(filter(None, [denial_reason(progress), "it passed its diagnostics"]))
        boot = "" if _keeps_boot(progress) else "a new boot id and "
        proof = f"proven by {boot}passed diagnostics" if progress.tried else passed
        where = "it may serve" if fault.needs_proof_only else "back to service"
        return builder.step(Step.RETURN, f"{proof}; {where}")
    if progress.returned.outcome is not Outcome.DONE:
        return builder.escalate(
            Escalation.NOT_BACK_IN_SERVICE,
            f"{fault.title}: healed, but not back in service: {progress.returned.reason}",
        )
    return _restart_job(builder, progress, assessment) or builder.close(
        Ending.RECOVERED, _ending_reason(builder, progress, fault)
    )


def _wait_until_stable(builder: DecisionBuilder, progress: Progress, after: str) -> Decision | None:
    """Waits until the node has run long enough without a fault. `after`: why it waits now.

    A node that fails a minute after its reboot is not healed.
    """
    last = progress.tried[-1] if progress.tried else None
    if last is None:
        return None
    since = last.result.finished_at
    left = (since + timedelta(seconds=builder.policy.stable_seconds) - builder.now).total_seconds()
    if left <= 0:
        return None
    why = f"{after}; it must run for {builder.policy.stable_seconds} s without a fault before it is back"
    return builder.wait(Awaited.STABLE, why, int(left) + 1)


def _after_replacement(builder: DecisionBuilder, progress: Progress, assessment: FaultAssessment) -> Decision:
    is_new, returned = progress.has_new_machine, progress.returned
    if is_new:
        if returned is None:
            reason = f"{progress.replacement} has passed its diagnostics; it takes the broken node's place"
            return builder.step(Step.RETURN, reason, node_id=progress.replacement)
        if returned.outcome is not Outcome.DONE:
            message = f"{progress.summary()}, but it is not in service: {returned.reason}"
            return builder.escalate(Escalation.NOT_BACK_IN_SERVICE, f"{assessment.fault.title}: {message}")
    unfinished = _restart_job(builder, progress, assessment)
    if unfinished:
        return unfinished
    ended = _ending_reason(builder, progress, assessment.fault)
    if not is_new:
        left = f"{ended}; the broken node stays out of service until a human repairs or retires it"
        return builder.escalate(Escalation.REPAIR_PENDING, left)
    if returned is not None and progress.is_broken_one_left:
        return builder.escalate(Escalation.REPAIR_PENDING, f"{ended}; but {returned.reason}")
    return builder.close(Ending.RECOVERED, ended)


def _after_replacement_by_scheduler(builder: DecisionBuilder, progress: Progress, fault: Fault) -> Decision:
    """Ends the recovery: the scheduler gives the new machine work by itself, and no job of ours is to be restarted."""
    if progress.contradiction:
        return builder.escalate(
            Escalation.FAILED_AFTER_RETURN,
            f"{fault.title}: {progress.contradiction}, when the new machine was in service already",
        )
    return builder.close(Ending.RECOVERED, f"{fault.title}: {progress.summary()}, which its scheduler gives work")


def _restart_job(builder: DecisionBuilder, progress: Progress, assessment: FaultAssessment) -> Decision | None:
    """Restarts the job once. Returns None when nothing is left to restart."""
    if not must_restart_job(builder, progress, assessment):
        return None
    if progress.job_is_left_to:
        return None
    if progress.restart:
        failed = f"{progress.summary()}, but the job could not be restarted: {progress.restart.reason}"
        return builder.escalate(Escalation.JOB_NOT_RESTARTED, failed)
    where = f"with {progress.replacement} in place of the broken node" if progress.replacement else "on the same nodes"
    return builder.step(Step.RESTART_WORKLOAD, f"restart the whole gang {where}", Action.RESTART_WORKLOAD)


def _ending_reason(builder: DecisionBuilder, progress: Progress, fault: Fault) -> str:
    proof = progress.proof.reason if progress.proof else ""
    if fault.needs_proof_only and progress.restart is None:
        return f"{fault.title}: {proof}; it may serve"
    theirs = "; ".join([*tasks_gone(builder.history.timeline), *restart_reports(builder.history.timeline)])
    none = theirs or "no job of ours was running here"
    job = none if builder.job_id is None else "its job had ended before"
    job = progress.restart.reason if progress.restart else job
    if progress.job_is_left_to:
        job = f"{builder.job_id} is brought back by {progress.job_is_left_to}, which heals another of its nodes"
    denied = denial_reason(progress) if not progress.tried else ""
    kept = progress.returned.reason if progress.is_kept_out and progress.returned is not None else ""
    return f"{fault.title}: {'; '.join(filter(None, [denied, progress.summary(), proof, kept, job]))}"
