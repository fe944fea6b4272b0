"""LAUNCH_JOB: the first run of a submission is started, on the nodes that were chosen and proven for it."""

from dataclasses import replace
from datetime import datetime

from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.vocabulary import JobState, JobStep, Next, Outcome, Trouble, VerbName
from nodeheal.domain.errors import NotFound, PlacementRefused
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node
from nodeheal.domain.jobs.early_end import ended_early, words_of
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.operation import Operation
from nodeheal.operations.gang import GangFacts, has_started, note, owner_of, read_gang, where_they_are
from nodeheal.operations.handler import Handler, VerbContext
from nodeheal.operations.record import plan_job_step, start_waiting
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_nodes import free_nodes, release_claims
from nodeheal.services.jobs.job_steps import (
    DEADLINES,
    job_of_request,
    job_step_result,
    request_id_of,
    save_job,
    stop_if_wanted,
)
from nodeheal.services.jobs.runs import current_run, left_of
from nodeheal.services.jobs.start_gang import abandon, record_run, start_ranks
from nodeheal.services.saving import node_of


def plan(request: JobRequest, ports: Ports) -> Operation:
    """The operation of this round."""
    seconds = DEADLINES[Next.LAUNCH]
    return plan_job_step(request, ports, VerbName.LAUNCH_JOB, owner_of(request), suffix="-launch", seconds=seconds)


def _start(operation: Operation, world: VerbContext) -> Operation | JobResult:
    """Start every rank, or none; CHOOSE where a node is not what it was when it was chosen.

    Nothing starts while a rank of an earlier run may still be writing checkpoints.
    """
    ports, request = world.ports, operation.job_request
    job = job_of_request(request, ports)
    stopped = stop_if_wanted(request, JobStep.LAUNCH, job, ports)
    if stopped is not None:
        return stopped
    _, run = current_run(job.job_id, ports)
    if run is None or run.why != _why(request):  # else this very step has launched it before
        refusal = _why_not(request, job, run, ports)
        if refusal is not None:
            release_claims(job, ports, also=request.nodes)
            return refusal
        nodes = [node_of(name, ports) for name in request.nodes]
        run = record_run(job, nodes, _why(request), ports)
        job = replace(job, current_run=run.number, state=JobState.RUNNING)
    operation = note(operation, ports, run=run.number)
    try:
        start_ranks(job, run, ports, world.policy)
    except (PlacementRefused, NotFound) as refusal:
        abandon(job, run.number, ports)
        free_nodes(replace(job, current_run=0), request.nodes, ports)
        return _again(request, str(refusal), ports.clock())
    release_claims(job, ports, also=request.nodes)
    starting = f"run {run.number} is starting on {', '.join(request.nodes)}"
    save_job(ports, job.job_id, summary=starting, run_said_to_start=run.number)
    return start_waiting(operation, ports)


def _observe(operation: Operation, facts: GangFacts) -> JobResult | None:
    request = operation.job_request
    run = facts.run if facts.run is not None and facts.run.why == _why(request) else None
    if run is None:
        return None
    dead = ended_early(run)
    if dead:
        why = words_of(dead[0])
        return job_step_result(request, facts.now, JobStep.LAUNCH, Next.ATTRIBUTE, why, Outcome.FAILED, run=run.number)
    if has_started(run):
        why = f"all ranks of run {run.number} run"
        return job_step_result(request, facts.now, JobStep.LAUNCH, Next.WATCH, why, run=run.number)
    return None


def _why(request: JobRequest) -> str:
    """Names the launch of this round: the run that it made is known by it."""
    return f"run_job {request_id_of(request)}"


def _why_not(request: JobRequest, job: Job, last: Run | None, ports: Ports) -> JobResult | None:
    """Where it goes instead of starting; None: nothing is in the way."""
    alive = left_of(job, last, ports) if last else []
    if alive:
        why = f"{where_they_are(alive)} of the run before may still be writing checkpoints"
        known = {"ending": JobState.FAILED, "trouble": Trouble.RANKS_LEFT, "run": last.number if last else None}
        return job_step_result(request, ports.clock(), JobStep.LAUNCH, Next.STOP, why, Outcome.REFUSED, **known)
    unfit = [why for name in request.nodes if (why := _why_unfit(node_of(name, ports), job))]
    return _again(request, "; ".join(unfit), ports.clock()) if unfit else None


def _why_unfit(node: Node, job: Job) -> str:
    """Returns what makes the node unfit since it was chosen. Empty: it is fit."""
    if node.claimed_by != job.job_id:
        return f"{node.node_id} is not claimed for {job.job_id} any more"
    if node.state in OUT_OF_SERVICE or node.open_incident is not None:
        return f"{node.node_id} has incident {node.open_incident}"
    return ""


def _again(request: JobRequest, why: str, now: datetime) -> JobResult:
    why = f"{why}: other nodes are chosen"
    return job_step_result(request, now, JobStep.LAUNCH, Next.CHOOSE, why, Outcome.REFUSED, nodes=())


HANDLER = Handler(_start, _observe, read_gang, may_repeat=True)
