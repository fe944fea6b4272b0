"""The decision core: from an incident's whole history to its next step, with the reason. Pure and total."""

from dataclasses import replace
from datetime import datetime, timedelta

from nodeheal.contract.names import TRAINING_HANG
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Action, Awaited, Ending, Escalation, Family, Outcome, Step, Verdict
from nodeheal.domain.faults import correlation
from nodeheal.domain.faults.assessment import Case, read_case, without_gravest
from nodeheal.domain.faults.diagnosis import Fault
from nodeheal.domain.jobs.restarts import is_for_lone_hangs
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery import guardrails
from nodeheal.domain.recovery.attempt_budget import spelled
from nodeheal.domain.recovery.confirmation import TO_BE_HEARD_SECONDS
from nodeheal.domain.recovery.decision_builder import Spell
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.recovery.ladder import why_asked
from nodeheal.domain.recovery.progress import Progress, read_progress
from nodeheal.domain.recovery.recover import heal
from nodeheal.domain.verbs import VERBS

HANG = f"{Family.host.value}/{TRAINING_HANG}"


def decide(history: History, policy: RecoveryPolicy, now: datetime) -> Decision:
    """The next step of the incident at `now` (UTC). Never raises, whatever the history."""
    history = history.begun_anew()
    case = read_case(history, policy)
    seen = read_progress(history, policy)
    say = Spell(history, policy, case, now)
    if len(history.turns) >= policy.max_turns:
        return say.hand_over(
            Escalation.TOO_MANY_DECISIONS, f"{policy.max_turns} decisions did not end this incident; a human must look"
        )
    withdrawn = guardrails.withdrawn(say, seen, case)
    if withdrawn is not None:
        return _with_the_job_in_mind(say, seen, withdrawn)
    if seen.isolation is None:
        return _with_the_job_in_mind(say, seen, _before_anything_is_touched(say, seen, case))
    if case.fault.action is Action.RESTART_WORKLOAD and seen.restart is None:
        # It was isolated for something graver that has been put right in the catalog or the policy since.
        return say.hand_over(
            Escalation.RULES_CHANGED, f"{case.fault.title}: the node is isolated, and nothing asks for that any more"
        )
    return heal(say, seen, case)


def _with_the_job_in_mind(say: Spell, seen: Progress, decided: Decision) -> Decision:
    """What is dropped or only observed brings no job back. Where another incident counts on that, a human hears it."""
    is_down = say.history.is_heir_of_job and not say.history.surroundings.job_is_running
    if decided.ending is not Ending.OBSERVED_ONLY or not is_down:
        return decided
    told = f"{decided.reason}; but {say.job_id} was left to this incident, and is down"
    return say.hand_over(Escalation.JOB_NOT_RESTARTED, told)


def _before_anything_is_touched(say: Spell, seen: Progress, case: Case) -> Decision:
    fault = case.fault
    if fault.action is Action.ESCALATE:
        return say.hand_over(why_asked(fault), f"{fault.title}{case.told_beside}: {fault.short_why}")
    if fault.action is Action.OBSERVE:
        return _let_it_be(say, seen, case)
    held = guardrails.out_of_date(say, seen, case) or guardrails.held_back(say, seen, fault)
    if held is not None:
        return held
    if fault.action is Action.RESTART_WORKLOAD:
        return _restart_only(say, seen, case)
    held = _not_by_itself(say, seen, case) or guardrails.approval(say, seen, fault, fault.action)
    if held is not None:
        return held
    why = f"{fault.title}{case.told_beside}: {fault.short_why} First the node is taken out of service."
    # A node that boots before it is isolated is thought about once more.
    isolate = say.step(Step.ISOLATE, why)
    known = {"boot_id": say.history.surroundings.boot_id, "is_of_new_node": fault.is_of_new_node}
    return isolate.model_copy(update=known)


def _let_it_be(say: Spell, seen: Progress, case: Case) -> Decision:
    """Nothing is to be done now: it is an echo, a trend, or something that waits for the job to end."""
    fault, history = case.fault, say.history
    if fault.waits_for_job:
        return _wait_for_job(say, seen, fault)
    root = correlation.root_of_echo(fault, history, say.policy)
    if root is not None:
        about = f"{root.family.value.upper()} {root.code} on {root.node_id}"
        return say.close(Ending.OBSERVED_ONLY, f"{fault.title}: it belongs to {about}. {fault.short_why}")
    return say.close(Ending.OBSERVED_ONLY, f"{fault.title}: {fault.short_why}")


def _wait_for_job(say: Spell, seen: Progress, fault: Fault) -> Decision:
    wanted = fault.ladder[1]
    held = guardrails.held_back(say, seen, fault.climbed(guardrails.AT_JOB_END))
    if held is not None:
        return held
    waited, seconds = seen.waited.get(Awaited.JOB_END), say.policy.deadlines.job_end_seconds
    why = f"{fault.title}: {fault.short_why} Waiting for the job to end; then {VERBS[wanted].announced}."
    if waited is None or waited.outcome is not Outcome.TIMED_OUT:
        wait = say.wait_on(seen, Awaited.JOB_END, why, seconds)
        if wait is not None:
            is_early = fault.key in say.policy.early_warnings
            return wait.model_copy(update={"checkpoint_seconds": say.policy.checkpoint_seconds if is_early else 0})
    late = f"{fault.title}: the job has not ended in time; a {wanted.lower()} is due when it has"
    return say.hand_over(Escalation.JOB_OUTLASTS_THE_WAIT, late)


def _or_the_rest(say: Spell, seen: Progress, case: Case, otherwise: Decision) -> Decision:
    """The gravest fault is somebody else's, or over: what stands beside it speaks now, if it asks for anything."""
    rest = without_gravest(case)
    return otherwise if rest is None else _before_anything_is_touched(replace(say, case=rest), seen, rest)


def _not_by_itself(say: Spell, seen: Progress, case: Case) -> Decision | None:
    """Whether the fault is one of many with one cause, another node's, or only that of a node that comes up."""
    fault = case.fault
    tripped = guardrails.breaker(say, seen, fault)
    if tripped is not None:
        return tripped
    owner = correlation.owner_of_fabric(fault, say.history, say.policy)
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
        return say.wait(Awaited.SETTLED, why, left)
    return say.hand_over(
        Escalation.NEVER_SETTLED,
        f"{fault.title}: since it should have settled nothing was reported; silence is not health",
    )


def _restart_only(say: Spell, seen: Progress, case: Case) -> Decision:
    """The job's own fault: restart it where it is; the node is not touched."""
    fault = case.fault
    if say.job_id is None:
        nothing = say.close(Ending.OBSERVED_ONLY, f"{fault.title}: no job of ours runs here, nothing to restart")
        return _or_the_rest(say, seen, case, nothing)
    # What the next run shows after its start is another fault, and another restart.
    is_again = seen.restart is not None and fault.alike[-1].observed_at > seen.restart.finished_at
    if seen.restart is None or (is_again and seen.restart.outcome is Outcome.DONE):
        nodes = correlation.nodes_with(fault, say.history, say.policy.correlation.window_seconds)
        first = min(nodes, key=lambda node: (nodes[node], node))
        if first != fault.event.node_id:
            theirs = say.close(Ending.OBSERVED_ONLY, f"{fault.title}: the job's restart belongs to the one on {first}")
            return _or_the_rest(say, seen, case, theirs)
        many = f" {len(nodes)} nodes of the job show it at once: it is the application." if len(nodes) > 1 else ""
        asked = guardrails.approval(say, seen, fault, Action.RESTART_WORKLOAD)
        reason = f"{fault.title}: {fault.short_why}{many}"
        held = asked or _stacks_first(say, seen, fault) or _if_one_node_said_it_too_often(say, fault)
        return held or say.step(Step.RESTART_WORKLOAD, reason, Action.RESTART_WORKLOAD)
    if seen.restart.outcome is not Outcome.DONE:
        return say.hand_over(
            Escalation.JOB_NOT_RESTARTED, f"{fault.title}: the job could not be restarted: {seen.restart.reason}"
        )
    pending = next((other for other in case.beside if other.waits_for_job), None)
    if pending is not None:
        return _wait_for_job(say, seen, pending)
    if case.has_riddle:
        riddle = next(fault for fault in case.beside if fault.action is Action.ESCALATE)
        told = f"{fault.title}: {seen.restart.reason}; but {riddle.title} beside it needs a human"
        return say.hand_over(why_asked(riddle), told)
    return say.close(Ending.RECOVERED, f"{fault.title}: {seen.restart.reason}")


def _if_one_node_said_it_too_often(say: Spell, fault: Fault) -> Decision | None:
    """Before the gang is stopped: what runs goes on running while a human looks."""
    spent = say.history.surroundings.spent
    for reservation in say.history.surroundings.job_limits:
        count = spent.get((reservation.scope, reservation.limit.group), 0)
        if is_for_lone_hangs(reservation) and count >= reservation.limit.limit:
            told = f"{fault.title}: {spelled(reservation, count)} are spent"
            return say.hand_over(Escalation.ATTEMPTS_SPENT, told)
    return None


def _stacks_first(say: Spell, seen: Progress, fault: Fault) -> Decision | None:
    """Once, before a run that hangs is stopped: where its processes stand is all that there is to find the cause by."""
    if fault.key != HANG or seen.evidence is not None or not say.policy.evidence.enabled:
        return None
    why = f"{fault.title}: where its processes stand is saved first: afterwards it is gone"
    return say.step(Step.FREEZE_EVIDENCE, why, deadline_seconds=say.policy.evidence.seconds + TO_BE_HEARD_SECONDS)
