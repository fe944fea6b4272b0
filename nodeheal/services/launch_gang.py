"""Start every rank of a training job, on nodes that are named, and know when all of them run."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from nodeheal.contract.steps import StepRequest, StepResult
from nodeheal.contract.vocabulary import JobState, NextRung, NodeState, Outcome
from nodeheal.domain.case import read_case
from nodeheal.domain.diagnosis import dealt_with_the_job
from nodeheal.domain.errors import NotAccepted, NotFound, PlacementRefused
from nodeheal.domain.incident import JOB_LEFT, TimelineEntry
from nodeheal.domain.job import GangTask, Job, Run
from nodeheal.domain.node import OUT_OF_SERVICE, Node
from nodeheal.domain.policy import RecoveryPolicy
from nodeheal.domain.progress import read_progress
from nodeheal.ports import Ports, Wait
from nodeheal.services.reserve_attempt import refund_attempt
from nodeheal.services.steps import SAVE_TRIES, node_of, result_of, resume_if_complete, save_node, tell, token_of
from nodeheal.services.stop_gang import current_run, is_newer_than_fault, may_write, run_key

GANG_RUNNING = "gang_running"
LEFT_TO = "left_to"  # evidence of a refusal: the incident that will bring the job back


def submit_job(job: Job, nodes: Sequence[Node], ports: Ports, policy: RecoveryPolicy | None = None) -> Run:
    """Record a new job and start its first run. Raises PlacementRefused as `launch` does.

    Raises ValueError if it exists, or if a node is kept as a spare: those are for jobs that run already.
    """
    spares = [node.node_id for node in nodes if node.is_spare]
    if spares:
        raise ValueError(f"job {job.job_id} cannot begin on {', '.join(spares)}: kept as a spare")
    if not ports.jobs.save(job):
        raise ValueError(f"job {job.job_id} exists already")
    run = _record_run(replace(job, version=1), nodes, "submitted", ports)
    _start(replace(job, version=1), run, ports, policy or RecoveryPolicy())
    return run


def launch_gang(request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> None:
    """Start the job's next run, the broken node's place taken by its spare. Resumes when all ranks run.

    Nothing starts while a rank of the last run may still be writing checkpoints.
    """
    token = token_of(request)
    job, last = current_run(request.decision.job_id, ports)
    if job is None or last is None:
        _refuse(request, ports, f"no record of job {request.decision.job_id}")
        return
    if job.state is JobState.COMPLETED:
        done = result_of(request, ports, Outcome.DONE, f"{job.job_id} has finished; there is nothing to restart")
        ports.workflows.resume(token, done)
        return
    if is_newer_than_fault(last, request, ports):
        done = result_of(request, ports, Outcome.DONE, f"{job.job_id} was relaunched since, as run {last.number}")
        ports.workflows.resume(token, done)
        return
    if last.why != launch_id(request):  # else this very step has launched it before: carry on with that run
        alive = [f"rank {task.rank} on {task.node_id}" for task in last.tasks if may_write(task, ports)]
        if alive:
            _refuse(request, ports, f"{', '.join(alive)} of run {last.number} may still be writing checkpoints")
            return
        nodes = _nodes_for(request, last, ports, policy)
        unfit = [(node, why) for node in nodes if (why := _why_unfit(node, request, ports, policy))]
        if unfit:
            why = "; ".join(why for _, why in unfit)
            refund_attempt(request, ports)  # nothing was started
            _refuse(request, ports, why, _left_to(request, [node for node, _ in unfit], ports))
            return
        last = _record_run(job, nodes, launch_id(request), ports)
        job = replace(job, current_run=last.number)
    dead = [f"rank {task.rank} on {task.node_id}" for task in last.tasks if task.has_stopped]
    if dead:
        _refuse(request, ports, f"{', '.join(dead)} stopped while the gang was starting")
        return
    wait = _store_wait(request, job, last, token, ports)
    where = ", ".join(f"rank {task.rank} on {task.node_id}" for task in last.tasks)
    tell(request, ports, "launched", f"launching {job.job_id} as run {last.number}: {where}")
    try:
        _start(job, last, ports, policy)
    except (PlacementRefused, NotFound) as refusal:
        ports.waits.drop(wait)
        _abandon(job, last.number, ports)
        _refuse(request, ports, str(refusal))
        return
    _strike_what_runs_already(wait, job, last.number, ports)


def launch_id(request: StepRequest) -> str:
    """Names the launch of this turn: the run that it made is known by it."""
    return f"{request.incident_id}/{request.turn}"


def _refuse(request: StepRequest, ports: Ports, why: str, evidence: dict[str, str] | None = None) -> None:
    ports.workflows.resume(token_of(request), result_of(request, ports, Outcome.REFUSED, why, evidence=evidence))


def _left_to(request: StepRequest, unfit: Sequence[Node], ports: Ports) -> dict[str, str]:
    """Who brings the job back instead: the last of its nodes to be healed. Nothing, where one of them has nobody."""
    incidents = [node.open_incident for node in unfit]
    heads = [ports.incidents.history(name).incident for name in incidents if name is not None]
    if len(heads) < len(unfit) or any(head.ending is not None or head.job_id is None for head in heads):
        return {}
    heir, job = heads[-1].incident_id, request.decision.job_id
    told = f"{job} is left to this incident by {request.incident_id}: it is down until this one brings it back"
    left = TimelineEntry(ports.clock(), "progress", f"{JOB_LEFT}{request.incident_id}", told)
    ports.incidents.append(heir, left)
    return {LEFT_TO: heir}


def _why_unfit(node: Node, request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> str:
    """What speaks against placing a rank here: the node is out of service, or has a fault of its own to be healed."""
    if node.state in {*OUT_OF_SERVICE, NodeState.RETIRED, NodeState.ENROLLED}:
        return f"{node.node_id} is {node.state}"
    if node.open_incident in (None, request.incident_id):
        return ""
    fault = read_case(ports.incidents.history(str(node.open_incident)), policy).fault
    if node.good_since is not None and node.good_since >= fault.alike[-1].observed_at:
        return ""  # it has passed its diagnostics since, and is back already
    # What lets a job finish first lets it start again first, too.
    is_in_the_way = fault.touches_the_node and fault.next_rung is not NextRung.job_end
    return f"{node.node_id} has {fault.title}" if is_in_the_way else ""


def _nodes_for(request: StepRequest, last: Run, ports: Ports, policy: RecoveryPolicy) -> list[Node]:
    """The nodes of the last run, in rank order, with the spare in the broken node's place."""
    history = ports.incidents.history(request.incident_id)
    spare, broken = read_progress(history, policy).replacement, history.incident.node_id
    names = [spare if spare and task.node_id == broken else task.node_id for task in last.tasks]
    return [node_of(name, ports) for name in names]


def _record_run(job: Job, nodes: Sequence[Node], why: str, ports: Ports) -> Run:
    """Write the run, then point the job and its nodes at it: what is started is always on record first."""
    number = job.current_run + 1
    tasks = tuple(
        GangTask(node.node_id, rank, node.boot_id, ports.scheduler.look(node).placement)
        for rank, node in enumerate(nodes)
    )
    run = Run(job.job_id, number, ports.clock(), why, tasks)
    known = ports.jobs.get_run(job.job_id, number)
    if known is None and not ports.jobs.save_run(run):
        raise NotAccepted(f"run {number} of {job.job_id} is being recorded elsewhere")
    if known is not None and known.why != why:
        raise NotAccepted(f"run {number} of {job.job_id} was launched for another reason: {known.why}")
    if not ports.jobs.save(replace(job, current_run=number, state=JobState.RUNNING)):
        raise NotAccepted(f"job {job.job_id} is being written by others")
    return known or replace(run, version=1)


def _store_wait(request: StepRequest, job: Job, run: Run, token: str, ports: Ports) -> Wait:
    reason = f"{job.job_id} restarted from its last checkpoint, as run {run.number}"
    done: StepResult = result_of(request, ports, Outcome.DONE, reason)
    wait = Wait(
        kind=GANG_RUNNING,
        key=run_key(job.job_id, run.number),
        token=token,
        incident_id=request.incident_id,
        deadline_at=ports.clock() + timedelta(seconds=request.decision.deadline_seconds),
        outstanding=frozenset(task.placement for task in run.tasks),
        result_json=done.model_dump_json(),
    )
    ports.waits.save(wait)
    return wait


def _start(job: Job, run: Run, ports: Ports, policy: RecoveryPolicy) -> None:
    """Start all ranks or none: a rank that is refused takes the others down again.

    The nodes are marked first: one that is about to train must not be anybody's spare.
    """
    for task in run.tasks:
        node = node_of(task.node_id, ports)
        # What the last run's faults settled is settled for that run: the next one's are news.
        settled = {fault: by for fault, by in node.settled.items() if not dealt_with_the_job(fault, policy, node.pool)}
        save_node(ports, node, job_id=job.job_id, settled=settled)
    master = node_of(run.tasks[0].node_id, ports)
    started: list[str] = []
    for task in run.tasks:
        if task.task_id:  # an earlier call started it; it may even have stopped since
            started.append(task.task_id)
            continue
        environment = {
            **job.environment,
            "NODEHEAL_JOB": job.job_id,
            "NODEHEAL_RUN": str(run.number),
            "RANK": str(task.rank),
            "WORLD_SIZE": str(len(run.tasks)),
            "MASTER_ADDR": master.address,
            "MASTER_PORT": str(job.master_port),
        }
        try:
            started.append(ports.scheduler.start(job, run, task, environment))
        except PlacementRefused:
            for task_id in started:
                ports.scheduler.stop(job.cluster, task_id, f"nodeheal: rank {task.rank} of the gang was refused")
            raise
        _note_task_id(run, task.rank, started[-1], ports)


def _abandon(job: Job, number: int, ports: Ports) -> None:
    """A run that was refused: what was never started is over, so that it does not look alive for ever."""
    for _ in range(SAVE_TRIES):
        run = ports.jobs.get_run(job.job_id, number)
        if run is None:
            return
        over = tuple(t if t.task_id else replace(t, status="STOPPED", stop_reason="never started") for t in run.tasks)
        if ports.jobs.save_run(replace(run, tasks=over)):
            break
    stored = ports.jobs.get(job.job_id)
    if stored is not None:
        ports.jobs.save(replace(stored, state=JobState.STOPPED))


def _note_task_id(run: Run, rank: int, task_id: str, ports: Ports) -> None:
    for _ in range(SAVE_TRIES):
        stored = ports.jobs.get_run(run.job_id, run.number) or run
        task = next(t for t in stored.tasks if t.rank == rank)
        if task.task_id == task_id or ports.jobs.save_run(stored.with_task(replace(task, task_id=task_id))):
            return
    raise NotAccepted(f"run {run.number} of {run.job_id} is being written by others")


def _strike_what_runs_already(wait: Wait, job: Job, number: int, ports: Ports) -> None:
    """A rank that ran before the wait was stored has struck nothing: do it now."""
    run = ports.jobs.get_run(job.job_id, number)
    left: Wait | None = wait
    for task in run.tasks if run else ():
        if task.status == "RUNNING":
            left = ports.waits.strike(wait.kind, wait.key, task.placement)
    resume_if_complete(ports, left)
