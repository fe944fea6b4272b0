"""FIND_CHECKPOINT: a node looks for the newest whole checkpoint of a job, and its answer ends the operation.

The answer is only a hint. If a node cannot tell, only its hint is missing.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from math import ceil

from nodeheal.contract.health_event import CheckpointFound, Frozen
from nodeheal.contract.job_spec import Checkpoints
from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.names import progress_file
from nodeheal.contract.results import CheckpointSearch, StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import JobStep, Next, Outcome, VerbName
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import Divergence, FoundCheckpoint, Job
from nodeheal.domain.operation import Operation, node_owner
from nodeheal.domain.recovery.timeline import TimelineEntry
from nodeheal.operations.handler import Answers, Handler, OperationFacts, Result, VerbContext, read_time, step_result
from nodeheal.operations.record import plan_job_step, plan_step, send_command
from nodeheal.ports import Ports
from nodeheal.ports.commands import Command
from nodeheal.services.jobs.job_steps import job_step_result, save_job
from nodeheal.services.saving import node_of

ANSWER_SECONDS = 55  # the state machines wait 60; a node that still looks then says so itself


class _Record(Frozen):
    """Where the node was asked to look. A node names what a job is told to load: nothing outside of this counts.

    `after_run`: the job's last run, if it had ended by then. Nothing writes there until the next one. What was written
    before `distrusted_until`, from `distrusted_step` on, is not to be loaded.
    """

    directory: str
    job_id: str
    after_run: int = 0
    distrusted_step: int | None = None
    distrusted_until: datetime | None = None

    def may_load(self, event: CheckpointFound) -> bool:
        """Whether the job may go on from what the node has found."""
        if event.path is None or self.distrusted_step is None or self.distrusted_until is None:
            return True
        is_older = event.step is not None and event.step < self.distrusted_step
        return is_older or (event.written_at is not None and event.written_at >= self.distrusted_until)


def plan(request: StepRequest | JobRequest, node: Node, job: Job, ports: Ports) -> Operation:
    """The operation of this search, of this node."""
    assert job.checkpoints is not None
    owner, suffix = node_owner(node.node_id), f"-c{request.searches}"
    if isinstance(request, JobRequest):
        planned = plan_job_step(request, ports, VerbName.FIND_CHECKPOINT, owner, suffix=suffix, seconds=ANSWER_SECONDS)
    else:
        planned = plan_step(request, ports, VerbName.FIND_CHECKPOINT, owner, suffix=suffix, seconds=ANSWER_SECONDS)
    last = ports.jobs.get_run(job.job_id, job.current_run)
    after_run = last.number if last is not None and last.has_ended else 0
    record = _Record(
        directory=job.checkpoints.directory,
        job_id=job.job_id,
        after_run=after_run,
        distrusted_step=job.diverged.step if job.diverged else None,
        distrusted_until=_end_of(job.diverged, job, ports) if job.diverged else None,
    )
    return replace(planned, node_id=node.node_id, boot_id=node.boot_id, data_json=record.model_dump_json())


def _end_of(diverged: Divergence, job: Job, ports: Ports) -> datetime:
    """When the run after it was started, whose checkpoints are good again. Tomorrow, where there is none yet: a file
    system's clock may be ahead, and what is saved while the run is stopped is no better.
    """
    later = ports.jobs.get_run(job.job_id, diverged.run + 1)
    return later.started_at if later is not None else ports.clock() + timedelta(days=1)


def _start(operation: Operation, world: VerbContext) -> Operation | Result:
    ports = world.ports
    job = ports.jobs.get(_record(operation).job_id)
    if job is None or job.checkpoints is None:
        return _result(operation, ports.clock(), Outcome.DONE, "there is no checkpoint to look for")
    node, file = node_of(operation.node_id, ports), _progress_file(job)
    try:
        wanted = command(job.checkpoints, **file, **_distrusted(_record(operation)))
        return send_command(operation, node, wanted, operation.deadline_at, ports)
    except NotFound as gone:
        return _result(operation, ports.clock(), Outcome.UNKNOWN, str(gone))


def command(where: Checkpoints, **more: str) -> Command:
    """Returns the command that lists a job's checkpoint directory. `more`: optional parameters."""
    return Command("find-checkpoint", {"Directory": where.directory, "Format": where.format.value, **more})


def _progress_file(job: Job) -> dict[str, str]:
    """Beside the checkpoint, the steps of the run that has ended: what it had done tells what is lost."""
    if not job.current_run:
        return {}
    file = progress_file(job.job_id, job.current_run, job.hang_seconds)
    return {"Progress": file.rpartition("/")[2]}


def _distrusted(record: _Record) -> dict[str, str]:
    if record.distrusted_step is None or record.distrusted_until is None:
        return {}
    until = ceil(record.distrusted_until.timestamp())  # the node must leave out all that is refused here
    return {"DistrustedStep": str(record.distrusted_step), "DistrustedUntil": str(until)}


def _observe(operation: Operation, facts: OperationFacts) -> Result | None:
    record = _record(operation)
    if operation.answer_json:
        event = CheckpointFound.model_validate_json(operation.answer_json)
        why = event.reason or _why_not_believed(event, record)
        if why:
            message = f"{event.node_id} could not tell where {record.job_id} goes on: {why}"
            return _result(operation, facts.now, Outcome.UNKNOWN, message)
        return _result(operation, facts.now, Outcome.DONE, _message(event, record.job_id))
    if operation.has_command_failed:
        why = f"{operation.node_id} refused to look for checkpoints, or could not run it"
        return _result(operation, facts.now, Outcome.UNKNOWN, why)
    return _result(operation, facts.now, Outcome.UNKNOWN, "no answer yet") if facts.is_final else None


def _why_not_believed(event: CheckpointFound, record: _Record) -> str:
    if not record.may_load(event):
        return f"{event.path} was written when its loss was not a number: the agent there is too old to leave it out"
    directory = record.directory
    is_inside = event.path is None or event.path == directory or event.path.startswith(f"{directory.rstrip('/')}/")
    return "" if is_inside and ".." not in (event.path or "").split("/") else f"{event.path} is not in {directory}"


def _message(event: CheckpointFound, job_id: str) -> str:
    step = "" if event.step is None else f", step {event.step}"
    none = "no checkpoint is whole" if event.skipped else "there is no checkpoint yet"
    text = f"{job_id} goes on from {event.path}{step}" if event.path else f"{job_id} starts from its beginning: {none}"
    skipped = f"; skipped: {'; '.join(event.skipped)}" if event.skipped else ""
    return f"{text}, as {event.node_id} sees it{skipped}"


def _result(operation: Operation, now: datetime, outcome: Outcome, reason: str) -> Result:
    """Returns the result. It has the directory if no checkpoint is known yet: the step then asks another node."""
    request, record = operation.request, _record(operation)
    is_sure = outcome is Outcome.DONE
    facts = (
        None
        if is_sure
        else CheckpointSearch(directory=record.directory, node_id=operation.node_id, job_id=record.job_id)
    )
    if isinstance(request, StepRequest):
        return step_result(operation, now, outcome, reason, facts=facts)
    return job_step_result(request, now, JobStep.FIND_CHECKPOINT, Next.LAUNCH, reason, outcome, facts=facts)


def _settle(operation: Operation, result: Result, ports: Ports) -> None:
    """Stores the checkpoint, and adds it to the incident's timeline or the job's summary."""
    record = _record(operation)
    if operation.answer_json and result.outcome is Outcome.DONE:
        event, looked_at = CheckpointFound.model_validate_json(operation.answer_json), ports.clock()
        checkpoint = None
        if event.path:
            known = event.path, event.step, looked_at, event.skipped, event.written_at
            checkpoint = FoundCheckpoint(*known, after_run=record.after_run)
        job = save_job(ports, record.job_id, found=checkpoint)
        _note_last_step(job, event.last_step, ports)
    if isinstance(result, StepResult):
        entry = TimelineEntry(ports.clock(), f"checkpoint-{operation.operation_id}", result.reason)
        ports.incidents.append(operation.incident_id, entry)
    else:
        save_job(ports, record.job_id, summary=result.reason)


def _note_last_step(job: Job, step: int | None, ports: Ports) -> None:
    """Stores how far the last run had come. If another writer wins, it stays unknown."""
    run = ports.jobs.get_run(job.job_id, job.current_run)
    if run is not None and step is not None:
        ports.jobs.save_run(replace(run, last_step=step))


def _record(operation: Operation) -> _Record:
    return _Record.model_validate_json(operation.data_json)


ANSWERS = Answers(CheckpointFound)
HANDLER = Handler(_start, _observe, read_time, settle=_settle, answers=ANSWERS, is_half_of_step=True)
