"""CHECK_NODE: a node of a gang runs its diagnostics, before the job starts on it, or after a run has failed on it."""

from collections.abc import Sequence
from dataclasses import replace

from nodeheal.contract.health_event import Frozen
from nodeheal.contract.job_spec import LEAST_LEVEL
from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.vocabulary import Check, JobStep, Next, Outcome, VerbName
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.humanize import counted
from nodeheal.domain.jobs.job import CheckAnswer, Job
from nodeheal.domain.operation import Operation
from nodeheal.operations import fan_out
from nodeheal.operations.diagnose import ANSWERS, DiagnosisAnswer, command, judge, note_good_run
from nodeheal.operations.fan_out import part_result, unanswered
from nodeheal.operations.handler import Handler, OperationFacts, VerbContext, read_node
from nodeheal.operations.record import send_command
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_nodes import job_checks_due
from nodeheal.services.jobs.job_steps import job_result, request_id_of, save_job
from nodeheal.services.saving import node_of

QUESTION = "-check"


class _Record(Frozen):
    """What is asked, as job and policy had it then."""

    level: int
    checks: tuple[Check, ...]
    tolerated_percent: float


def ask_all(request: JobRequest, job: Job, world: VerbContext) -> None:
    """Asks the nodes of this round. The job's next call judges the answers, also at the deadline."""
    ports, nodes = world.ports, due_nodes(request, job, world.ports)
    count = counted(len(nodes), "node")
    question = fan_out.plan(request, ports, QUESTION, job.preflight.seconds)
    save_job(ports, job.job_id, summary=f"{count} run diagnostics")
    all_in = job_result(request, JobStep.CHECK, Next.CHECK, f"{count} answered", ports)
    fan_out.ask(question, [plan(question, node, job, world) for node in nodes], all_in, world)


def due_nodes(request: JobRequest, job: Job, ports: Ports) -> list[Node]:
    """Returns the nodes to check in this round: after a failure all, else those that have not passed recently."""
    nodes = [node for name in request.nodes if (node := node_of(name, ports)).is_of_job(job.job_id)]
    return nodes if request.is_failure else job_checks_due(job, nodes, ports.clock())


def answers_of(request: JobRequest, ports: Ports) -> Sequence[CheckAnswer]:
    """What the nodes of this round have answered."""
    given = [a for a in ports.job_notes.answers(request.job_id) if a.request_id == request_id_of(request)]
    return [a for a in given if a.node_id in request.nodes]


def plan(question: Operation, node: Node, job: Job, world: VerbContext) -> Operation:
    """This node's part."""
    policy = world.policy
    record = _Record(
        level=max(job.preflight.level, LEAST_LEVEL),
        checks=job.preflight.checks or policy.pool(node.pool).checks,
        tolerated_percent=policy.regression_percent,
    )
    return fan_out.plan_part(question, VerbName.CHECK_NODE, node.node_id, record)


def _start(operation: Operation, world: VerbContext) -> Operation | JobResult:
    ports, record, deadline = world.ports, _record(operation), operation.deadline_at
    node = node_of(operation.node_id, ports)
    operation = replace(operation, boot_id=node.boot_id)
    try:
        return send_command(operation, node, command(record.level, record.checks), deadline, ports)
    except NotFound as gone:
        return part_result(operation, ports.clock(), Outcome.UNKNOWN, str(gone))


def _observe(operation: Operation, facts: OperationFacts) -> JobResult | None:
    if not operation.answer_json:
        return unanswered(operation, facts)
    baseline = facts.node.diagnostic_baseline if facts.node is not None else {}
    answer = DiagnosisAnswer.model_validate_json(operation.answer_json)
    return part_result(operation, facts.now, *judge(answer, baseline, _record(operation).tolerated_percent))


def _settle(operation: Operation, result: JobResult, ports: Ports) -> None:
    """Stores the answer with the job. Stores a pass with the node too, so that the next job need not repeat it."""
    name, boot_id, has_passed = operation.node_id, operation.boot_id, result.outcome is Outcome.DONE
    if has_passed:
        note_good_run(name, DiagnosisAnswer.model_validate_json(operation.answer_json), ports)
    answer = CheckAnswer(operation.incident_id, name, boot_id, result.outcome, result.reason, ports.clock())
    ports.job_notes.note_answer(result.job_id, answer)
    node = node_of(name, ports)
    if has_passed and node.boot_id == boot_id:
        ports.nodes.save(replace(node, passed_at=ports.clock()))  # lost to another writer, it is only repeated


def _record(operation: Operation) -> _Record:
    return _Record.model_validate_json(operation.data_json)


HANDLER = Handler(_start, _observe, read_node, settle=_settle, answers=ANSWERS)
