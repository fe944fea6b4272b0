"""Notifies the owner of a job when it starts or ends, and operators when it needs a human.

A failure here never delays a job: it is returned as text, for the job's record. `notify_job_owner` reports what a
recovery does to the job. Both use the same keys, so nothing is sent twice.
"""

from collections.abc import Callable

from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.names import JOB_NEWS
from nodeheal.contract.notification import Notification
from nodeheal.contract.vocabulary import JobState
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.jobs.owner import Owner
from nodeheal.ports import Ports
from nodeheal.services.jobs.pool_failures import lived_beside
from nodeheal.services.notify.compose_job import (
    JobStory,
    compose_cancelled,
    compose_down,
    compose_finished,
    compose_for_operators,
    compose_started,
)

_WORDS = 300  # of a surprise
_TO_OWNERS: dict[JobState, Callable[[JobStory, Owner], Notification]] = {
    JobState.COMPLETED: compose_finished,
    JobState.CANCELLED: compose_cancelled,
    JobState.FAILED: compose_down,
}


def notify_of_start(job: Job, ports: Ports) -> str:
    """Notifies the owner once all ranks of the first run are up. Returns a failure as text.

    A repeat sends the same email under the same key.
    """

    def compose() -> list[Notification | None]:
        runs = runs_of_submission(job, ports)
        is_first = len(runs) == 1 and runs[0].running_since is not None  # one may have broken since
        if not is_first or job.owner is None:
            return []
        return [compose_started(JobStory(job, runs, ports.clock()), job.owner)]

    return _notify(compose, ports)


def notify_of_end(job: Job, request: JobRequest, ports: Ports) -> str:
    """Notifies the owner how the job ended, and operators where a human has it and no incident has notified them.

    Returns a failure as text, empty if there was none.
    """

    def compose() -> list[Notification | None]:
        last = request.last
        story = JobStory(
            job,
            runs_of_submission(job, ports),
            ports.clock(),
            request.reason,
            job.trouble,
            last.incident_id if last else None,
            ports.console_links,
            lived_beside(job, ports),
        )
        to_owner = _TO_OWNERS[job.state](story, job.owner) if job.owner else None
        is_news = job.state is JobState.FAILED and story.incident_id is None
        return [compose_for_operators(story) if is_news else None, to_owner]

    return _notify(compose, ports)


def runs_of_submission(job: Job, ports: Ports) -> list[Run]:
    """The runs since the job was last submitted, in order."""
    since = job.submitted_at
    return [run for run in ports.jobs.runs(job.job_id) if since is None or run.started_at >= since]


def _notify(compose: Callable[[], list[Notification | None]], ports: Ports) -> str:
    try:
        for notification in compose():
            if notification is not None:
                ports.notifier.announce(JOB_NEWS, notification)
    except Exception as error:  # an email that is lost costs a question; stopping here would cost the job
        return f"; and nobody could be told: {error}"[:_WORDS]
    return ""
