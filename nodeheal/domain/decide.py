"""The decision core: from an incident's whole history to its next step, with the reason. Pure and total."""

from dataclasses import replace
from datetime import datetime, timedelta

from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Action, Ending, NextRung, Outcome, Provider, Step, Verdict
from nodeheal.domain import correlate
from nodeheal.domain.case import Case, read_case, without_gravest
from nodeheal.domain.diagnosis import Fault
from nodeheal.domain.incident import History
from nodeheal.domain.knobs import Mode
from nodeheal.domain.ladder import WITH_ARTICLE, next_rungs
from nodeheal.domain.policy import RecoveryPolicy
from nodeheal.domain.progress import Progress, read_progress
from nodeheal.domain.spell import Spell

_IN_ACT_MODE = {
    Action.OBSERVE: "only record it",
    Action.ESCALATE: "ask a human",
    Action.RESTART_WORKLOAD: "restart the job",
    Action.REBOOT: "isolate the node, reboot it and rerun its diagnostics",
    Action.REPLACE: "isolate the node and replace it",
    Action.ISOLATE: "isolate the node and ask a human",
}


_AT_JOB_END = "When the job has ended."


def decide(history: History, policy: RecoveryPolicy, now: datetime) -> Decision:
    """The next step of the incident at `now` (UTC). Never raises, whatever the history."""
    case = read_case(history, policy)
    seen = read_progress(history, policy)
    say = Spell(history, policy, case, now)
    if len(history.turns) >= policy.max_turns:
        return say.hand_over(f"{policy.max_turns} decisions did not end this incident; a human must look")
    if seen.isolation is None:
        return _before_anything_is_touched(say, seen, case)
    if case.fault.action is Action.RESTART_WORKLOAD and seen.restart is None:
        # It was isolated for something graver that has been put right in the catalog or the policy since.
        return say.hand_over(f"{case.fault.title}: the node is isolated, and nothing asks for that any more")
    return _heal(say, seen, case)


def _before_anything_is_touched(say: Spell, seen: Progress, case: Case) -> Decision:
    fault = case.fault
    if fault.action is Action.ESCALATE:
        return say.hand_over(f"{fault.title}{_beside(case)}: {fault.short_why}")
    if fault.action is Action.OBSERVE:
        return _let_it_be(say, seen, case)
    held = _held_back(say, seen, fault)
    if held is not None:
        return held
    if fault.action is Action.RESTART_WORKLOAD:
        return _restart_only(say, seen, case)
    return _not_by_itself(say, seen, case) or say.step(
        Step.ISOLATE, f"{fault.title}{_beside(case)}: {fault.short_why} First the node is taken out of service."
    )


def _beside(case: Case) -> str:
    """What else was reported with the fault, for the reason."""
    beside = ", ".join(dict.fromkeys(fault.title for fault in case.beside))
    return f" (with {beside} beside it)" if beside else ""


def _let_it_be(say: Spell, seen: Progress, case: Case) -> Decision:
    """Nothing is to be done now: it is an echo, a trend, or something that waits for the job to end."""
    fault, history = case.fault, say.history
    if fault.waits_for_job:
        return _wait_for_job(say, seen, fault)
    root = correlate.root_of_echo(fault, history, say.policy)
    if root is not None:
        about = f"{root.family.value.upper()} {root.code} on {root.node_id}"
        return say.close(Ending.OBSERVED_ONLY, f"{fault.title}: it belongs to {about}. {fault.short_why}")
    return say.close(Ending.OBSERVED_ONLY, f"{fault.title}: {fault.short_why}")


def _wait_for_job(say: Spell, seen: Progress, fault: Fault) -> Decision:
    wanted = fault.ladder[1]
    held = _held_back(say, seen, fault.climbed(_AT_JOB_END))
    if held is not None:
        return held
    if seen.waited is not None and seen.waited.outcome is Outcome.TIMED_OUT:
        return say.hand_over(f"{fault.title}: the job has not ended in time; a {wanted.lower()} is due when it has")
    why = f"{fault.short_why} Waiting for the job to end; then {WITH_ARTICLE[wanted]}."
    return say.step(Step.WAIT, f"{fault.title}: {why}", awaits_job=True)


def _held_back(say: Spell, seen: Progress, fault: Fault) -> Decision | None:
    """What keeps nodeheal from acting here: the mode of the pool, a maintenance window, the node's opt-out."""
    pool, would = say.history.incident.pool, _IN_ACT_MODE[fault.action]
    would = f"{would} when the job has ended" if fault.note == _AT_JOB_END else would
    held = say.policy.why_only_observe(say.history.incident.node_id, pool, say.now)
    mode = say.policy.pool(pool).mode_of(fault.action)
    if not held and mode is Mode.observe:
        held = f"pool {pool} is in observe mode"
    if held and seen.restart is not None:
        return say.hand_over(f"{fault.title}: {held} since the recovery began; nothing more is done")
    if held:
        told = f"{fault.title}: {held}; in act mode nodeheal would {would}"
        return say.close(Ending.OBSERVED_ONLY, told, is_held_back=True)
    if mode is Mode.approve:
        asked = f"pool {pool} asks for approval first; nodeheal would {would}"
        return say.hand_over(f"{fault.title}: {asked}. {fault.short_why}")
    return None


def _or_the_rest(say: Spell, seen: Progress, case: Case, otherwise: Decision) -> Decision:
    """The gravest fault is somebody else's, or over: what stands beside it speaks now, if it asks for anything."""
    rest = without_gravest(case)
    return otherwise if rest is None else _before_anything_is_touched(replace(say, case=rest), seen, rest)


def _not_by_itself(say: Spell, seen: Progress, case: Case) -> Decision | None:
    """Whether the fault is one of many with one cause, another node's, or only that of a node that comes up."""
    fault = case.fault
    cause = correlate.common_cause(fault, say.history, say.policy)
    if cause is not None:
        told = f"{fault.title}: {cause.text}. The cause is not in the nodes, so none of them is touched"
        return say.hand_over(told, page_key=cause.key)
    owner = correlate.owner_of_fabric(fault, say.history, say.policy)
    if owner is not None:
        told = f"{owner.family.value.upper()} {owner.code} on {owner.node_id}"
        closed = say.close(Ending.OBSERVED_ONLY, f"{fault.title}: one fabric, one incident: it belongs to {told}")
        return _or_the_rest(say, seen, case, closed)
    return _settle(say, seen, case)


def _settle(say: Spell, seen: Progress, case: Case) -> Decision | None:
    """Accelerators that are missing while a node comes up are given time. Silence afterwards is not health."""
    fault, around, event = case.fault, say.history.surroundings, case.fault.event
    starts = [at for at in (around.booted_at, around.agent_since) if at is not None and at <= event.observed_at]
    settled_at = max(starts, default=event.observed_at) + timedelta(seconds=say.policy.settle_seconds)
    if fault.key not in say.policy.settling or not starts or event.observed_at >= settled_at:
        return None
    later = [e for e in say.history.events if e.observed_at >= settled_at and e.node_id == event.node_id]
    kind = (event.family, event.code, event.component, event.boot_id)
    alike = [e for e in later if (e.family, e.code, e.component, e.boot_id) == kind]
    last = max(alike, key=lambda e: (e.observed_at, e.event_id), default=None)
    if last is not None and last.verdict is Verdict.OK:
        gone = say.close(Ending.OBSERVED_ONLY, f"{fault.title}: gone when it settled")
        return _or_the_rest(say, seen, case, gone)
    if last is not None and last.verdict is not Verdict.UNKNOWN:
        return None
    if say.now < settled_at:
        left = int((settled_at - say.now).total_seconds()) + say.policy.deadlines.quick_seconds
        why = f"{fault.title}: the node has just come up; it is given {say.policy.settle_seconds} s to settle"
        return say.step(Step.WAIT, why, deadline_seconds=left)
    return say.hand_over(f"{fault.title}: since it should have settled nothing was reported; silence is not health")


def _restart_only(say: Spell, seen: Progress, case: Case) -> Decision:
    """The job's own fault: restart it where it is; the node is not touched."""
    fault = case.fault
    if say.job_id is None:
        nothing = say.close(Ending.OBSERVED_ONLY, f"{fault.title}: no job of ours runs here, nothing to restart")
        return _or_the_rest(say, seen, case, nothing)
    # What the next run shows after its start is another fault, and another restart.
    is_again = seen.restart is not None and fault.alike[-1].observed_at > seen.restart.finished_at
    if seen.restart is None or (is_again and seen.restart.outcome is Outcome.DONE):
        nodes = correlate.nodes_with(fault, say.history, say.policy.correlation.window_seconds)
        first = min(nodes, key=lambda node: (nodes[node], node))
        if first != fault.event.node_id:
            theirs = say.close(Ending.OBSERVED_ONLY, f"{fault.title}: the job's restart belongs to the one on {first}")
            return _or_the_rest(say, seen, case, theirs)
        many = f" {len(nodes)} nodes of the job show it at once: it is the application." if len(nodes) > 1 else ""
        return say.step(Step.RESTART_WORKLOAD, f"{fault.title}: {fault.short_why}{many}", Action.RESTART_WORKLOAD)
    if seen.restart.outcome is not Outcome.DONE:
        return say.hand_over(f"{fault.title}: the job could not be restarted: {seen.restart.reason}")
    pending = next((other for other in case.beside if other.waits_for_job), None)
    if pending is not None:
        return _wait_for_job(say, seen, pending)
    if case.has_riddle:
        riddle = next(fault.title for fault in case.beside if fault.action is Action.ESCALATE)
        return say.hand_over(f"{fault.title}: {seen.restart.reason}; but {riddle} beside it needs a human")
    return say.close(Ending.RECOVERED, f"{fault.title}: {seen.restart.reason}")


def _heal(say: Spell, seen: Progress, case: Case) -> Decision:
    """Isolate, then climb the ladder until something is proven, then bring the job back."""
    fault = case.fault
    if seen.isolation is not None and not seen.is_isolated:
        return say.hand_over(f"{fault.title}: the node was not isolated: {seen.isolation.reason}")
    if seen.awaits_proof:
        return _prove(say, seen)
    if seen.returned is not None and seen.contradiction:
        return say.hand_over(f"{fault.title}: {seen.contradiction}, when it was back in service already")
    if seen.proof is not None and seen.proof.outcome is Outcome.UNKNOWN:
        return say.hand_over(f"{fault.title}: the diagnostics prove nothing: {seen.proof.reason}")
    if not seen.is_proven:
        return _climb(say, seen, fault)
    if seen.replacement:
        return _after_swap(say, seen, case)
    return _after_repair(say, seen, case)


def _prove(say: Spell, seen: Progress) -> Decision:
    if seen.replacement:
        return say.step(
            Step.DIAGNOSE, f"{seen.replacement} takes over only if it passes diagnostics", node_id=seen.replacement
        )
    return say.step(Step.DIAGNOSE, "it is back with a new boot id; prove the repair by rerunning the diagnostics")


def _climb(say: Spell, seen: Progress, fault: Fault) -> Decision:
    """The next rung. A swap that brought a bad spare is not followed by another: a human looks at the pool."""
    rungs, notes = next_rungs(fault, seen, say)
    told = "; ".join(filter(None, [seen.told(), *notes]))
    if not rungs:
        return say.hand_over(f"{fault.title}: {told or 'isolated, as the catalog asks'}; nothing is left to try")
    rung = rungs[0]
    held = _held_in_the_middle(say, fault, rung)
    if held is not None:
        return held
    if rung is Action.REPLACE and not seen.tried and seen.proof is None:
        end = correlate.other_end(fault, say.history, say.policy)
        if end is not None:
            why = f"{end.node_id} reports the other end of a link; only one end is bad, so diagnose before replacing"
            return say.step(Step.DIAGNOSE, f"{fault.title}: {why}")
    reason = f"{told}; next is {WITH_ARTICLE[rung]}" if told else f"{fault.title}: {fault.short_why}"
    return say.step(Step(rung.value), reason, rung)


def _held_in_the_middle(say: Spell, fault: Fault, rung: Action) -> Decision | None:
    """The node is isolated already; what holds nodeheal back now leaves it to a human as it is."""
    pool = say.history.incident.pool
    held = say.policy.why_only_observe(say.history.incident.node_id, pool, say.now)
    mode = say.policy.pool(pool).mode_of(rung)
    if not held and mode is not Mode.act:
        held = f"pool {pool} is in {mode} mode for {WITH_ARTICLE[rung]}"
    cause = correlate.common_cause(fault, say.history, say.policy)
    if held or cause is not None:
        told = held or (cause.text if cause else "")
        return say.hand_over(f"{fault.title}: {told}; the node stays isolated and nothing more is done")
    return None


def _after_repair(say: Spell, seen: Progress, case: Case) -> Decision:
    fault = case.fault
    if seen.returned is None:
        proof = "proven by a new boot id and passed diagnostics" if seen.tried else "it passed its diagnostics"
        return say.step(Step.RETURN, f"{proof}; back to service, on probation")
    if seen.returned.outcome is not Outcome.DONE:
        return say.hand_over(f"{fault.title}: healed, but not back in service: {seen.returned.reason}")
    return _bring_back(say, seen, case) or say.close(Ending.RECOVERED, _ended(say, seen, fault))


def _after_swap(say: Spell, seen: Progress, case: Case) -> Decision:
    unfinished = _bring_back(say, seen, case)
    if unfinished:
        return unfinished
    ended = _ended(say, seen, case.fault)
    if say.history.surroundings.provider is Provider.hybrid:
        return say.hand_over(f"{ended}; the broken node stays out of service until a human repairs or retires it")
    return say.close(Ending.RECOVERED, ended)


def _bring_back(say: Spell, seen: Progress, case: Case) -> Decision | None:
    """Restart the job once. None when there is nothing (more) to restart."""
    if say.job_id is None or (seen.restart and seen.restart.outcome is Outcome.DONE):
        return None
    killed_the_job = any(fault.action is Action.RESTART_WORKLOAD for fault in case.beside) and seen.restart is None
    if case.fault.next_rung is NextRung.job_end and not killed_the_job:
        return None  # its job had ended by itself before anything was touched
    if seen.restart:
        return say.hand_over(f"{seen.told()}, but the job could not be restarted: {seen.restart.reason}")
    where = f"with {seen.replacement} in place of the broken node" if seen.replacement else "on the same nodes"
    return say.step(
        Step.RESTART_WORKLOAD, f"restart the whole gang from its last checkpoint, {where}", Action.RESTART_WORKLOAD
    )


def _ended(say: Spell, seen: Progress, fault: Fault) -> str:
    proof = seen.proof.reason if seen.proof else ""
    job = "no job of ours was running here" if say.job_id is None else "its job had ended before"
    job = seen.restart.reason if seen.restart else job
    return f"{fault.title}: {'; '.join(filter(None, [seen.told(), proof, job]))}"
