"""Looks at how every run trains, notes what is wrong, and tells its owner. Nothing is done with its nodes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nodeheal.contract.names import JOB_NEWS
from nodeheal.contract.training import NodeTraining
from nodeheal.domain.fleet.liveness import Heartbeat
from nodeheal.domain.fleet.pool import RunningJobs, count_job
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.jobs.job_findings import JobFinding, NotedFinding, due, job_findings, noted
from nodeheal.domain.policy.policy_models import SlowJobs
from nodeheal.ports import Ports
from nodeheal.services.notify.compose_training import compose_training


@dataclass
class TrainingLook:
    """What a look has come to. `announced`: jobs whose owner was told; `running`: the jobs of each pool, counted."""

    announced: list[str] = field(default_factory=list)
    running: dict[str, RunningJobs] = field(default_factory=dict)


def look_at_training(
    pools: Sequence[str], newest: Mapping[str, Heartbeat], ports: Ports, limits: SlowJobs
) -> TrainingLook:
    """Look at all running jobs. Safe to repeat: a finding is told once a run. Without heartbeats nothing is known:
    nobody is told anything, and nothing is counted.
    """
    look = TrainingLook()
    if not limits.enabled or not newest:
        return look
    for pool in pools:
        look.running[pool] = RunningJobs()
        for job, run in _running(pool, ports):
            look.running[pool] += _look_at(job, run, newest, ports, limits, look)
    return look


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


def _look_at(
    job: Job, run: Run, newest: Mapping[str, Heartbeat], ports: Ports, limits: SlowJobs, look: TrainingLook
) -> RunningJobs:
    """Return the job, counted. What is not heard of may be what is wrong, and silence is another fault: until then it
    stays as it was judged last.
    """
    now = ports.clock()
    fresh = {node_id: beat for node_id, beat in newest.items() if not beat.is_missed(now)}
    accelerators = job.accelerators * len(run.tasks)
    trainings, known = trainings_of(run, fresh), ports.job_findings.of(job.job_id, run.number)
    if any(task.node_id not in fresh for task in run.tasks):
        is_wrong = any(each.is_open for each in known)
        return count_job(accelerators, is_shown=bool(trainings), has_findings=is_wrong)
    seconds_up = (now - (run.running_since or now)).total_seconds()
    findings = job_findings(job, run, trainings, seconds_up, limits)
    if _note(job, run, findings, known, ports):
        look.announced.append(job.job_id)
    return count_job(accelerators, is_shown=bool(trainings), has_findings=bool(findings))


def _note(job: Job, run: Run, findings: Sequence[JobFinding], known: Sequence[NotedFinding], ports: Ports) -> bool:
    """Whether its owner was told of something. The email comes first: one sent again is folded by its key."""
    now = ports.clock()
    changes = noted(findings, known, now)
    for change in changes:
        ports.job_findings.note(change)
    to_tell = due(findings, [*known, *changes], now)
    for each in to_tell:
        if job.owner is not None:
            ports.notifier.announce(JOB_NEWS, compose_training(job, run, each, job.owner))
        ports.job_findings.note(replace(each, announced_at=now))
    return bool(to_tell)
