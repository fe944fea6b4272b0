"""NETWORK_TEST: one node of a pair tests the network to the other, as server or client. All pairs test at once."""

from collections.abc import Mapping
from dataclasses import replace

from nodeheal.contract.fabric import SECONDS, FabricAnswer, FabricTestRequest, PairVerdict, judge_pair
from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.vocabulary import FabricRole, JobStep, Next, Outcome, VerbName, Verdict
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.humanize import counted
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.jobs.node_pairs import Pair, pairs_of
from nodeheal.domain.operation import Operation
from nodeheal.domain.policy.policy_models import Fabric
from nodeheal.operations import fan_out
from nodeheal.operations.diagnose import ANSWERS, DiagnosisAnswer
from nodeheal.operations.fan_out import part_result, unanswered
from nodeheal.operations.handler import Handler, OperationFacts, VerbContext, read_time
from nodeheal.operations.record import send_command, start_waiting
from nodeheal.ports import Ports
from nodeheal.ports.commands import Command
from nodeheal.services.jobs.job_steps import job_result, save_job
from nodeheal.services.saving import node_of

QUESTION = "-network"
_LEAST_SECONDS = 5
_OUTCOMES = {Verdict.OK: Outcome.DONE, Verdict.FAILED: Outcome.FAILED}
_VERDICTS = {outcome: verdict for verdict, outcome in _OUTCOMES.items()}


def ask_all(request: JobRequest, job: Job, world: VerbContext) -> None:
    """Ask both nodes of each pair. What the two answers come to is judged after, at the deadline too."""
    ports, pairs, wanted = world.ports, pairs_of(request.nodes), world.policy.pool(job.pool).fabric
    count = f"{counted(len(pairs), 'pair')} of nodes"
    question = fan_out.plan(request, ports, QUESTION, job.preflight.seconds)
    save_job(ports, job.job_id, summary=f"{count} test the network between them")
    nodes = {name: node_of(name, ports) for name in request.nodes}
    # The one that serves is asked first; the other tries until it is there.
    parts = [plan(question, pair, role, nodes, wanted) for pair in pairs for role in FabricRole]
    all_in = job_result(request, JobStep.CHECK, Next.CHECK, f"{count} answered", ports)
    fan_out.ask(question, parts, all_in.model_copy(update={"pairs": True}), world)


def plan(question: Operation, pair: Pair, role: FabricRole, nodes: Mapping[str, Node], wanted: Fabric) -> Operation:
    """One node's part. What cannot be asked is answered."""
    node, suffix = nodes[_node_in(pair, role)], _suffix(pair, role)
    peer = nodes[pair.serves].address if role is FabricRole.CONNECT else None
    if role is FabricRole.CONNECT and not peer:
        answer = DiagnosisAnswer(verdict=Verdict.UNKNOWN, output=f"no address of {pair.serves} is known")
        blank = fan_out.plan_part(question, VerbName.NETWORK_TEST, node.node_id, answer, suffix)
        return replace(blank, answer_json=answer.model_dump_json())
    order = FabricTestRequest(
        role=role,
        peer=peer,
        min_mb_per_second=0 if pair.is_shared else wanted.min_mb_per_second,
        all_reduce=wanted.all_reduce,
        min_all_reduce_mb_per_second=0 if pair.is_shared else wanted.min_all_reduce_mb_per_second,
    )
    return fan_out.plan_part(question, VerbName.NETWORK_TEST, node.node_id, order, suffix)


def verdicts_of(request: JobRequest, ports: Ports) -> dict[Pair, PairVerdict]:
    """What each pair has found in this round."""
    question = fan_out.find(request, QUESTION, ports)
    fan_out.stop_waiting(question, ports)
    return {
        pair: judge_pair(*(_found(question, pair, role, ports) for role in FabricRole))
        for pair in pairs_of(request.nodes)
    }


def _found(question: Operation | None, pair: Pair, role: FabricRole, ports: Ports) -> FabricAnswer | None:
    part = fan_out.close_part(question, _node_in(pair, role), ports, _suffix(pair, role))
    if part is None:
        return None
    result = part.result
    verdict = _VERDICTS.get(result.outcome, Verdict.UNKNOWN)
    return FabricAnswer(request_id=part.operation_id, verdict=verdict, reason=result.reason)


def _node_in(pair: Pair, role: FabricRole) -> str:
    return pair.serves if role is FabricRole.SERVE else pair.connects


def _suffix(pair: Pair, role: FabricRole) -> str:
    return f"-{pair.number}-{role.lower()}"


def _start(operation: Operation, world: VerbContext) -> Operation | JobResult:
    ports, node = world.ports, node_of(operation.node_id, world.ports)
    operation = replace(operation, boot_id=node.boot_id)
    if operation.answer_json:  # there is nothing to ask it
        return start_waiting(operation, ports)
    order = FabricTestRequest.model_validate_json(operation.data_json)
    seconds = max(_LEAST_SECONDS, min(SECONDS, int((operation.deadline_at - ports.clock()).total_seconds())))
    command = Command("test-fabric", order.model_copy(update={"seconds": seconds}).parameters())
    try:
        return send_command(operation, node, command, operation.deadline_at, ports)
    except NotFound as gone:
        return part_result(operation, ports.clock(), Outcome.UNKNOWN, str(gone))


def _observe(operation: Operation, facts: OperationFacts) -> JobResult | None:
    if not operation.answer_json:
        return unanswered(operation, facts)
    answer = DiagnosisAnswer.model_validate_json(operation.answer_json)
    failed = f" ({', '.join(answer.failed_tests)})" if answer.failed_tests else ""
    reason = f"{answer.output.partition(chr(10))[0]}{failed}" or answer.verdict
    return part_result(operation, facts.now, _OUTCOMES.get(answer.verdict, Outcome.UNKNOWN), reason)


HANDLER = Handler(_start, _observe, read_time, answers=ANSWERS)
