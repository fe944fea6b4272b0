"""One wait for the gang, from run to run: it resumes when the job has ended, or nobody is bringing it back."""

from datetime import timedelta

from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.vocabulary import Awaited, JobState, JobStep, Next, Outcome
from nodeheal.domain.jobs.gang import RunStatus, ending_text, first_end, first_failure, run_status
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.ports import Ports
from nodeheal.ports.storage import Wait
from nodeheal.services.jobs.job_steps import DEADLINES, job_of_request, job_result, job_token, request_id_of, save_job
from nodeheal.services.jobs.runs import current_run
from nodeheal.services.notify.notify_job_lifecycle import notify_of_start
from nodeheal.services.steps import resume

JOB_WATCH = "job_watch"


def watch_gang(request: JobRequest, ports: Ports) -> None:
    """Store the wait. Whatever happens to the job's ranks, or to an incident of the job, calls `tell_watch`."""
    job = job_of_request(request, ports)
    blank = job_result(request, JobStep.WATCH, Next.ATTRIBUTE, "nothing has happened yet", ports)
    ports.waits.save(
        Wait(
            JOB_WATCH,
            job.job_id,
            job_token(request),
            request_id_of(request),
            ports.clock() + timedelta(seconds=DEADLINES[Next.WATCH]),
            result_json=blank.model_dump_json(),
        )
    )
    if job.state is JobState.RUNNING:
        lost = notify_of_start(job, ports)
        save_job(ports, job.job_id, summary=f"run {job.current_run} is under way{lost}")
    tell_watch(job.job_id, ports)  # what happened before the wait was stored has told nobody


def tell_watch(job_id: str | None, ports: Ports) -> None:
    """Something has happened to the job: resume its workflow, if that concerns it."""
    wait = ports.waits.get(JOB_WATCH, job_id) if job_id else None
    job, run = current_run(job_id, ports) if wait is not None else (None, None)
    if wait is None or job is None:
        return
    blank = JobResult.model_validate_json(wait.result_json)
    found = what_became(job, run, blank, ports)
    held = why_held(job, run, ports) if found is not None and found.then is Next.ATTRIBUTE else ""
    if held:
        _hold(job, held, ports)
    elif found is not None:
        resume(ports, wait, found.model_copy(update={"finished_at": ports.clock()}))


def why_held(job: Job, run: Run | None, ports: Ports) -> str:
    """Why a failure is not seen to yet: a human has asked for hands off, for a time. Empty: nothing holds it."""
    broke = first_failure(run) if run is not None and run_status(run) is RunStatus.FAILED else None
    if broke is None or broke.never_ran:
        return ""
    now, node = ports.clock(), ports.nodes.get(broke.task.node_id)
    held = ports.pools.get(job.pool).why_paused(now)
    if not held and node is not None and node.is_paused(now):
        held = f"{node.node_id} is paused until {node.paused_until:%Y-%m-%d %H:%M} UTC ({node.paused_why})"
    return f"waits for the end of a pause, and is seen to then: {held}; {broke.words}" if held else ""


def _hold(job: Job, held: str, ports: Ports) -> None:
    """Say it once. The sweep asks again, until the pause is over."""
    if job.summary != held or job.held_at is None:
        save_job(ports, job.job_id, summary=held, held_at=ports.clock())


def what_became(job: Job, run: Run | None, blank: JobResult, ports: Ports) -> JobResult | None:
    """What the job's workflow has to see to; None: nothing, it runs or is being brought back."""
    nodes = tuple(task.node_id for task in run.tasks) if run else ()
    known = {"run": run.number if run else None, "nodes": nodes, "deadline_seconds": DEADLINES[Next.STOP]}
    if job.stop_wanted:
        told = f"stopped by a person: {job.stop_wanted}"
        return blank.model_copy(update={**known, "then": Next.STOP, "ending": JobState.CANCELLED, "reason": told})
    if run is None:
        return None
    match run_status(run):
        case RunStatus.UNDER_WAY:
            return None
        case RunStatus.SUCCEEDED:
            done = {"then": Next.END, "ending": JobState.COMPLETED, "reason": ending_text(run)}
            return blank.model_copy(update={**known, **done})
        case RunStatus.STOPPED_BY_A_PERSON:
            told = stopped_by_a_person(run)
            return blank.model_copy(update={**known, "then": Next.STOP, "ending": JobState.CANCELLED, "reason": told})
        case _ if at_work(job, run, ports):
            return None
    failed = f"run {run.number} has failed, and nobody is bringing it back yet"
    return blank.model_copy(update={**known, "then": Next.ATTRIBUTE, "outcome": Outcome.FAILED, "reason": failed})


def stopped_by_a_person(run: Run) -> str:
    """Which rank was stopped, in words: a wish, against which nothing is started."""
    task = first_end(run)
    assert task is not None
    return f"rank {task.rank} on {task.node_id} was stopped by somebody else ({task.stop_reason[:200]})"


def at_work(job: Job, run: Run, ports: Ports) -> str | None:
    """The open incident of the gang's nodes that may bring the job back; None: there is none."""
    found = (ports.nodes.get(task.node_id) for task in run.tasks)
    names = dict.fromkeys(node.open_incident for node in found if node is not None and node.open_incident)
    return next((str(name) for name in names if _may_bring_back(str(name), job, ports)), None)


def _may_bring_back(incident_id: str, job: Job, ports: Ports) -> bool:
    history = ports.incidents.history(incident_id)
    if not history.incident.is_under_way or history.incident.job_id != job.job_id:
        return False
    last = history.turns[-1].decision if history.turns else None
    # One that waits for the job to end is woken by that, and heals its node: the job is not its business.
    return last is None or last.awaits is not Awaited.JOB_END
