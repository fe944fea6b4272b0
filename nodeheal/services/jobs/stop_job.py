"""Stop what still runs of a job: because a person wants it, because it cannot go on, or to look at its nodes."""

from datetime import timedelta

from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.vocabulary import JobStep, Next
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.ports import Ports
from nodeheal.ports.storage import Wait
from nodeheal.services.jobs.job_steps import DEADLINES, job_of_request, job_result, job_token, request_id_of
from nodeheal.services.jobs.start_gang import find_unnoted
from nodeheal.services.jobs.stop_gang import GANG_STOPPED, await_end, may_write, stop_key, strike_stopped

STOP_REASON = 255  # characters that ECS keeps of one


def stop_job(request: JobRequest, ports: Ports) -> None:
    """Ask every rank to end, each with its own grace. Resumes when all have stopped: then END, or CHECK where the job
    has not ended. Safe to repeat."""
    job, token = job_of_request(request, ports), job_token(request)
    then = Next.END if request.ending is not None else Next.CHECK
    done = job_result(request, JobStep.STOP, then, request.reason or "the gang has stopped", ports)
    runs = [find_unnoted(job, run, ports) for run in ports.jobs.runs(job.job_id)]
    run = next((run for run in runs if run.number == job.current_run), None)
    nodes = tuple(task.node_id for task in run.tasks) if run else request.nodes
    if then is Next.CHECK:
        done = done.model_copy(update={"deadline_seconds": job.preflight.seconds})
    done = done.model_copy(update={"nodes": nodes, "run": run.number if run else None, **_of_the_end(request)})
    alive = [task for task in run.tasks if may_write(task, ports)] if run else []
    if run is None or not alive:
        ports.workflows.resume(token, done)
        return
    who = request_id_of(request)
    wait = Wait(
        kind=GANG_STOPPED,
        key=stop_key(job.job_id, run.number, who),
        token=token,
        incident_id=who,
        deadline_at=ports.clock() + timedelta(seconds=DEADLINES[Next.STOP]),
        outstanding=frozenset(task.placement for task in alive),
        result_json=done.model_dump_json(),
    )
    ports.waits.save(wait)
    await_end(run, who, ports)
    for task in alive:
        _stop(job, run, task, request, ports)
    strike_stopped(wait, job, run.number, ports)


def _of_the_end(request: JobRequest) -> dict[str, object]:
    """What the end must know of why it ends."""
    last = request.last
    return {"ending": last.ending, "trouble": last.trouble, "incident_id": last.incident_id} if last else {}


def _stop(job: Job, run: Run, task: GangTask, request: JobRequest, ports: Ports) -> None:
    why = request.reason or f"run {run.number} is over"
    ports.scheduler_for(job).stop_rank(job.cluster, task.task_id, f"nodeheal: {why}"[:STOP_REASON])
