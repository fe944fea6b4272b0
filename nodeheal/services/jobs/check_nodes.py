"""Have all nodes of a gang run their diagnostics at once, and let the last answer resume the job.

Every answer is kept by itself: nodes that answer in the same moment do not write over one another.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from nodeheal.contract.health_event import DiagnosticsFinished
from nodeheal.contract.job_spec import LEAST_LEVEL
from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.results import Diagnosed, StepResult
from nodeheal.contract.vocabulary import JobStep, Next, Outcome
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.humanize import counted
from nodeheal.domain.jobs.job import CheckAnswer, Job
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.evidence import Diagnosis
from nodeheal.operations.diagnose import DiagnosisAnswer, judge, note_good_run
from nodeheal.ports import Ports
from nodeheal.ports.storage import Wait
from nodeheal.services.jobs.job_nodes import job_checks_due
from nodeheal.services.jobs.job_steps import job_of_request, job_result, job_token, request_id_of, save_job
from nodeheal.services.jobs.try_pairs import try_pairs
from nodeheal.services.orders import REFUSED, name_command
from nodeheal.services.request_ids import named_at_random, request_id_of_wait, wait_for_answer
from nodeheal.services.steps import no_diagnosis_yet, node_of, resume_if_complete

JOB_CHECK = "job_check"
JOB_ORDER = "job_order"
JOB_COMMAND = "job_command"


def check_nodes(request: JobRequest, ports: Ports, policy: RecoveryPolicy) -> None:
    """Send the commands, each once. Resumes when all have answered; the judging comes after, at the deadline too."""
    job = job_of_request(request, ports)
    if request.is_of_pairs:
        try_pairs(request, job, ports, policy)
        return
    nodes = due_nodes(request, job, ports)
    all_in = job_result(request, JobStep.CHECK, Next.CHECK, f"{counted(len(nodes), 'node')} answered", ports)
    deadline = ports.clock() + timedelta(seconds=job.preflight.seconds)
    wait = Wait(
        JOB_CHECK,
        request_id_of(request),
        job_token(request),
        job.job_id,
        deadline,
        outstanding=frozenset(node.node_id for node in nodes),
        result_json=all_in.model_dump_json(),
    )
    wait = named_at_random(wait, ports.waits.get(JOB_CHECK, wait.key))
    ports.waits.save(wait)
    save_job(ports, job.job_id, summary=f"{counted(len(nodes), 'node')} run diagnostics")
    for node in nodes:
        _ask(node, _what_to_ask(request, job, node, policy), wait, ports, policy)
    _strike_what_came_meanwhile(wait, ports)


def due_nodes(request: JobRequest, job: Job, ports: Ports) -> list[Node]:
    """The nodes that this round is about: after a failure all of them, else those that have not passed lately."""
    nodes = [node_of(name, ports) for name in request.nodes]
    return nodes if request.is_failure else job_checks_due(job, nodes, ports.clock())


def take_answer(event: DiagnosticsFinished, ports: Ports) -> bool:
    """Record a node's answer to a check of a job. False: no job asked for it."""
    wait = wait_for_answer(JOB_CHECK, event.request_id, ports)
    sent = ports.waits.get(JOB_ORDER, _sent_key(wait.key, event.node_id)) if wait is not None else None
    if wait is None or sent is None or sent.boot_id != event.boot_id:
        return False
    known, answer = StepResult.model_validate_json(sent.result_json).facts, DiagnosisAnswer.of(event)
    tolerated = known.tolerated_percent if isinstance(known, Diagnosed) else None
    good_run = node_of(event.node_id, ports).diagnostic_baseline
    outcome, reason = judge(answer, good_run, 100.0 if tolerated is None else tolerated)
    if outcome is Outcome.DONE:
        note_good_run(event.node_id, answer, ports)
    _answer(wait, event.node_id, event.boot_id, outcome, reason, ports)
    return True


def take_refusal(command_id: str, ports: Ports) -> None:
    """A command of a check has failed on its node: no answer will come."""
    sent = ports.waits.get(JOB_COMMAND, command_id)
    wait = ports.waits.get(JOB_CHECK, sent.incident_id) if sent else None
    if sent is not None and wait is not None:
        name = StepResult.model_validate_json(sent.result_json).node_id
        _answer(wait, name, sent.boot_id, Outcome.UNKNOWN, REFUSED, ports)


def _what_to_ask(request: JobRequest, job: Job, node: Node, policy: RecoveryPolicy) -> Diagnosis:
    level = max(job.preflight.level, LEAST_LEVEL)
    return Diagnosis(level, job.preflight.checks or policy.pool(node.pool).checks, ())


def _ask(node: Node, ask: Diagnosis, wait: Wait, ports: Ports, policy: RecoveryPolicy) -> None:
    """Store what is asked, send it, and keep it under the command's id, too. One that was sent is not sent again."""
    key = _sent_key(wait.key, node.node_id)
    known = ports.waits.get(JOB_ORDER, key)
    if known is not None and known.command_id:
        return
    blank = no_diagnosis_yet(node, ports, Diagnosed(tolerated_percent=policy.regression_percent))
    sent = replace(
        wait,
        kind=JOB_ORDER,
        key=key,
        token="",
        incident_id=wait.key,
        boot_id=node.boot_id,
        outstanding=frozenset(),
        result_json=blank.model_dump_json(),
    )
    ports.waits.save(sent)
    try:
        command_id = ports.commands.diagnose(node, ask, request_id_of_wait(wait), wait.deadline_at)
    except NotFound as error:
        _answer(wait, node.node_id, node.boot_id, Outcome.UNKNOWN, str(error), ports)
        return
    name_command(sent, JOB_COMMAND, command_id, ports)


def _sent_key(request_id: str, node_id: str) -> str:
    return f"{request_id}/{node_id}"


def _answer(wait: Wait, node_id: str, boot_id: str, outcome: Outcome, reason: str, ports: Ports) -> None:
    ports.job_notes.note_answer(
        wait.incident_id, CheckAnswer(wait.key, node_id, boot_id, outcome, reason, ports.clock())
    )
    if outcome is Outcome.DONE:
        node = node_of(node_id, ports)
        if node.boot_id == boot_id:
            _note_pass(node, ports)
    resume_if_complete(ports, ports.waits.strike(wait.kind, wait.key, node_id))


def _note_pass(node: Node, ports: Ports) -> None:
    """A pass is remembered, so that the next job need not repeat it. Lost to another writer, it is only repeated."""
    ports.nodes.save(replace(node, passed_at=ports.clock()))


def answers_of(request: JobRequest, ports: Ports) -> Sequence[CheckAnswer]:
    """What has been answered in this round."""
    return [a for a in ports.job_notes.answers(request.job_id) if a.request_id == request_id_of(request)]


def _strike_what_came_meanwhile(wait: Wait, ports: Ports) -> None:
    """An answer that came before the wait was stored (anew, by a repeated call) has struck nothing: do it now."""
    left: Wait | None = wait
    for answer in ports.job_notes.answers(wait.incident_id):
        if answer.request_id == wait.key and answer.node_id in wait.outstanding:
            left = ports.waits.strike(wait.kind, wait.key, answer.node_id)
    resume_if_complete(ports, left)
