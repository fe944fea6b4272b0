"""Asks all nodes of a gang what they see at the job's checkpoint directory, before its first start.

Nothing else notices a directory that is not shared: every rank writes its part to its own disk, and the restart finds
no whole checkpoint. The step's next call judges the answers. A node that does not answer in time (an older agent, a
file system that hangs) delays nothing.
"""

from nodeheal.contract.health_event import Sight
from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.vocabulary import JobState, JobStep, Outcome, Trouble, Verdict
from nodeheal.domain.jobs.job import CheckAnswer, Job
from nodeheal.domain.jobs.shared_directory import SharedDirectory, is_shared
from nodeheal.domain.operation import Operation
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.operations import fan_out
from nodeheal.operations.handler import VerbContext
from nodeheal.operations.look_at_directory import ask_all, question_of, sight_of
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_steps import end_of_job, job_token, request_id_of, save_job, stop_if_wanted
from nodeheal.services.jobs.judge_checks import DIRECTORY, choose_others, open_incident
from nodeheal.services.saving import node_of

AGAIN_SECONDS = 35  # before the second look: clients of NFS believe for half a minute what they have seen of a folder
_FIRST, _SECOND = 0, 1  # the step's calls that ask; the one after the second judges, whatever was heard
_SILENT = "no answer in time"


def see_directory(request: JobRequest, job: Job, ports: Ports, policy: RecoveryPolicy) -> bool:
    """Whether this call of the step was about that: the nodes were asked, or do not share it. Else a search may begin.

    Missing answers are noted with the job, and do not keep it from starting.
    """
    if not _is_due(request):
        return False
    if request.searches == _FIRST:
        ask_all(request, job, 0, VerbContext(ports))
        return True
    fan_out.stop_waiting(_look(request, request.searches - 1, ports), ports)
    directory = is_shared(job.checkpoints.directory if job.checkpoints else "", _sights(request, ports))
    save_job(
        ports, job.job_id, directory_seen=directory.reason, directory_in_doubt=directory.verdict is Verdict.UNKNOWN
    )
    if directory.verdict is not Verdict.FAILED:
        return False
    if request.searches == _SECOND:
        ask_all(request, job, AGAIN_SECONDS, VerbContext(ports))
        return True
    stopped = stop_if_wanted(request, JobStep.FIND_CHECKPOINT, job, ports)
    ports.workflows.resume(job_token(request), stopped or _refused(request, job, directory, ports, policy))
    return True


def looks_before(request: JobRequest, ports: Ports) -> int:
    """How many of the step's calls were about the directory, and no search."""
    if not _is_due(request):
        return 0
    return 1 if _look(request, _SECOND, ports) is None else 2


def _is_due(request: JobRequest) -> bool:
    return len(request.nodes) > 1


def _look(request: JobRequest, number: int, ports: Ports) -> Operation | None:
    return fan_out.find(request, question_of(number), ports)


def _sights(request: JobRequest, ports: Ports) -> dict[str, Sight | str]:
    """Returns the last answer of each node, or why it is missing."""
    looks = [_look(request, number, ports) for number in (_SECOND, _FIRST) if number < request.searches]
    answers: dict[str, Sight | str] = {}
    for name in request.nodes:
        sights = [sight for look in looks if (sight := sight_of(look, name, ports)) is not None]
        answers[name] = next((sight for sight in sights if isinstance(sight, Sight)), sights[0] if sights else _SILENT)
    return answers


def _refused(
    request: JobRequest, job: Job, directory: SharedDirectory, ports: Ports, policy: RecoveryPolicy
) -> JobResult:
    """Hands nodes that differ to a human, and has others chosen. If none differs, the job's file is wrong."""
    save_job(ports, job.job_id, summary=directory.reason)
    if not directory.accused:
        why = f"{directory.reason}. checkpoints.directory must be on a file system that all its nodes share"
        return end_of_job(request, JobStep.FIND_CHECKPOINT, JobState.FAILED, why, ports, Trouble.DIRECTORY_NOT_SHARED)
    for name in directory.accused:
        node = node_of(name, ports)
        unclear = CheckAnswer(
            request_id_of(request), name, node.boot_id, Outcome.UNKNOWN, directory.reason, ports.clock()
        )
        ports.job_notes.note_answer(job.job_id, unclear)
        open_incident(node, DIRECTORY, Verdict.UNKNOWN, directory.reason, unclear.at, request, ports, policy)
    return choose_others(request, directory.reason, ports)
