"""Everything that is known of one job, for a person who asks."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from nodeheal.contract.vocabulary import Action, IncidentState
from nodeheal.domain.errors import NotFound
from nodeheal.domain.jobs.checkpoint_advice import Advice, advice_of
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.jobs.restarts import limit_of_application
from nodeheal.domain.jobs.training_progress import TrainingProgress, training_progress
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.approval_links import Question
from nodeheal.domain.recovery.decision_context import job_scope
from nodeheal.domain.recovery.incident import Incident
from nodeheal.domain.review.review import AWAITED
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_line import Standing, stands_before
from nodeheal.services.jobs.pool_failures import lived_beside
from nodeheal.services.operators.review_incidents import list_incidents

RUNS_SHOWN = 5
# How a run's reason begins that is the first one of a submission; the others were restarts, each for an incident.
_SKEW = timedelta(minutes=5)


@dataclass(frozen=True)
class RestartsUsed:
    """How often it was restarted since it was submitted, and within its window."""

    total: int
    in_window: int
    of_application: int  # in the window, for the program's own failures


@dataclass(frozen=True)
class JobView:
    """`runs`: the newest ones, oldest first. `incidents`: those of this submission, newest first."""

    job: Job
    runs: tuple[Run, ...]
    incidents: tuple[Incident, ...]
    restarts: RestartsUsed
    advice: Advice  # and the account of its time that it rests on
    ahead: tuple[Standing, ...] = ()  # who gets nodes before it, where it waits for some
    progress: TrainingProgress | None = None
    awaits: str = ""  # what the incident waits for that may be bringing it back, and until when; empty: for nothing
    next_limit: str = ""  # of restarts; empty: who asks may not read the policy

    @property
    def run(self) -> Run | None:
        """The newest run of this submission."""
        return next((run for run in self.runs if run.number == self.job.current_run), None)

    @property
    def working(self) -> Incident | None:
        """The incident that may be bringing it back now."""
        return next((incident for incident in self.incidents if incident.is_under_way), None)


def find_job(job_id: str, ports: Ports) -> Job:
    """The job. Raises NotFound."""
    job = ports.jobs.get(job_id)
    if job is None:
        raise NotFound(f"no job {job_id} is known; see `nodeheal jobs list`")
    return job


def look_at_job(job_id: str, ports: Ports) -> JobView:
    """Raises NotFound."""
    job = find_job(job_id, ports)
    runs = ports.jobs.runs(job_id)
    since = job.submitted_at or (runs[0].started_at if runs else ports.clock())
    found = list_incidents(ports, [job.pool], list(IncidentState), since - _SKEW)
    incidents = tuple(incident for incident in found if incident.job_id == job_id)
    now = ports.clock()
    advice = advice_of(job, runs, incidents, now, lived_beside(job, ports))
    ahead = tuple(stands_before(job, ports))
    progress = progress_of([job], ports).get(job_id)
    used = _used(job, runs, since, now, ports)
    return JobView(job, tuple(runs[-RUNS_SHOWN:]), incidents, used, advice, ahead, progress)


def awaited_by(incident: Incident | None, ports: Ports) -> str:
    """What the incident waits for, and until when it may be answered. Empty: it waits for nothing.

    Who may only submit jobs may not read that.
    """
    if incident is None or incident.state is not IncidentState.WAITING:
        return ""
    # Here: most jobs wait for no incident, and the engine takes many modules.
    from nodeheal.operations.approve import find_question

    question = find_question(Question(incident.incident_id, incident.turn), ports)
    until = f" until {question.deadline_at:%Y-%m-%d %H:%M:%S} UTC" if question is not None else ""
    return f"{AWAITED[incident.awaits]}{until}" if incident.awaits is not None else ""


def next_limit(view: JobView, ports: Ports, policy: RecoveryPolicy) -> str:
    """How many restarts are left by the limit that is reached first, and where that limit is set.

    The policy's limit counts those of earlier submissions, too, so that it is named where another is as near.
    """
    own, used, by_policy = view.job.restarts, view.restarts, policy.limits[Action.RESTART_WORKLOAD]
    spent = ports.attempts.spent(job_scope(view.job.job_id), by_policy)[by_policy.group]
    left, where = min(
        (
            (by_policy.limit - spent, f"{in_hours(by_policy.window_seconds)} (the policy's limits.RESTART_WORKLOAD)"),
            (own.in_window - used.in_window, f"{in_hours(own.window_seconds)} (its own restarts.in_window)"),
            (own.total - used.total, "since it was submitted (its own restarts.total)"),
        ),
        key=lambda limit: limit[0],
    )
    return f"{left if left > 0 else 'no'} more {where}"


def in_hours(seconds: int) -> str:
    """A window, for people."""
    return f"in {seconds / 3_600:g} h"


def progress_of(jobs: Sequence[Job], ports: Ports) -> dict[str, TrainingProgress]:
    """How far each of these jobs has come, by its id; those that show no step, or do not run, are left out."""
    running = [job for job in jobs if job.current_run and not job.is_over]
    heartbeats = ports.heartbeats.newest() if running else {}
    found = {
        job.job_id: training_progress(job, ports.jobs.get_run(job.job_id, job.current_run), heartbeats)
        for job in running
    }
    return {name: progress for name, progress in found.items() if progress is not None}


def list_jobs(pools: Sequence[str], ports: Ports) -> list[Job]:
    """The jobs of these pools: those that live first, then by name."""
    found = [job for pool in pools for job in ports.job_notes.in_pool(pool)]
    return sorted(found, key=lambda job: (job.is_over, job.job_id))


def _used(job: Job, runs: Sequence[Run], since: datetime, now: datetime, ports: Ports) -> RestartsUsed:
    began = [run.started_at for run in runs if run.started_at >= since and run.incident_id]
    window = timedelta(seconds=job.restarts.window_seconds)
    scope, limit = (own := limit_of_application(job)).scope, own.limit
    of_application = ports.attempts.spent(scope, limit)[limit.group]
    return RestartsUsed(len(began), sum(at > now - window for at in began), of_application)
