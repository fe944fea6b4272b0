"""Notifies the owner of a job when a recovery stops it, restarts it or leaves it down.

A failure here never delays a recovery: it is written into the incident. Emails are sent before their turn is stored.
A call that crashed in between sends again, and the key removes the duplicate.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from nodeheal.contract.names import JOB_NEWS
from nodeheal.contract.notification import Notification
from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Action, Awaited, Ending, JobState, NextStepCondition, Outcome, Step
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.jobs.early_end import ended_early
from nodeheal.domain.jobs.job import Run
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.recovery.situation import Situation
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
from nodeheal.services.notify.read_aftermath import which_restart

_WORDS = 300  # of a surprise
_LAUNCHES = 3  # so many are looked at, for those that broke off


def notify_owner_of_step(situation: Situation, result: StepResult, ports: Ports) -> None:
    """Notifies the owner after a step that stopped or restarted the job."""
    if result.step in (Step.ISOLATE, Step.RESTART_WORKLOAD):
        _notify(situation.history, ports, partial(_of_step, situation, result, ports))


def notify_owner_of_wait(situation: Situation, decision: Decision, due: datetime, ports: Ports) -> None:
    """Notifies the owner of a job that is down while its recovery waits, until `due`, before it touches anything.

    Called when the wait begins, and when the job fails during it.
    """
    if decision.awaits in HELD_BACK:
        _notify(situation.history, ports, partial(_of_wait, situation, decision.awaits, due, ports))


def notify_owner_of_ending(situation: Situation, decision: Decision, ports: Ports) -> None:
    """Notifies the owner at the end of an incident that leaves the job down."""
    if decision.ending is Ending.HANDED_TO_A_HUMAN and situation.has_stopped_job:
        _notify(situation.history, ports, partial(_of_ending, situation, decision, ports))


def notify_owners_of_tasks(situation: Situation, tasks: Sequence[UnmanagedTask], ports: Ports) -> None:
    """Notifies the owners of these tasks, which the incident has stopped and their scheduler starts again."""
    for task in tasks:
        if task.owner_email:
            _announce(situation.history, task.name, ports, partial(_of_task, situation, task, ports))


def _of_wait(situation: Situation, awaited: Awaited, due: datetime, ports: Ports) -> Notification | None:
    about = _about(situation, ports)
    if about is None or situation.progress.is_isolated or about.job.is_over or not ended_early(about.run):
        return None
    return compose_held_back(about, awaited, due)


def _of_ending(situation: Situation, decision: Decision, ports: Ports) -> Notification | None:
    about = _about(situation, ports)
    return compose_handed_over(about, decision) if about is not None and _is_down(about) else None


def _of_task(situation: Situation, task: UnmanagedTask, ports: Ports) -> Notification:
    execution = ports.console_links.incident(situation.history.incident.incident_id)
    return compose_task_owner(situation.history, task, situation.assessment.fault, execution)


def _notify(history: History, ports: Ports, compose: Callable[[], Notification | None]) -> None:
    if history.incident.job_id is not None:
        _announce(history, history.incident.job_id, ports, compose)


def _announce(history: History, job: str, ports: Ports, compose: Callable[[], Notification | None]) -> None:
    try:
        notification = compose()
        if notification is not None:
            ports.notifier.announce(JOB_NEWS, notification)
    except Exception as error:  # an email that is lost costs a question; stopping here would cost the recovery
        now, text = ports.clock(), f"the owner of {job} could not be told: {error}"[:_WORDS]
        entry = TimelineEntry(now, f"owner-not-told-{now:%Y%m%dT%H%M%S%f}", text)
        ports.incidents.append(history.incident.incident_id, entry)


def _of_step(situation: Situation, result: StepResult, ports: Ports) -> Notification | None:
    about = _about(situation, ports)
    if about is None:
        return None
    if result.step is Step.RESTART_WORKLOAD:
        is_ours = about.run.incident_id == situation.history.incident.incident_id
        is_up = result.outcome is Outcome.DONE and not ended_early(about.run)
        return compose_runs_again(about) if is_up and is_ours else None
    return compose_stopped(about) if _comes_back(about) else None


def _comes_back(about: About) -> bool:
    """Whether the job was taken from its node, and will be started again. The ending reports a job left to a human."""
    if not about.progress.is_isolated or about.job.state is JobState.COMPLETED or about.fault.action is Action.ISOLATE:
        return False
    if about.history.incident.incident_id in about.run.end_awaited_by:
        return True  # it was stopped for this
    return about.fault.next_rung is not NextStepCondition.job_end and not about.run.is_running


def _is_down(about: About) -> bool:
    """Whether it is as the incident left it: another one, or a human, may have brought it back."""
    return not about.run.is_running or about.history.incident.incident_id in about.run.end_awaited_by


def _about(situation: Situation, ports: Ports) -> About | None:
    """Returns None if the job has no owner."""
    history = situation.history
    job = ports.jobs.get(str(history.incident.job_id))
    if job is None or job.owner is None:
        return None
    run = ports.jobs.get_run(job.job_id, job.current_run)
    if run is None:
        return None
    before = _run_before(run, ports)
    first_end = before.ended_at if before else None
    restarts = which_restart(job, history.incident, ports)
    execution = ports.console_links.incident(history.incident.incident_id)
    return About(job.owner, job, run, situation, before, first_end, restarts, execution)


def _run_before(run: Run, ports: Ports) -> Run | None:
    """Returns the last run that computed: later launches that broke off have not."""
    numbers = range(run.number - 1, max(0, run.number - 1 - _LAUNCHES), -1)
    earlier = [ports.jobs.get_run(run.job_id, number) for number in numbers]
    ran = [earlier_run for earlier_run in earlier if earlier_run is not None and earlier_run.running_since is not None]
    return (ran or earlier or [None])[0]
