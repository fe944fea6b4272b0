"""Notifies the owner of a job when a recovery stops it, restarts it or leaves it down.

A failure here never delays a recovery: it is written into the incident. Emails are sent before their turn is stored.
A call that crashed in between sends again, and the key removes the duplicate.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

from nodeheal.contract.names import JOB_NEWS
from nodeheal.contract.notification import Notification
from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Action, Ending, JobState, NextStepCondition, Outcome, Step
from nodeheal.domain.faults.assessment import assess_faults
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.jobs.early_end import ended_early
from nodeheal.domain.jobs.job import Run
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.recovery.progress import Progress, read_progress
from nodeheal.domain.recovery.timeline import TimelineEntry
from nodeheal.ports import Ports
from nodeheal.services.notify.compose_owner import (
    HELD_BACK,
    About,
    compose_handed_over,
    compose_held_back,
    compose_runs_again,
    compose_stopped,
)
from nodeheal.services.notify.compose_task_owner import compose_task_owner
from nodeheal.services.notify.read_situation import which_restart

_WORDS = 300  # of a surprise
_LAUNCHES = 3  # so many are looked at, for those that broke off


def notify_owner_of_step(history: History, result: StepResult | None, ports: Ports, policy: RecoveryPolicy) -> None:
    """Notifies the owner after a step that stopped or restarted the job."""
    if result is None or result.step not in (Step.ISOLATE, Step.RESTART_WORKLOAD):
        return
    _notify(history, ports, lambda: _of_step(history, result, ports, policy))


def notify_owner_of_wait(
    history: History, decided: Decision, since: datetime, ports: Ports, policy: RecoveryPolicy
) -> None:
    """Notifies the owner of a job that is down while its recovery waits, since `since`, before it touches anything.

    Called when the wait begins, and when the job fails during it.
    """
    awaited = decided.awaits
    if awaited not in HELD_BACK:
        return
    due = since + timedelta(seconds=decided.deadline_seconds)

    def compose() -> Notification | None:
        about = _about(history, read_progress(history, policy), ports, policy)
        if about is None or about.seen.is_isolated or about.job.is_over or not ended_early(about.run):
            return None
        return compose_held_back(about, awaited, due)

    _notify(history, ports, compose)


def notify_owner_of_ending(
    history: History, seen: Progress, decided: Decision, ports: Ports, policy: RecoveryPolicy
) -> None:
    """Notifies the owner at the end of an incident that leaves the job down."""
    if decided.ending is not Ending.HANDED_TO_A_HUMAN or not seen.has_stopped_job:
        return

    def compose() -> Notification | None:
        about = _about(history, seen, ports, policy)
        return compose_handed_over(about, decided) if about is not None and _is_down(about) else None

    _notify(history, ports, compose)


def notify_owners_of_tasks(
    history: History, tasks: Sequence[UnmanagedTask], ports: Ports, policy: RecoveryPolicy
) -> None:
    """Notifies the owners of these tasks, which the incident has stopped and their scheduler starts again."""
    for task in tasks:
        if task.owner_email:
            _announce(history, task.name, ports, partial(_of_task, history, task, ports, policy))


def _of_task(history: History, task: UnmanagedTask, ports: Ports, policy: RecoveryPolicy) -> Notification:
    execution = ports.console_links.incident(history.incident.incident_id)
    return compose_task_owner(history, task, assess_faults(history, policy).fault, execution)


def _notify(history: History, ports: Ports, compose: Callable[[], Notification | None]) -> None:
    if history.incident.job_id is not None:
        _announce(history, history.incident.job_id, ports, compose)


def _announce(history: History, job: str, ports: Ports, compose: Callable[[], Notification | None]) -> None:
    try:
        told = compose()
        if told is not None:
            ports.notifier.announce(JOB_NEWS, told)
    except Exception as error:  # an email that is lost costs a question; stopping here would cost the recovery
        now, text = ports.clock(), f"the owner of {job} could not be told: {error}"[:_WORDS]
        entry = TimelineEntry(now, f"owner-not-told-{now:%Y%m%dT%H%M%S%f}", text)
        ports.incidents.append(history.incident.incident_id, entry)


def _of_step(history: History, result: StepResult, ports: Ports, policy: RecoveryPolicy) -> Notification | None:
    about = _about(history, read_progress(history, policy), ports, policy)
    if about is None:
        return None
    if result.step is Step.RESTART_WORKLOAD:
        is_ours = about.run.incident_id == history.incident.incident_id
        is_up = result.outcome is Outcome.DONE and not ended_early(about.run)
        return compose_runs_again(about) if is_up and is_ours else None
    return compose_stopped(about) if _comes_back(about) else None


def _comes_back(about: About) -> bool:
    """Whether the job was taken from its node, and will be started again. The ending reports a job left to a human."""
    if not about.seen.is_isolated or about.job.state is JobState.COMPLETED or about.fault.action is Action.ISOLATE:
        return False
    if about.history.incident.incident_id in about.run.end_awaited_by:
        return True  # it was stopped for this
    return about.fault.next_rung is not NextStepCondition.job_end and not about.run.is_running


def _is_down(about: About) -> bool:
    """Whether it is as the incident left it: another one, or a human, may have brought it back."""
    return not about.run.is_running or about.history.incident.incident_id in about.run.end_awaited_by


def _about(history: History, seen: Progress, ports: Ports, policy: RecoveryPolicy) -> About | None:
    """Returns None if the job has no owner."""
    job = ports.jobs.get(str(history.incident.job_id))
    if job is None or job.owner is None:
        return None
    run = ports.jobs.get_run(job.job_id, job.current_run)
    if run is None:
        return None
    before = _run_before(run, ports)
    first_end = before.ended_at if before else None
    fault, restarts = assess_faults(history, policy).fault, which_restart(job, history.incident, ports)
    execution = ports.console_links.incident(history.incident.incident_id)
    return About(job.owner, job, run, history, seen, fault, before, first_end, restarts, execution)


def _run_before(run: Run, ports: Ports) -> Run | None:
    """Returns the last run that computed: later launches that broke off have not."""
    numbers = range(run.number - 1, max(0, run.number - 1 - _LAUNCHES), -1)
    earlier = [ports.jobs.get_run(run.job_id, number) for number in numbers]
    ran = [one for one in earlier if one is not None and one.running_since is not None]
    return (ran or earlier or [None])[0]
