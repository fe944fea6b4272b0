"""Looks at how every run trains, notes what is wrong, and tells its owner. Where the policy says so, it opens an
incident, which starts the job again. A node is touched for it only where its own checks measure that it slows the job.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import JOB_NEWS, JOB_SOURCE, TRAINING_DIVERGED, TRAINING_HANG, TRAINING_SLOWED
from nodeheal.contract.training import NodeTraining
from nodeheal.contract.vocabulary import Family, JobFindingKind, Verdict
from nodeheal.domain.fleet.liveness import Heartbeat
from nodeheal.domain.fleet.pool import RunningJobs, count_job
from nodeheal.domain.jobs.job import Divergence, Job, Run
from nodeheal.domain.jobs.job_findings import JobFinding, NotedFinding, due, first_distrusted, job_findings, noted
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.intake.finding_about import finding_about
from nodeheal.services.intake.hangs import job_and_run
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.intake.node_rates import limited
from nodeheal.services.jobs.job_steps import save_job
from nodeheal.services.notify.compose_training import compose_training
from nodeheal.services.saving import node_of

_CODES = {
    JobFindingKind.LOSS_NOT_FINITE: TRAINING_DIVERGED,
    JobFindingKind.SLOW_RANK: TRAINING_SLOWED,
}


@dataclass
class TrainingLook:
    """What a look has come to. `announced`: jobs whose owner was told; `running`: the jobs of each pool, counted."""

    announced: list[str] = field(default_factory=list)
    running: dict[str, RunningJobs] = field(default_factory=dict)


def look_at_training(
    pools: Sequence[str], newest: Mapping[str, Heartbeat], ports: Ports, policy: RecoveryPolicy
) -> TrainingLook:
    """Look at all running jobs. Safe to repeat: a finding is told once a run. Without heartbeats nothing is known:
    nobody is told anything, and nothing is counted.
    """
    look = TrainingLook()
    if not policy.slow_jobs.enabled or not newest:
        return look
    for pool in pools:
        look.running[pool] = RunningJobs()
        for job, run in _running(pool, ports):
            look.running[pool] += _look_at(job, run, newest, ports, policy, look)
    return look


def look_at_alert(event: HealthEvent, ports: Ports, policy: RecoveryPolicy) -> None:
    """Look at the run that stands still on a node, and need not wait for the sweep. Of its nodes only the first counts:
    all of them report the same, and each look reads the heartbeats of all.
    """
    if policy.slow_jobs.enabled and policy.silence.enabled:
        limited(partial(_look_at_first, policy=policy))(event, ports)


def _look_at_first(event: HealthEvent, ports: Ports, policy: RecoveryPolicy) -> None:
    job_id, _ = job_and_run(event)
    job = ports.jobs.get(job_id) if job_id else None
    run = _current_run(job, ports) if job is not None else None
    if job is not None and run is not None and run.tasks[0].node_id == event.node_id:
        newest = ports.heartbeats.of([task.node_id for task in run.tasks])
        _look_at(job, run, newest, ports, policy, TrainingLook())


def trainings_of(run: Run, newest: Mapping[str, Heartbeat]) -> dict[str, NodeTraining]:
    """Return what the heartbeats of a run's nodes say of it, by node."""
    name = f"{run.job_id}/{run.number}"
    beats = {task.node_id: newest[task.node_id] for task in run.tasks if task.node_id in newest}
    return {node_id: beat.trainings[name] for node_id, beat in beats.items() if name in beat.trainings}


def _running(pool: str, ports: Ports) -> Iterator[tuple[Job, Run]]:
    for job in ports.job_notes.in_pool(pool, live_only=True):
        run = _current_run(job, ports)
        if run is not None:
            yield job, run


def _current_run(job: Job, ports: Ports) -> Run | None:
    """Return the run that is under way on all of its nodes; None: there is none."""
    run = ports.jobs.get_run(job.job_id, job.current_run) if job.current_run and not job.is_over else None
    return run if run is not None and run.is_running else None


def _look_at(
    job: Job, run: Run, newest: Mapping[str, Heartbeat], ports: Ports, policy: RecoveryPolicy, look: TrainingLook
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
    findings = job_findings(
        job, run, trainings, seconds_up, policy.slow_jobs, all_said=_all_said(run, fresh, trainings, now)
    )
    if _note(job, run, findings, known, trainings, ports, policy):
        look.announced.append(job.job_id)
    return count_job(accelerators, is_shown=bool(trainings), has_findings=bool(findings))


def _all_said(run: Run, newest: Mapping[str, Heartbeat], trainings: Mapping[str, NodeTraining], now: datetime) -> bool:
    """Whether each node of the run shows it, or shows nothing of it since the last step: one whose heartbeat is older
    may train, or hang, as well.
    """
    steps = [
        min(newest[node_id].at, now) - timedelta(seconds=training.idle_seconds or 0.0)
        for node_id, training in trainings.items()
    ]
    others = [newest[task.node_id].at for task in run.tasks if task.node_id not in trainings]
    return not steps or not others or min(others) >= max(steps)


def _note(
    job: Job,
    run: Run,
    findings: Sequence[JobFinding],
    known: Sequence[NotedFinding],
    trainings: Mapping[str, NodeTraining],
    ports: Ports,
    policy: RecoveryPolicy,
) -> bool:
    """Whether its owner was told of something. What is done and said comes before the note of it: done again, it is the
    same incident and the same email.
    """
    now = ports.clock()
    changes = noted(findings, known, now)
    for change in changes:
        ports.job_findings.note(change)
    to_tell = due(findings, [*known, *changes], now)
    for each in to_tell:
        restarts = each.finding.kind in policy.slow_jobs.restarts and _may_restart(job, run, each, trainings, ports)
        if restarts:
            _open_incident(run, each, _likeliest(run, each.finding, trainings), ports, policy)
        if job.owner is not None:
            ports.notifier.announce(JOB_NEWS, compose_training(job, run, each, job.owner, restarts=restarts))
        ports.job_findings.note(replace(each, announced_at=now))
    return bool(to_tell)


def _may_restart(job: Job, run: Run, noted: NotedFinding, trainings: Mapping[str, NodeTraining], ports: Ports) -> bool:
    """Whether it is known where to go back to; where its loss is no number, that is written down first. And of a slow
    rank, whether its node is proven to be slow.
    """
    if noted.finding.kind is JobFindingKind.SLOW_RANK:
        return noted.finding.proven is not None
    if noted.finding.kind is not JobFindingKind.LOSS_NOT_FINITE:
        return True
    step = first_distrusted(job, run, list(trainings.values())) if job.checkpoints is not None else None
    if step is not None:
        save_job(ports, job.job_id, diverged=Divergence(run.number, step))
    return step is not None


def _likeliest(run: Run, finding: JobFinding, trainings: Mapping[str, NodeTraining]) -> str:
    """Return the node that is the likeliest to show why: one that is proven slow, of a rank for which the others wait,
    or the first that shows a loss that is no number, else the one that has done the fewest steps, else the first. Where
    it is not proven, its stacks are saved, and that is all that is done to it.
    """
    if finding.proven is not None:
        return finding.proven.node_id
    if finding.suspects:
        return finding.suspects[0].node_id
    if finding.kind is JobFindingKind.LOSS_NOT_FINITE:
        lost = [node_id for node_id, training in trainings.items() if training.has_lost_its_loss]
        return lost[0]
    steps = {task.node_id: trainings[task.node_id].step for task in run.tasks if task.node_id in trainings}
    return min(steps, key=lambda node_id: steps[node_id], default=run.tasks[0].node_id)


def _open_incident(run: Run, noted: NotedFinding, node_id: str, ports: Ports, policy: RecoveryPolicy) -> None:
    """As if the node had reported it: its incident starts the job again, and is the same when this is done again."""
    name = f"{run.job_id}/{run.number}"
    event = finding_about(
        node_of(node_id, ports),
        sha256(f"{name}|{noted.finding.kind}".encode()).hexdigest()[:32],
        noted.since,
        source=JOB_SOURCE,
        family=Family.host,
        code=_CODES.get(noted.finding.kind, TRAINING_HANG),
        component=name,
        verdict=Verdict.FAILED,
        evidence=f"{name}: {noted.finding.text}",
    )
    ingest(event, ports, policy)
