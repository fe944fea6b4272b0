"""Have all nodes of a gang say what they see at the job's checkpoint directory, before its first start.

A directory that is not shared is noticed by nobody else: every rank writes its part to a disk of its own, and the
restart finds no whole checkpoint. What the nodes say is judged at the step's next call. Who says nothing in time (an
older agent, a file system that hangs) holds nobody up.
"""

from datetime import timedelta

from nodeheal.contract.health_event import CheckpointFound, Sight
from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.vocabulary import JobState, JobStep, Next, Outcome, Trouble, Verdict
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import CheckAnswer, DirectoryLook, Job
from nodeheal.domain.jobs.shared_directory import SharedDirectory, is_shared
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.ports.storage import Wait
from nodeheal.services.jobs.job_steps import end_of_job, job_result, job_token, request_id_of, save_job, stop_if_wanted
from nodeheal.services.jobs.judge_checks import DIRECTORY, choose_others, open_incident
from nodeheal.services.orders import REFUSED, Orders
from nodeheal.services.steps import node_of, where_to_look

SIGHTS = Orders("job_sights", "sight", "sight_command")
ANSWER_SECONDS = 55  # the state machine waits 60
AGAIN_SECONDS = 35  # before the second look: clients of NFS believe for half a minute what they have seen of a folder
_FIRST, _SECOND = 0, 1  # the step's calls that ask; the one after the second judges, whatever was heard
_SILENT = "no answer in time"


def see_directory(request: JobRequest, job: Job, ports: Ports, policy: RecoveryPolicy) -> bool:
    """Whether this call of the step was about that: the nodes were asked, or do not share it. Else a search may begin.

    What nobody can tell is noted with the job, and does not keep it from starting.
    """
    if not _is_due(request):
        return False
    if request.searches == _FIRST:
        _ask_all(request, job, 0, ports)
        return True
    SIGHTS.end(_question_key(request, request.searches - 1), ports)
    found = is_shared(job.checkpoints.directory if job.checkpoints else "", _sights(request, ports))
    save_job(ports, job.job_id, directory_seen=found.told)
    if found.verdict is not Verdict.FAILED:
        return False
    if request.searches == _SECOND:
        _ask_all(request, job, AGAIN_SECONDS, ports)
        return True
    stopped = stop_if_wanted(request, JobStep.FIND_CHECKPOINT, job, ports)
    ports.workflows.resume(job_token(request), stopped or _refused(request, job, found, ports, policy))
    return True


def looks_before(request: JobRequest, job: Job, ports: Ports) -> int:
    """How many of the step's calls were about the directory, and no search."""
    if not _is_due(request):
        return 0
    again = {_order_id(request, _SECOND, rank) for rank in range(len(request.nodes))}
    return 2 if any(answer.request_id in again for answer in ports.job_notes.answers(job.job_id)) else 1


def take_sight(event: CheckpointFound, ports: Ports) -> None:
    """A node has said what it sees, or why it cannot tell."""
    order = SIGHTS.find(event.request_id, event.node_id, event.boot_id, ports)
    if order is None:
        return
    if event.sight is None:
        SIGHTS.take(order, Outcome.UNKNOWN, event.reason or "it did not say what it sees", ports)
        return
    SIGHTS.take(order, Outcome.DONE, event.sight.model_dump_json(), ports)


def take_sight_refusal(command_id: str, ports: Ports) -> None:
    """A node refused the command or could not run it: no answer will come."""
    SIGHTS.take_refusal(command_id, ports, f"{REFUSED}; agents do that which are older than this look")


def _is_due(request: JobRequest) -> bool:
    return len(request.nodes) > 1


def _ask_all(request: JobRequest, job: Job, after: int, ports: Ports) -> None:
    """Send the commands, each once. Resumes when all have answered: the step is called again, and judges."""
    all_in = job_result(request, JobStep.FIND_CHECKPOINT, Next.LAUNCH, "all nodes have said what they see", ports)
    orders = {_order_id(request, request.searches, rank): name for rank, name in enumerate(request.nodes)}
    wait = Wait(
        SIGHTS.question,
        _question_key(request, request.searches),
        job_token(request),
        job.job_id,
        ports.clock() + timedelta(seconds=ANSWER_SECONDS),
        outstanding=frozenset(orders),
        result_json=all_in.model_copy(update={"facts": where_to_look(job)}).model_dump_json(),
    )
    for order_id in sorted(SIGHTS.ask(wait, ports)):
        _ask(order_id, node_of(orders[order_id], ports), job, wait, after, ports)
    SIGHTS.strike_what_came_meanwhile(wait, ports)


def _ask(order_id: str, node: Node, job: Job, wait: Wait, after: int, ports: Ports) -> None:
    assert job.checkpoints is not None
    look = DirectoryLook(job.checkpoints, sight_after=after)
    SIGHTS.give(wait, order_id, node, lambda name: ports.find_checkpoint(node, look, name, wait.deadline_at), ports)


def _sights(request: JobRequest, ports: Ports) -> dict[str, Sight | str]:
    """What each node has seen, the last time that it could say; or why it could not."""
    answers = {answer.request_id: answer for answer in ports.job_notes.answers(request.job_id)}
    told: dict[str, Sight | str] = {}
    for rank, name in enumerate(request.nodes):
        said = [answers.get(_order_id(request, look, rank)) for look in (_SECOND, _FIRST)]
        seen = next((one for one in said if one is not None and one.outcome is Outcome.DONE), None)
        silent = next((one.reason for one in said if one is not None), _SILENT)
        told[name] = Sight.model_validate_json(seen.reason) if seen is not None else silent
    return told


def _refused(request: JobRequest, job: Job, found: SharedDirectory, ports: Ports, policy: RecoveryPolicy) -> JobResult:
    """Who stands out becomes a human's, and others are chosen. Where nobody does, the job's file is wrong."""
    save_job(ports, job.job_id, summary=found.told)
    if not found.accused:
        why = f"{found.told}. checkpoints.directory must be on a file system that all its nodes share"
        return end_of_job(request, JobStep.FIND_CHECKPOINT, JobState.FAILED, why, ports, Trouble.DIRECTORY_NOT_SHARED)
    for name in found.accused:
        node = node_of(name, ports)
        unclear = CheckAnswer(request_id_of(request), name, node.boot_id, Outcome.UNKNOWN, found.told, ports.clock())
        ports.job_notes.note_answer(job.job_id, unclear)
        open_incident(node, DIRECTORY, Verdict.UNKNOWN, found.told, unclear.at, request, ports, policy)
    return choose_others(request, found.told, ports)


def _question_key(request: JobRequest, look: int) -> str:
    return f"{request_id_of(request)}-{look}"


def _order_id(request: JobRequest, look: int, rank: int) -> str:
    """Names one node's part to it and back. It begins otherwise than what a round has found of a node, and so excludes
    nobody."""
    return f"sight-{_question_key(request, look)}-{rank:04d}"
