"""Start the first run of a submission, on the nodes that were chosen and proven for it."""

from dataclasses import replace
from datetime import timedelta

from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.vocabulary import JobState, JobStep, Next, Outcome, Trouble
from nodeheal.domain.errors import NotFound, PlacementRefused
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.ports.storage import Wait
from nodeheal.services.jobs.job_nodes import free_nodes, release_claims
from nodeheal.services.jobs.job_steps import (
    DEADLINES,
    job_of_request,
    job_result,
    job_token,
    request_id_of,
    save_job,
    stop_if_wanted,
)
from nodeheal.services.jobs.launch_gang import GANG_RUNNING, strike_what_runs_already
from nodeheal.services.jobs.start_gang import abandon, record_run, start_ranks
from nodeheal.services.jobs.stop_gang import current_run, left_of, run_key
from nodeheal.services.steps import node_of


def launch_job(request: JobRequest, ports: Ports, policy: RecoveryPolicy) -> None:
    """Start every rank, or none. Resumes when all run; with CHOOSE where a node is not what it was when it was chosen.

    Nothing starts while a rank of an earlier run may still be writing checkpoints.
    """
    job, token = job_of_request(request, ports), job_token(request)
    stopped = stop_if_wanted(request, JobStep.LAUNCH, job, ports)
    if stopped is not None:
        ports.workflows.resume(token, stopped)
        return
    _, run = current_run(job.job_id, ports)
    if run is None or run.why != _why(request):  # else this very step has launched it before
        refusal = _why_not(request, job, run, ports)
        if refusal is not None:
            release_claims(job, ports, also=request.nodes)
            ports.workflows.resume(token, refusal)
            return
        nodes = [node_of(name, ports) for name in request.nodes]
        run = record_run(job, nodes, _why(request), ports)
        job = replace(job, current_run=run.number, state=JobState.RUNNING)
    _start(request, job, run, ports, policy)


def _start(request: JobRequest, job: Job, run: Run, ports: Ports, policy: RecoveryPolicy) -> None:
    wait = _store_wait(request, job, run, ports)
    try:
        start_ranks(job, run, ports, policy)
    except (PlacementRefused, NotFound) as refusal:
        ports.waits.drop(wait)
        abandon(job, run.number, ports)
        free_nodes(replace(job, current_run=0), request.nodes, ports)
        ports.workflows.resume(wait.token, _again(request, str(refusal), ports))
        return
    release_claims(job, ports, also=request.nodes)
    save_job(ports, job.job_id, summary=f"run {run.number} is starting on {', '.join(request.nodes)}")
    strike_what_runs_already(wait, job, run.number, ports)


def _why(request: JobRequest) -> str:
    """Names the launch of this round: the run that it made is known by it."""
    return f"run_job {request_id_of(request)}"


def _why_not(request: JobRequest, job: Job, last: Run | None, ports: Ports) -> JobResult | None:
    """Where it goes instead of starting; None: nothing is in the way."""
    alive = [f"rank {t.rank} on {t.node_id}" for t in (left_of(job, last, ports) if last else ())]
    if alive:
        told = f"{', '.join(alive)} of the run before may still be writing checkpoints"
        refused = job_result(request, JobStep.LAUNCH, Next.STOP, told, ports, Outcome.REFUSED)
        known = {"ending": JobState.FAILED, "trouble": Trouble.RANKS_LEFT, "run": last.number if last else None}
        return refused.model_copy(update=known)
    unfit = [why for name in request.nodes if (why := _why_unfit(node_of(name, ports), job))]
    return _again(request, "; ".join(unfit), ports) if unfit else None


def _why_unfit(node: Node, job: Job) -> str:
    """What has become of the node since it was chosen; empty: nothing."""
    if node.claimed_by != job.job_id:
        return f"{node.node_id} is not claimed for {job.job_id} any more"
    if node.state in OUT_OF_SERVICE or node.open_incident is not None:
        return f"{node.node_id} has incident {node.open_incident}"
    return ""


def _again(request: JobRequest, why: str, ports: Ports) -> JobResult:
    chosen_anew = job_result(request, JobStep.LAUNCH, Next.CHOOSE, f"{why}: other nodes are chosen", ports)
    return chosen_anew.model_copy(update={"outcome": Outcome.REFUSED, "nodes": ()})


def _store_wait(request: JobRequest, job: Job, run: Run, ports: Ports) -> Wait:
    started = job_result(request, JobStep.LAUNCH, Next.WATCH, f"all ranks of run {run.number} run", ports)
    wait = Wait(
        kind=GANG_RUNNING,
        key=run_key(job.job_id, run.number),
        token=job_token(request),
        incident_id=request_id_of(request),
        deadline_at=ports.clock() + timedelta(seconds=DEADLINES[Next.LAUNCH]),
        outstanding=frozenset(task.placement for task in run.tasks),
        result_json=started.model_copy(update={"run": run.number}).model_dump_json(),
    )
    ports.waits.save(wait)
    return wait
