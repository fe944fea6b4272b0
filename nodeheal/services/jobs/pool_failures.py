"""Counts the failures under the pool's other jobs, to estimate how often jobs on such nodes fail."""

from datetime import datetime, timedelta

from nodeheal.contract.vocabulary import Ending, Family, IncidentState
from nodeheal.domain.jobs.checkpoint_advice import PoolExperience
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.ports import Ports
from nodeheal.services.operators.review_incidents import list_incidents

WINDOW = timedelta(days=30)
JOBS_READ = 20  # the newest: each is one query


def lived_beside(job: Job, ports: Ports) -> PoolExperience:
    """The running time of the newest other jobs in the last thirty days, and the incidents that were not their own."""
    now = ports.clock()
    begin = now - WINDOW
    known = [other for other in ports.job_notes.in_pool(job.pool) if other.job_id != job.job_id and other.submitted_at]
    others = sorted(known, key=lambda other: str(other.submitted_at))[-JOBS_READ:]
    node_seconds = 0.0
    for other in others:
        node_seconds += sum(_running_seconds(run, begin, now) * len(run.tasks) for run in ports.jobs.runs(other.job_id))
    if not node_seconds:
        return PoolExperience()
    names = {other.job_id for other in others}
    broken = [
        incident
        for incident in list_incidents(ports, [job.pool], list(IncidentState), begin)
        if incident.job_id in names
        and incident.root.family is not Family.task  # a program's own failure says nothing of the nodes
        and incident.ending is not Ending.OBSERVED_ONLY
    ]
    return PoolExperience(len(others), len(broken), node_seconds)


def _running_seconds(run: Run, begin: datetime, now: datetime) -> float:
    """How long all its ranks ran within the window."""
    if run.running_since is None:
        return 0.0
    return max(0.0, ((run.ended_at or now) - max(run.running_since, begin)).total_seconds())
