"""Ask a node of the gang where the job can go on: at its newest checkpoint that is whole.

It is a hint and no more. A node that cannot tell costs the hint of one node; where nobody can, the job starts without.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import islice

from nodeheal.contract.health_event import CheckpointFound
from nodeheal.contract.job_spec import Checkpoints
from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.names import progress_file
from nodeheal.contract.results import CheckpointSearch, StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import JobStep, Next, Outcome
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import ABSENT, OUT_OF_SERVICE, Node
from nodeheal.domain.jobs.job import DirectoryLook, FoundCheckpoint, Job
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.incident import TimelineEntry
from nodeheal.ports import Ports, Wait
from nodeheal.services import job_steps, run_diagnostics
from nodeheal.services.job_nodes import stand_ins
from nodeheal.services.job_steps import job_of_request, job_result, job_token, save_job
from nodeheal.services.request_ids import named_at_random, request_id_of_wait, wait_for_answer
from nodeheal.services.see_directory import looks_before, see_directory
from nodeheal.services.send_command import name_command
from nodeheal.services.steps import read_result, result_of, resume, token_of
from nodeheal.services.stop_gang import current_run, is_newer_than_fault

CHECKPOINT, CHECKPOINT_COMMAND = "checkpoint", "checkpoint_command"
NODES_ASKED = 3
ANSWER_SECONDS = 55  # the state machines wait 60; a node that still looks then says so itself
_NO_WORK = OUT_OF_SERVICE | ABSENT


def find_checkpoint(request: StepRequest | JobRequest, ports: Ports, policy: RecoveryPolicy) -> None:
    """Ask the next node, once. Resumes with DONE when there is an answer or nobody to ask, else with UNKNOWN.

    Before the first start of a job all its nodes are asked whether they see one directory: see_directory.
    """
    job, nodes = _whom_to_ask(request, ports)
    if job is None or job.checkpoints is None:
        _resume_at_once(request, Outcome.DONE, "there is no checkpoint to look for", ports)
        return
    if request.searches == 0 and job.found is not None:
        job = save_job(ports, job.job_id, found=None)  # what was the newest then need not be now
    if isinstance(request, JobRequest) and see_directory(request, job, ports, policy):
        return
    before = looks_before(request, job, ports) if isinstance(request, JobRequest) else 0
    node = next(islice(nodes, request.searches - before, NODES_ASKED), None)
    if node is None:
        why = f"no other node can be asked where {job.job_id} goes on: it starts without being told"
        _resume_at_once(request, Outcome.DONE, why, ports)
        return
    _ask(node, job, request, ports)


def take_checkpoint(event: CheckpointFound, ports: Ports) -> None:
    """A node has answered: keep what it has found, and go on. What it cannot tell, another is asked."""
    wait = wait_for_answer(CHECKPOINT, event.request_id, ports)
    blank = read_result(wait) if wait is not None and wait.boot_id == event.boot_id else None
    if wait is None or blank is None or not isinstance(blank.facts, CheckpointSearch):
        return
    if blank.facts.node_id != event.node_id:
        return
    job = ports.jobs.get(blank.facts.job_id)
    if job is None or job.checkpoints is None:
        return
    why = event.reason or _why_not_believed(event, job.checkpoints.directory)
    if why:
        _answer(wait, Outcome.UNKNOWN, f"{event.node_id} could not tell where {job.job_id} goes on: {why}", ports)
        return
    looked_at = ports.clock()
    found = FoundCheckpoint(event.path, event.step, looked_at, event.skipped, event.written_at) if event.path else None
    save_job(ports, job.job_id, found=found)
    _note_last_step(job, event.last_step, ports)
    _answer(wait, Outcome.DONE, _told(event, job), ports)


def _note_last_step(job: Job, step: int | None, ports: Ports) -> None:
    """How far its last run had come. Lost to another writer, it is only not known."""
    run = ports.jobs.get_run(job.job_id, job.current_run)
    if run is not None and step is not None:
        ports.jobs.save_run(replace(run, last_step=step))


def take_search_refusal(command_id: str, ports: Ports) -> None:
    """The node refused the command or could not run it: no answer will come."""
    sent = ports.waits.get(CHECKPOINT_COMMAND, command_id)
    wait = ports.waits.get(*sent.twin) if sent is not None and sent.twin is not None else None
    if wait is not None:
        search = read_result(wait).facts
        asked = search.node_id if isinstance(search, CheckpointSearch) else "the node"
        _answer(wait, Outcome.UNKNOWN, f"{asked} refused to look for checkpoints, or could not run it", ports)


def _whom_to_ask(request: StepRequest | JobRequest, ports: Ports) -> tuple[Job | None, Iterator[Node]]:
    """The job, and the nodes that may know, the likeliest first. No job: there is nothing to look for."""
    if isinstance(request, JobRequest):
        return job_of_request(request, ports), _in_service(request.nodes, ports)
    job, run = current_run(request.decision.job_id, ports)
    if job is None or run is None or job.is_over or is_newer_than_fault(run, request, ports):
        return None, iter(())
    broken = ports.incidents.incident(request.incident_id).node_id
    peers = [task.node_id for task in run.tasks if task.node_id != broken]
    # The spare in the broken node's place, or that node itself, which is healed then; at last any that has room.
    others = [request.decision.node_id, *(node.node_id for node in stand_ins(job, ports)[:1])]
    return job, _in_service(tuple(dict.fromkeys([*peers, *others])), ports)


def _in_service(names: tuple[str, ...], ports: Ports) -> Iterator[Node]:
    for name in names:
        node = ports.nodes.get(name)
        if node is not None and node.state not in _NO_WORK:
            yield node


def _ask(node: Node, job: Job, request: StepRequest | JobRequest, ports: Ports) -> None:
    """Store the wait, send, and keep the command's id with it. A repeated call sends nothing again."""
    wait = _wait(node, job, request, ports)
    known = ports.waits.get(CHECKPOINT, wait.key)
    if known is not None and known.command_id and known.boot_id == wait.boot_id:
        ports.waits.save(replace(known, token=wait.token))
        name_command(replace(known, token=wait.token), CHECKPOINT_COMMAND, known.command_id, ports)
        return
    wait = named_at_random(wait, known)
    ports.waits.save(wait)
    assert job.checkpoints is not None
    try:
        command_id = ports.find_checkpoint(
            node, _look(job, job.checkpoints), request_id_of_wait(wait), wait.deadline_at
        )
    except NotFound as gone:
        _answer(wait, Outcome.UNKNOWN, str(gone), ports)
        return
    name_command(wait, CHECKPOINT_COMMAND, command_id, ports)


def _look(job: Job, where: Checkpoints) -> DirectoryLook:
    """Beside the checkpoint, the steps of the run that has ended: what it had done tells what is lost."""
    if job.hang_seconds is None or not job.current_run:
        return DirectoryLook(where)
    file = progress_file(job.job_id, job.current_run, job.hang_seconds)
    return DirectoryLook(where, file.rpartition("/")[2])


def _wait(node: Node, job: Job, request: StepRequest | JobRequest, ports: Ports) -> Wait:
    """The wait, with a result to fill in that knows the node and the job."""
    assert job.checkpoints is not None
    search = CheckpointSearch(directory=job.checkpoints.directory, node_id=node.node_id, job_id=job.job_id)
    blank = _result(request, Outcome.UNKNOWN, "no answer yet", ports).model_copy(update={"facts": search})
    return Wait(
        CHECKPOINT,
        f"{_request_id(request)}-c{request.searches}",
        _token(request),
        job.job_id if isinstance(request, JobRequest) else request.incident_id,
        ports.clock() + timedelta(seconds=ANSWER_SECONDS),
        boot_id=node.boot_id,
        result_json=blank.model_dump_json(),
    )


def _answer(wait: Wait, outcome: Outcome, reason: str, ports: Ports) -> None:
    """Put it on the incident's timeline, or into the job's summary, and resume."""
    blank = read_result(wait)
    is_sure = outcome is Outcome.DONE
    facts = None if is_sure else blank.facts  # with the directory in it: another node is asked
    if isinstance(blank, StepResult):
        entry = TimelineEntry(ports.clock(), "progress", f"checkpoint-{wait.key}", reason)
        ports.incidents.append(wait.incident_id, entry)
    else:
        save_job(ports, blank.job_id, summary=reason)
    known = {"outcome": outcome, "reason": reason, "facts": facts, "finished_at": ports.clock()}
    resume(ports, wait, blank.model_copy(update=known))


def _resume_at_once(request: StepRequest | JobRequest, outcome: Outcome, reason: str, ports: Ports) -> None:
    ports.workflows.resume(_token(request), _result(request, outcome, reason, ports))


def _why_not_believed(event: CheckpointFound, directory: str) -> str:
    """A node names what a job is told to load: nothing outside of the job's own directory."""
    is_inside = event.path is None or event.path == directory or event.path.startswith(f"{directory.rstrip('/')}/")
    return "" if is_inside and ".." not in (event.path or "").split("/") else f"{event.path} is not in {directory}"


def _told(event: CheckpointFound, job: Job) -> str:
    step = "" if event.step is None else f", step {event.step}"
    found = f"{job.job_id} goes on from {event.path}{step}" if event.path else f"no checkpoint of {job.job_id} is whole"
    skipped = f"; skipped: {'; '.join(event.skipped)}" if event.skipped else ""
    return f"{found}, as {event.node_id} sees it{skipped}"


def _result(request: StepRequest | JobRequest, outcome: Outcome, reason: str, ports: Ports) -> StepResult | JobResult:
    if isinstance(request, JobRequest):
        return job_result(request, JobStep.FIND_CHECKPOINT, Next.LAUNCH, reason, ports, outcome)
    return result_of(request, ports, outcome, reason)


def _request_id(request: StepRequest | JobRequest) -> str:
    if isinstance(request, JobRequest):
        return job_steps.request_id_of(request)
    return run_diagnostics.request_id_of(request)


def _token(request: StepRequest | JobRequest) -> str:
    return job_token(request) if isinstance(request, JobRequest) else token_of(request)
