"""Have the nodes of a gang test the way between them, in pairs and all at once, before the job starts on them.

Each of the two nodes is asked and answers by itself; what the two answers come to is judged when all are in.
"""

from datetime import datetime, timedelta
from functools import partial

from nodeheal.contract.fabric import SECONDS, FabricAnswer, FabricOrder, PairVerdict, judge_pair
from nodeheal.contract.health_event import DiagnosticsFinished
from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.vocabulary import FabricRole, JobStep, Next, Outcome, Verdict
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.humanize import counted
from nodeheal.domain.jobs.job import CheckAnswer, Job
from nodeheal.domain.jobs.node_pairs import Pair, pairs_of
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Fabric
from nodeheal.ports import Ports
from nodeheal.ports.storage import Wait
from nodeheal.services.jobs.job_steps import job_result, job_token, request_id_of, save_job, to_launch
from nodeheal.services.orders import Orders
from nodeheal.services.steps import node_of

WAYS = Orders("job_pairs", "way", "pair_command")
OUTCOMES = {Verdict.OK: Outcome.DONE, Verdict.FAILED: Outcome.FAILED}
_VERDICTS = {outcome: verdict for verdict, outcome in OUTCOMES.items()}


def pairs_or_launch(
    request: JobRequest, step: JobStep, job: Job, reason: str, ports: Ports, policy: RecoveryPolicy
) -> JobResult:
    """Every node is proven by itself: now the ways between them, where pool and job want that; else the launch."""
    wanted = policy.pool(job.pool).fabric.tests and job.preflight.fabric and job.preflight.level > 0
    if not wanted or job.nodes < 2:
        return to_launch(request, step, job, reason, ports)
    more = job_result(request, step, Next.CHECK, f"{reason}; the ways between them are tested", ports)
    return more.model_copy(update={"pairs": True, "deadline_seconds": job.preflight.seconds})


def try_pairs(request: JobRequest, job: Job, ports: Ports, policy: RecoveryPolicy) -> None:
    """Send the commands, each once. Resumes when all have answered; the judging comes after, at the deadline too."""
    pairs = pairs_of(request.nodes)
    told = f"{counted(len(pairs), 'pair')} of nodes"
    all_in = job_result(request, JobStep.CHECK, Next.CHECK, f"{told} answered", ports)
    wait = Wait(
        WAYS.question,
        request_id_of(request),
        job_token(request),
        job.job_id,
        ports.clock() + timedelta(seconds=job.preflight.seconds),
        outstanding=frozenset(_order_id(request, pair, role) for pair in pairs for role in FabricRole),
        result_json=all_in.model_copy(update={"pairs": True}).model_dump_json(),
    )
    unanswered = WAYS.ask(wait, ports)
    save_job(ports, job.job_id, summary=f"{told} test the way between them")
    for pair in pairs:
        _ask_both(pair, request, wait, unanswered, ports, policy.pool(job.pool).fabric)
    WAYS.strike_what_came_meanwhile(wait, ports)


def take_pair_answer(event: DiagnosticsFinished, ports: Ports) -> None:
    """One of the two nodes has answered."""
    order = WAYS.find(event.request_id, event.node_id, event.boot_id, ports)
    if order is not None:
        failed = f" ({', '.join(event.failed_tests)})" if event.failed_tests else ""
        reason = f"{event.evidence.partition(chr(10))[0]}{failed}" or event.verdict
        WAYS.take(order, OUTCOMES.get(event.verdict, Outcome.UNKNOWN), reason, ports)


def verdicts_of(request: JobRequest, ports: Ports) -> dict[Pair, PairVerdict]:
    """What each pair has found in this round."""
    answers = {answer.request_id: answer for answer in ports.job_notes.answers(request.job_id)}
    return {
        pair: judge_pair(*(_found(answers.get(_order_id(request, pair, role))) for role in FabricRole))
        for pair in pairs_of(request.nodes)
    }


def _found(answer: CheckAnswer | None) -> FabricAnswer | None:
    if answer is None:
        return None
    verdict = _VERDICTS.get(answer.outcome, Verdict.UNKNOWN)
    return FabricAnswer(request_id=answer.request_id, verdict=verdict, reason=answer.reason)


def _ask_both(
    pair: Pair, request: JobRequest, wait: Wait, unanswered: frozenset[str], ports: Ports, wanted: Fabric
) -> None:
    """The one that serves first; the other tries until it is there."""
    serving, connecting = (node_of(name, ports) for name in pair.nodes)
    for role, node in zip(FabricRole, (serving, connecting), strict=True):
        order_id, peer = _order_id(request, pair, role), serving.address if role is FabricRole.CONNECT else None
        if order_id not in unanswered:
            continue
        if role is FabricRole.CONNECT and not peer:
            WAYS.cannot_be_given(wait, order_id, node, f"no address of {serving.node_id} is known", ports)
            continue
        order = FabricOrder(
            role=role,
            request_id=order_id,
            boot_id=node.boot_id,
            expires_at=wait.deadline_at,
            peer=peer,
            seconds=_seconds(wait.deadline_at, ports),
            min_mb_per_second=0 if pair.is_shared else wanted.min_mb_per_second,
            all_reduce=wanted.all_reduce,
            min_all_reduce_mb_per_second=0 if pair.is_shared else wanted.min_all_reduce_mb_per_second,
        )
        WAYS.give(wait, order_id, node, partial(_send, node, order, ports), ports)


def _send(node: Node, order: FabricOrder, ports: Ports, request_id: str) -> str:
    return ports.try_way(node, order.model_copy(update={"request_id": request_id}))


def _order_id(request: JobRequest, pair: Pair, role: FabricRole) -> str:
    """Names one node's part to it and back. What one node says of a way excludes nobody: it begins otherwise than what
    a round has found of a node."""
    return f"way-{request_id_of(request)}-{pair.number}-{role.lower()}"


def _seconds(deadline: datetime, ports: Ports) -> int:
    return max(5, min(SECONDS, int((deadline - ports.clock()).total_seconds())))
