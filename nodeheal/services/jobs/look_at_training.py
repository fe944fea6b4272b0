"""Looks at how every run trains, notes what is wrong, and tells its owner. Nothing is done with its nodes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from nodeheal.contract.names import JOB_NEWS
from nodeheal.contract.training import NodeTraining
from nodeheal.domain.fleet.liveness import Heartbeat
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.jobs.job_findings import due, job_findings, noted
from nodeheal.domain.policy.policy_models import SlowJobs
from nodeheal.ports import Ports
from nodeheal.services.notify.compose_training import compose_training


def look_at_training(
    pools: Sequence[str], newest: Mapping[str, Heartbeat], ports: Ports, limits: SlowJobs
) -> list[str]:
    """Return the jobs whose owner was told. Safe to repeat: a finding is told once a run. Without heartbeats nothing is
    known, and nobody is told anything.
    """
    if not limits.enabled or not newest:
        return []
    running = (pair for pool in pools for pair in _running(pool, ports))
    return [job.job_id for job, run in running if _look_at(job, run, newest, ports, limits)]


def trainings_of(run: Run, newest: Mapping[str, Heartbeat]) -> dict[str, NodeTraining]:
    """Return what the heartbeats of a run's nodes say of it, by node."""
    name = f"{run.job_id}/{run.number}"
    beats = {task.node_id: newest[task.node_id] for task in run.tasks if task.node_id in newest}
    return {node_id: beat.trainings[name] for node_id, beat in beats.items() if name in beat.trainings}


def _running(pool: str, ports: Ports) -> Iterator[tuple[Job, Run]]:
    for job in ports.job_notes.in_pool(pool, live_only=True):
        run = ports.jobs.get_run(job.job_id, job.current_run) if job.current_run and not job.is_over else None
        if run is not None and run.is_running:
            yield job, run


def _look_at(job: Job, run: Run, newest: Mapping[str, Heartbeat], ports: Ports, limits: SlowJobs) -> bool:
    """Whether its owner was told of something. The email comes first: one sent again is folded by its key."""
    now = ports.clock()
    fresh = {node_id: beat for node_id, beat in newest.items() if not beat.is_missed(now)}
    if any(task.node_id not in fresh for task in run.tasks):
        return False  # what is not heard of may be what is wrong, and silence is another fault
    seconds_up = (now - (run.running_since or now)).total_seconds()
    findings = job_findings(job, run, trainings_of(run, fresh), seconds_up, limits)
    known = ports.job_findings.of(job.job_id, run.number)
    changes = noted(findings, known, now)
    for change in changes:
        ports.job_findings.note(change)
    to_tell = due(findings, [*known, *changes], now)
    for each in to_tell:
        if job.owner is not None:
            ports.notifier.announce(JOB_NEWS, compose_training(job, run, each, job.owner))
        ports.job_findings.note(replace(each, announced_at=now))
    return bool(to_tell)
