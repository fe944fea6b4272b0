"""Decides whether a job waits for its node or continues on other nodes, by measured times. Pure."""

from dataclasses import dataclass
from statistics import median

from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Action, Awaited, JobState, NextStepCondition, Outcome, Provider, Step
from nodeheal.domain.faults.assessment import FaultAssessment, assess_faults
from nodeheal.domain.humanize import counted, lasting
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import LONGEST
from nodeheal.domain.recovery import guardrails
from nodeheal.domain.recovery.decision_builder import DecisionBuilder
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.recovery.ladder import remaining_steps
from nodeheal.domain.recovery.progress import Progress
from nodeheal.domain.verbs import VERBS


@dataclass(frozen=True)
class ExpectedTime:
    """How long something is expected to take, and on what that rests, in words."""

    seconds: float
    message: str


def move_job(builder: DecisionBuilder, progress: Progress, assessment: FaultAssessment) -> Decision | None:
    """Moves the job to other nodes where that is sooner. Returns None when it waits, or needs no restart.

    Free nodes that have passed their diagnostics are used at once. Else one free node is diagnosed first, where even
    that is sooner. It is asked before each verb, so that a failed reboot does not hold the job back.
    """
    if not _is_due(progress) or not must_restart_job(builder, progress, assessment):
        return None
    if guardrails.hands_off_reason(builder, assessment.fault):
        return None  # nothing is restarted there, either
    context, allowed = builder.history.context, builder.policy.move_job_seconds
    here = _expected_recovery(builder, progress, assessment)
    if progress.replacement_node is not None:
        return _move(builder, f"{here.message}, and {progress.replacement_node.node_id} has passed its diagnostics")
    if context.free_nodes:
        free = counted(context.free_nodes, "free node of the pool has", "free nodes of the pool have")
        return _move(builder, f"{here.message}, and {free} passed diagnostics") if here.seconds > allowed else None
    there, left = _expected_diagnosis(builder), here.seconds - allowed
    if not context.replacement_node or left <= max(
        1.0, there.seconds
    ):  # measured with clocks that differ, it may be negative
        return None
    sooner = f"{there.message}, and {context.replacement_node} is free"
    why = f"{here.message}; {sooner}: it is to pass its diagnostics, so that {builder.job_id} can go on there"
    # A node that says nothing must not hold up the repair for longer than it could have saved.
    until = min(builder.policy.deadlines.diagnose_seconds, int(left))
    return builder.step(Step.DIAGNOSE, why, node_id=context.replacement_node, is_move=True, deadline_seconds=until)


def must_restart_job(builder: DecisionBuilder, progress: Progress, assessment: FaultAssessment) -> bool:
    """Tells whether this recovery must restart the job. A job that ended by itself before is not restarted."""
    if builder.job_id is None or (progress.restart and progress.restart.outcome is Outcome.DONE):
        return False
    return _is_its_to_restart(assessment)


def needs_no_restart(history: History, job: Job, run: Run | None, policy: RecoveryPolicy) -> bool:
    """Tells whether nothing is left for this incident to restart, or to have restarted.

    The job has ended well, a person has stopped it, or its own workflow explains how it ended and restarts it.
    """
    if job.state in (JobState.COMPLETED, JobState.CANCELLED) or job.stop_wanted:
        return True
    if run is not None and run.has_succeeded:  # COMPLETED is written a moment later
        return True
    return has_let_run_end(history, run, policy)


def has_let_run_end(history: History, run: Run | None, policy: RecoveryPolicy) -> bool:
    """Tells whether the incident has waited until this run had ended by itself: how it ended is not its business."""
    if run is None or not run.has_ended or history.incident.incident_id in run.end_awaited_by:
        return False
    waits = (turn for turn in history.turns if turn.decision.awaits is Awaited.JOB_END)
    has_come = any(turn.result is not None and turn.result.outcome is Outcome.DONE for turn in waits)
    return has_come and not _is_its_to_restart(assess_faults(history, policy))


def _is_its_to_restart(assessment: FaultAssessment) -> bool:
    killed_the_job = any(fault.action is Action.RESTART_WORKLOAD for fault in assessment.other_faults)
    return assessment.fault.next_rung is not NextStepCondition.job_end or killed_the_job


def _is_due(progress: Progress) -> bool:
    """Tells whether a verb comes next and no move was tried. A refused move is not tried again."""
    is_tried = progress.move is not None or progress.restart is not None
    return not is_tried and progress.returned is None and not progress.awaits_proof and not progress.is_proven


def _move(builder: DecisionBuilder, why: str) -> Decision:
    reason = f"{builder.job_id} goes on elsewhere at once: {why}"
    return builder.step(Step.RESTART_WORKLOAD, reason, Action.RESTART_WORKLOAD, is_move=True)


def _expected_recovery(builder: DecisionBuilder, progress: Progress, assessment: FaultAssessment) -> ExpectedTime:
    """Returns how long the next verb takes, with its proof."""
    actions, _ = remaining_steps(assessment.fault, progress, builder)
    if not actions or (progress.proof is not None and progress.proof.outcome is Outcome.UNKNOWN):
        return ExpectedTime(LONGEST, "a human has to look at this node first")
    past = builder.history.context.recovery_seconds.get(actions[0], ())
    return _from_measurements(f"{VERBS[actions[0]].with_article} here", past, _upper_bound(builder, actions[0]))


def _expected_diagnosis(builder: DecisionBuilder) -> ExpectedTime:
    return _from_measurements(
        "a diagnosis here", builder.history.context.proof_seconds, builder.policy.deadlines.diagnose_seconds
    )


def _upper_bound(builder: DecisionBuilder, action: Action) -> float:
    """Returns the time that the policy allows. It is used while no recovery was measured here."""
    known = builder.policy.deadlines
    if action is Action.REPLACE and builder.history.context.provider is Provider.hybrid:
        return _expected_diagnosis(builder).seconds  # a spare is swapped in at once, and diagnosed
    verb = VERBS[action]
    stable = builder.policy.stable_seconds if verb.keeps_machine else 0
    return known.of(verb) + stable + known.diagnose_seconds


def _from_measurements(what: str, past: tuple[float, ...], at_most: float) -> ExpectedTime:
    if not past:
        return ExpectedTime(at_most, f"{what} may take {lasting(at_most)}")
    usual = median(past)
    by = "the last one" if len(past) == 1 else f"the last {len(past)}"
    return ExpectedTime(usual, f"{what} takes {lasting(usual)} by {by}")
