"""Put a run on record and start its ranks: all of them, or none."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from nodeheal.contract.names import JOB_VARIABLE, PROGRESS_VARIABLE, RUN_VARIABLE, progress_file
from nodeheal.contract.vocabulary import JobState
from nodeheal.domain.errors import NotAccepted, PlacementRefused
from nodeheal.domain.faults.diagnosis import was_fault_of_job
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.early_end import NEVER_STARTED
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.saving import change_run, node_of
from nodeheal.services.steps import save_node


def record_run(job: Job, nodes: Sequence[Node], why: str, ports: Ports) -> Run:
    """Write the run, then point the job and its nodes at it: what is started is always on record first."""
    number, orphans = _next_number(job, why, ports)
    placements = ports.launcher_for(job).placements_of(nodes)
    tasks = tuple(
        GangTask(node.node_id, rank, node.boot_id, placements[node.node_id].name, asked_at=ports.clock())
        for rank, node in enumerate(nodes)
    )
    checkpoint = job.found
    run = Run(
        job.job_id,
        number,
        ports.clock(),
        why,
        tasks,
        resumed_from=checkpoint.path if checkpoint else "",
        resumed_step=checkpoint.step if checkpoint else None,
        resumed_written_at=checkpoint.written_at if checkpoint else None,
        submission=job.submission,
    )
    known = ports.jobs.get_run(job.job_id, number)
    if known is None and not ports.jobs.save_run(run):
        raise NotAccepted(f"run {number} of {job.job_id} is being recorded elsewhere")
    if not ports.jobs.save(replace(job, current_run=number, state=JobState.RUNNING, held_at=None)):
        raise NotAccepted(f"job {job.job_id} is being written by others")
    for orphan in orphans:  # the call that recorded it cannot start it any more, because the job points to another run
        ports.jobs.save_run(written_off(orphan))
    return known or replace(run, version=1)


def _next_number(job: Job, why: str, ports: Ports) -> tuple[int, list[Run]]:
    """The number of the next run, and the runs before it that were recorded by calls that crashed right after that."""
    number, orphans = job.current_run + 1, []
    while (known := ports.jobs.get_run(job.job_id, number)) is not None and known.why != why:
        orphans.append(known)
        number += 1
    return number, orphans


def written_off(run: Run) -> Run:
    """Ends the ranks that were never started, of a recorded run that its job does not point at: the run would look
    alive without end."""
    return replace(
        run,
        tasks=tuple(t if t.task_id else replace(t, status="STOPPED", stop_reason=NEVER_STARTED) for t in run.tasks),
    )


def job_of_others(node: Node, job_id: str, ports: Ports) -> str:
    """The job that the node has, or is claimed for, and that is not this one; empty: none that is not over."""
    for name in (node.job_id, node.claimed_by):
        other = ports.jobs.get(name) if name not in (None, job_id) else None
        if other is not None and not other.is_over:
            return other.job_id
    return ""


def start_ranks(job: Job, run: Run, ports: Ports, policy: RecoveryPolicy) -> None:
    """Start all ranks or none: a rank that is refused takes the others down again. Raises PlacementRefused.

    The nodes are marked first: one that is about to train must not be anybody's spare. A node that has another job by
    its own record is refused, whatever the run says.
    """
    nodes = [node_of(task.node_id, ports) for task in run.tasks]
    for node in nodes:
        if other := job_of_others(node, job.job_id, ports):
            raise PlacementRefused(f"{node.node_id} has {other}")
    for node in nodes:
        # What the last run's faults settled is settled for that run: the next one's are news.
        settled = {
            fault: by for fault, by in node.resolved_faults.items() if not was_fault_of_job(fault, policy, node.pool)
        }
        save_node(ports, node, job_id=job.job_id, job_run=run.number, resolved_faults=settled)
    master = node_of(run.tasks[0].node_id, ports)
    started: list[str] = []
    # A call that is repeated after a crash must find what the first one started: the scheduler starts a rank twice.
    there = {} if all(task.task_id for task in run.tasks) else ports.launcher_for(job).find_ranks(job, run)
    for task in run.tasks:
        if task.task_id:  # an earlier call started it; it may even have stopped since
            started.append(task.task_id)
            continue
        environment = {
            **job.environment,
            JOB_VARIABLE: job.job_id,
            RUN_VARIABLE: str(run.number),
            **_resume_hint(job, run),
            PROGRESS_VARIABLE: progress_file(job.job_id, run.number, job.hang_seconds),
            # One task a node: for launchers that start a process for each accelerator, ranks are those of nodes.
            "RANK": str(task.rank),
            "NODE_RANK": str(task.rank),
            "WORLD_SIZE": str(len(run.tasks)),
            "NNODES": str(len(run.tasks)),
            "NPROC_PER_NODE": str(max(1, job.accelerators)),
            "MASTER_ADDR": master.address,
            "MASTER_PORT": str(job.master_port),
        }
        try:
            # Refused by a call that crashed before it stopped the others; or given up by another call.
            if task.has_stopped and task.placement not in there:
                raise PlacementRefused(f"rank {task.rank} on {task.node_id} was refused before")
            started.append(there.get(task.placement) or ports.launcher_for(job).start_rank(job, run, task, environment))
            _note_task_id(run, task.rank, started[-1], ports)
        except PlacementRefused:
            # First of all: a call that is repeated must not go on with a run whose ranks are being stopped.
            _write_off(run.job_id, run.number, ports)
            begun = [replace(each, task_id=task_id) for each, task_id in zip(run.tasks, started, strict=False)]
            stop_tasks(job, run, begun, f"nodeheal: rank {task.rank} of the gang was refused", ports)
            raise


def stop_tasks(job: Job, run: Run, ranks: Sequence[GangTask], reason: str, ports: Ports) -> None:
    """Asks the tasks of these ranks to end. A task that the scheduler knows as another run's is left alone."""
    launcher, begun = ports.launcher_for(job), [task for task in ranks if task.task_id]
    for task in launcher.confirm_ranks(job, run, begun) if begun else ():
        launcher.stop_rank(job.cluster, task.task_id, reason)


def _resume_hint(job: Job, run: Run) -> dict[str, str]:
    """Where to go on, as the container sees it, for programs that do not search for themselves."""
    if not run.resumed_from:
        return {}
    path = PurePosixPath(run.resumed_from)
    if job.checkpoints is not None and job.checkpoints_inside and path.is_relative_to(job.checkpoints.directory):
        path = PurePosixPath(job.checkpoints_inside) / path.relative_to(job.checkpoints.directory)
    step = {} if run.resumed_step is None else {"NODEHEAL_RESUME_STEP": str(run.resumed_step)}
    return {"NODEHEAL_RESUME_FROM": str(path), **step}


def abandon(job: Job, number: int, ports: Ports) -> None:
    """Ends a refused run: its ranks that were never started are over."""
    _write_off(job.job_id, number, ports)
    stored = ports.jobs.get(job.job_id)
    if stored is not None and not stored.is_over:
        ports.jobs.save(replace(stored, state=JobState.STOPPED))


def _write_off(job_id: str, number: int, ports: Ports) -> None:
    """None of its ranks is started any more."""
    run = ports.jobs.get_run(job_id, number)
    if run is not None:
        change_run(run, ports, written_off)


def find_unnoted(job: Job, run: Run, ports: Ports) -> Run:
    """The run as the scheduler knows it, where a crash came between the start of a rank and the note of it: a rank that
    is there gets its id, one that is not was never started. Only for a run that nobody starts any more."""
    return _as_found(job, run, ports, written_off)


def note_started(job: Job, run: Run, ports: Ports) -> Run:
    """The same for a run that somebody may still be starting: a rank that is not there may be, in a moment."""
    if all(task.task_id for task in run.tasks):
        return run
    return _as_found(job, run, ports, lambda known: known)


def _as_found(job: Job, run: Run, ports: Ports, concluded: Callable[[Run], Run]) -> Run:
    def found(stored: Run) -> Run:
        if all(task.task_id or task.has_stopped for task in stored.tasks):
            return stored
        there = ports.launcher_for(job).find_ranks(job, stored)
        tasks = [
            t if t.task_id or t.has_stopped else replace(t, task_id=there.get(t.placement, "")) for t in stored.tasks
        ]
        return concluded(replace(stored, tasks=tuple(tasks)))

    return change_run(run, ports, found)


def _note_task_id(run: Run, rank: int, task_id: str, ports: Ports) -> None:
    """Raises PlacementRefused where the run was given up while this rank was being started: it has begun all the same,
    is on record as one that may write until its end is told, and is to be stopped."""
    given_up: list[GangTask] = []

    def noted(stored: Run) -> Run:
        task = next(t for t in stored.tasks if t.rank == rank)
        given_up[:] = [task] if task.has_stopped and task.task_id != task_id else []
        if task.task_id == task_id:
            return stored
        return stored.with_task(replace(task, task_id=task_id, status="PENDING", stop_reason=""))

    change_run(run, ports, noted)
    for task in given_up:
        raise PlacementRefused(f"run {run.number} was given up while rank {rank} on {task.node_id} was started")
