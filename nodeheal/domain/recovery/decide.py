"""The decision core: chooses the next step of an incident from its whole history, and gives the reason.

Pure and total.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from nodeheal.contract.names import TRAINING_HANG
from nodeheal.contract.results import CallAgain
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Action, Awaited, Ending, Escalation, Family, Outcome, Step, Verdict
from nodeheal.domain.faults import correlation
from nodeheal.domain.faults.assessment import FaultAssessment, assess_faults, without_gravest_fault
from nodeheal.domain.faults.diagnosis import Fault
from nodeheal.domain.jobs.restarts import is_limit_of_lone_hangs
from nodeheal.domain.recovery import guardrails
from nodeheal.domain.recovery.attempt_budget import attempts_text
from nodeheal.domain.recovery.confirmation import ANSWER_MARGIN_SECONDS, ask_while_isolating
from nodeheal.domain.recovery.decision_builder import DecisionBuilder
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.recovery.ladder import escalation_of_fault
from nodeheal.domain.recovery.progress import Progress
from nodeheal.domain.recovery.recover import recover
from nodeheal.domain.recovery.situation import Situation
from nodeheal.domain.verbs import VERBS

HANG = f"{Family.host.value}/{TRAINING_HANG}"


def decide(situation: Situation, now: datetime) -> Decision:
    """Returns the next step of the incident at `now` (UTC). It never raises, whatever the history is."""
    unfinished = _continued(situation.history)
    if unfinished is not None:
        return unfinished
    history, policy, progress = situation.history.rebased_on_latest_boot(), situation.policy, situation.progress
    assessment = assess_faults(history, policy)
    builder = DecisionBuilder(history, policy, assessment, now)
    if len(history.turns) >= policy.max_turns:
        return builder.escalate(
            Escalation.DECISION_LIMIT, f"{policy.max_turns} decisions did not end this incident; a human must look"
        )
    cancelled = guardrails.cancelled_by_operator(builder, progress, assessment)
    if cancelled is not None:
        return _escalate_if_job_stays_down(builder, progress, cancelled)
    if progress.isolation is None:
        return _escalate_if_job_stays_down(builder, progress, _decide_before_isolation(builder, progress, assessment))
    if assessment.fault.action is Action.RESTART_WORKLOAD and progress.restart is None:
        # It was isolated for something graver that has been put right in the catalog or the policy since.
        return builder.escalate(
            Escalation.POLICY_CHANGED,
            f"{assessment.fault.title}: the node is isolated, and nothing asks for that any more",
        )
    return recover(builder, progress, assessment)


def _continued(history: History) -> Decision | None:
    """Returns the last step again where it asks for that: same operation, same attempt."""
    last = history.turns[-1] if history.turns else None
    if last is None or last.result is None or not isinstance(last.result.facts, CallAgain):
        return None
    turn = last.decision.continues or len(history.turns)
    return last.decision.model_copy(update={"continues": turn, "reason": last.result.reason})


def _escalate_if_job_stays_down(builder: DecisionBuilder, progress: Progress, decided: Decision) -> Decision:
    """Escalates instead of closing when another incident relies on this one to restart the job."""
    is_down = builder.history.must_restart_job_for_others and not builder.history.context.job_is_running
    if decided.ending is not Ending.OBSERVED_ONLY or not is_down:
        return decided
    message = f"{decided.reason}; but {builder.job_id} was left to this incident, and is down"
    return builder.escalate(Escalation.JOB_NOT_RESTARTED, message)


def _decide_before_isolation(builder: DecisionBuilder, progress: Progress, assessment: FaultAssessment) -> Decision:
    fault = assessment.fault
    if fault.action is Action.ESCALATE:
        return builder.escalate(escalation_of_fault(fault), f"{fault.title}{assessment.others_text}: {fault.short_why}")
    if fault.action is Action.OBSERVE:
        return _observe(builder, progress, assessment)
    if fault.is_of_idle_node and builder.history.incident.job_id is not None:
        return builder.close(
            Ending.OBSERVED_ONLY, f"{fault.title}: it was not diagnosed: {builder.job_id} has begun there"
        )
    blocked = guardrails.stale(builder, progress, assessment) or guardrails.blocked_before_start(
        builder, progress, fault
    )
    if blocked is not None:
        return blocked
    if fault.action is Action.RESTART_WORKLOAD:
        return _restart_job_only(builder, progress, assessment)
    blocked = _explained_by_others(builder, progress, assessment) or guardrails.approval_of_start(
        builder, progress, fault
    )
    if blocked is not None:
        return blocked
    why = f"{fault.title}{assessment.others_text}: {fault.short_why} First the node is taken out of service."
    # A node that boots before it is isolated is thought about once more.
    isolate = builder.step(Step.ISOLATE, why)
    known = {
        "boot_id": builder.history.context.boot_id,
        "is_of_new_node": fault.is_of_new_node,
        "is_of_idle_node": fault.is_of_idle_node,
    }
    return isolate.model_copy(update={**known, **ask_while_isolating(builder, fault)})


def _observe(builder: DecisionBuilder, progress: Progress, assessment: FaultAssessment) -> Decision:
    """Touches nothing: the fault is secondary, a trend, or waits for the end of the job."""
    fault, history = assessment.fault, builder.history
    if fault.waits_for_job:
        return _wait_for_job(builder, progress, fault)
    root = correlation.root_of_secondary_fault(fault, history, builder.policy)
    if root is not None:
        about = f"{root.family.value.upper()} {root.code} on {root.node_id}"
        return builder.close(Ending.OBSERVED_ONLY, f"{fault.title}: it belongs to {about}. {fault.short_why}")
    return builder.close(Ending.OBSERVED_ONLY, f"{fault.title}: {fault.short_why}")


def _wait_for_job(builder: DecisionBuilder, progress: Progress, fault: Fault) -> Decision:
    wanted = fault.ladder[1]
    blocked = guardrails.blocked_before_start(builder, progress, fault.on_second_step(guardrails.AT_JOB_END))
    if blocked is not None:
        return blocked
    waited, seconds = progress.waited.get(Awaited.JOB_END), builder.policy.deadlines.job_end_seconds
    why = f"{fault.title}: {fault.short_why} Waiting for the job to end; then {VERBS[wanted].announced}."
    if waited is None or waited.outcome is not Outcome.TIMED_OUT:
        wait = builder.wait_on(progress, Awaited.JOB_END, why, seconds)
        if wait is not None:
            is_early = fault.key in builder.policy.early_warnings
            return wait.model_copy(update={"checkpoint_seconds": builder.policy.checkpoint_seconds if is_early else 0})
    late = f"{fault.title}: the job has not ended in time; a {wanted.lower()} is due when it has"
    return builder.escalate(Escalation.JOB_END_TIMEOUT, late)


def _or_decide_other_faults(
    builder: DecisionBuilder, progress: Progress, assessment: FaultAssessment, otherwise: Decision
) -> Decision:
    """Decides on the node's other faults when the gravest one belongs to another incident or is over."""
    rest = without_gravest_fault(assessment)
    return otherwise if rest is None else _decide_before_isolation(replace(builder, assessment=rest), progress, rest)


def _explained_by_others(builder: DecisionBuilder, progress: Progress, assessment: FaultAssessment) -> Decision | None:
    """Waits or closes when the fault has a common cause, belongs to another node, or is normal during startup."""
    fault = assessment.fault
    tripped = guardrails.breaker(builder, progress, fault)
    if tripped is not None:
        return tripped
    owner = correlation.owner_of_fabric(fault, builder.history, builder.policy)
    if owner is not None:
        message = f"{owner.family.value.upper()} {owner.code} on {owner.node_id}"
        closed = builder.close(
            Ending.OBSERVED_ONLY, f"{fault.title}: one fabric, one incident: it belongs to {message}"
        )
        return _or_decide_other_faults(builder, progress, assessment, closed)
    return _wait_for_startup(builder, progress, assessment)


def _wait_for_startup(builder: DecisionBuilder, progress: Progress, assessment: FaultAssessment) -> Decision | None:
    """Gives a node that has just booted time to find its accelerators. Silence afterwards is not health."""
    fault, context, event = assessment.fault, builder.history.context, assessment.fault.event
    starts = [at for at in (context.booted_at, context.agent_since) if at is not None and at <= event.observed_at]
    settled_at = max(starts, default=event.observed_at) + timedelta(seconds=builder.policy.settle_seconds)
    if fault.key not in builder.policy.settling or not starts or event.observed_at >= settled_at:
        return None
    later = [e for e in builder.history.events if e.observed_at >= settled_at and e.node_id == event.node_id]
    kind = (event.family, event.code, event.component, event.boot_id)
    alike = [e for e in later if (e.family, e.code, e.component, e.boot_id) == kind]
    last = max(alike, key=lambda e: (e.observed_at, e.event_id), default=None)
    if last is not None and last.verdict is Verdict.OK:
        gone = builder.close(Ending.OBSERVED_ONLY, f"{fault.title}: gone when it settled")
        return _or_decide_other_faults(builder, progress, assessment, gone)
    if last is not None and last.verdict is not Verdict.UNKNOWN:
        return None
    if builder.now < settled_at:
        left = int((settled_at - builder.now).total_seconds()) + builder.policy.deadlines.quick_seconds
        why = f"{fault.title}: the node has just come up; it is given {builder.policy.settle_seconds} s to settle"
        return builder.wait(Awaited.SETTLED, why, left)
    return builder.escalate(
        Escalation.STARTUP_UNCONFIRMED,
        f"{fault.title}: since it should have settled nothing was reported; silence is not health",
    )


def _restart_job_only(builder: DecisionBuilder, progress: Progress, assessment: FaultAssessment) -> Decision:
    """Restarts a job that failed by itself, on the same nodes. No node is touched."""
    fault = assessment.fault
    if builder.job_id is None:
        nothing = builder.close(Ending.OBSERVED_ONLY, f"{fault.title}: no job of ours runs here, nothing to restart")
        return _or_decide_other_faults(builder, progress, assessment, nothing)
    if progress.restart is None and builder.history.context.why_no_restart:
        whose = f"{builder.job_id} {builder.history.context.why_no_restart}; there is nothing to restart"
        return _or_decide_other_faults(
            builder, progress, assessment, builder.close(Ending.OBSERVED_ONLY, f"{fault.title}: {whose}")
        )
    # What the next run shows after its start is another fault, and another restart.
    is_again = progress.restart is not None and fault.alike[-1].observed_at > progress.restart.finished_at
    if progress.restart is None or (is_again and progress.restart.outcome is Outcome.DONE):
        nodes = correlation.nodes_with_fault(fault, builder.history, builder.policy.correlation.window_seconds)
        first = min(nodes, key=lambda node: (nodes[node], node))
        if first != fault.event.node_id:
            theirs = builder.close(
                Ending.OBSERVED_ONLY, f"{fault.title}: the job's restart belongs to the one on {first}"
            )
            return _or_decide_other_faults(builder, progress, assessment, theirs)
        many = f" {len(nodes)} nodes of the job show it at once: it is the application." if len(nodes) > 1 else ""
        asked = guardrails.approval(builder, progress, fault, Action.RESTART_WORKLOAD)
        reason = f"{fault.title}: {fault.short_why}{many}"
        blocked = asked or _save_stacks_first(builder, progress, fault) or _escalate_repeated_lone_hangs(builder, fault)
        return blocked or builder.step(Step.RESTART_WORKLOAD, reason, Action.RESTART_WORKLOAD)
    if progress.restart.outcome is not Outcome.DONE:
        return builder.escalate(
            Escalation.JOB_NOT_RESTARTED, f"{fault.title}: the job could not be restarted: {progress.restart.reason}"
        )
    pending = next((other for other in assessment.other_faults if other.waits_for_job), None)
    if pending is not None:
        return _wait_for_job(builder, progress, pending)
    if assessment.has_unclassified_fault:
        unclassified = next(fault for fault in assessment.other_faults if fault.action is Action.ESCALATE)
        message = f"{fault.title}: {progress.restart.reason}; but {unclassified.title} beside it needs a human"
        return builder.escalate(escalation_of_fault(unclassified), message)
    return builder.close(Ending.RECOVERED, f"{fault.title}: {progress.restart.reason}")


def _escalate_repeated_lone_hangs(builder: DecisionBuilder, fault: Fault) -> Decision | None:
    """Escalates before the gang is stopped, so that a running job goes on while a human looks."""
    spent = builder.history.context.spent
    for reservation in builder.history.context.job_limits:
        count = spent.get((reservation.scope, reservation.limit.group), 0)
        if is_limit_of_lone_hangs(reservation) and count >= reservation.limit.limit:
            message = f"{fault.title}: {attempts_text(reservation, count)} are spent"
            return builder.escalate(Escalation.ATTEMPTS_SPENT, message)
    return None


def _save_stacks_first(builder: DecisionBuilder, progress: Progress, fault: Fault) -> Decision | None:
    """Saves the stacks of a hanging job once before it is stopped, because only they show the cause."""
    if fault.key != HANG or progress.evidence is not None or not builder.policy.evidence.enabled:
        return None
    why = f"{fault.title}: where its processes stand is saved first: afterwards it is gone"
    return builder.step(
        Step.FREEZE_EVIDENCE, why, deadline_seconds=builder.policy.evidence.seconds + ANSWER_MARGIN_SECONDS
    )
