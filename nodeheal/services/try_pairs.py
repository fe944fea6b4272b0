"""Have the nodes of a gang test the way between them, in pairs and all at once, before the job starts on them.

Each of the two nodes is asked and answers by itself; what the two answers come to is judged when all are in.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from nodeheal.contract.fabric import SECONDS, FabricAnswer, FabricOrder, PairVerdict, judge_pair
from nodeheal.contract.health_event import DiagnosticsFinished
from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.steps import StepResult
from nodeheal.contract.vocabulary import FabricRole, JobStep, Next, Outcome, Verdict
from nodeheal.domain.counted import counted
from nodeheal.domain.errors import NotFound
from nodeheal.domain.job import CheckAnswer, Job
from nodeheal.domain.knobs import Fabric
from nodeheal.domain.node import Node
from nodeheal.domain.pairs import Pair, pairs_of
from nodeheal.domain.policy import RecoveryPolicy
from nodeheal.ports import Ports, Wait
from nodeheal.services.job_steps import job_result, job_token, request_id_of, save_job, to_launch
from nodeheal.services.steps import no_diagnosis_yet, node_of, resume_if_complete

JOB_PAIRS = "job_pairs"
PAIR_COMMAND = "pair_command"
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
    return more.model_copy(update={"pairs": True, "deadline_seconds": job.preflight.timeout_seconds})


def try_pairs(request: JobRequest, job: Job, ports: Ports, policy: RecoveryPolicy) -> None:
    """Send the commands, each once. Resumes when all have answered; the judging comes after, at the deadline too."""
    pairs = pairs_of(request.nodes)
    told = f"{counted(len(pairs), 'pair')} of nodes"
    all_in = job_result(request, JobStep.CHECK, Next.CHECK, f"{told} answered", ports)
    wait = Wait(
        JOB_PAIRS,
        request_id_of(request),
        job_token(request),
        job.job_id,
        ports.clock() + timedelta(seconds=job.preflight.timeout_seconds),
        outstanding=frozenset(_order_id(request, pair, role) for pair in pairs for role in FabricRole),
        result_json=all_in.model_copy(update={"pairs": True}).model_dump_json(),
    )
    ports.waits.save(wait)
    save_job(ports, job.job_id, summary=f"{told} test the way between them")
    for pair in pairs:
        _ask_both(pair, request, wait, ports, policy.pool(job.pool).fabric)
    _strike_what_came_meanwhile(wait, ports)


def take_pair_answer(event: DiagnosticsFinished, ports: Ports) -> None:
    """One of the two nodes has answered."""
    sent = ports.waits.get(PAIR_COMMAND, event.request_id)
    if sent is not None and (_whose(sent), sent.boot_id) == (event.node_id, event.boot_id):
        failed = f" ({', '.join(event.failed_tests)})" if event.failed_tests else ""
        reason = f"{event.evidence.partition(chr(10))[0]}{failed}" or event.verdict
        _answer(sent, OUTCOMES.get(event.verdict, Outcome.UNKNOWN), reason, ports)


def take_pair_refusal(command_id: str, ports: Ports) -> None:
    """A node refused its part or could not run it: no answer will come."""
    named = ports.waits.get(PAIR_COMMAND, command_id)
    sent = ports.waits.get(*named.twin) if named is not None and named.twin is not None else None
    if sent is not None:
        _answer(sent, Outcome.UNKNOWN, "the node refused the command or could not run it", ports)


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


def _ask_both(pair: Pair, request: JobRequest, wait: Wait, ports: Ports, wanted: Fabric) -> None:
    """The one that serves first; the other tries until it is there."""
    serving, connecting = (node_of(name, ports) for name in pair.nodes)
    for role, node in zip(FabricRole, (serving, connecting), strict=True):
        order_id, peer = _order_id(request, pair, role), serving.address if role is FabricRole.CONNECT else None
        if ports.waits.get(PAIR_COMMAND, order_id) is not None:
            continue
        sent = _sent(wait, order_id, node, ports)
        if role is FabricRole.CONNECT and not peer:
            _answer(sent, Outcome.UNKNOWN, f"no address of {serving.node_id} is known", ports)
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
        _send(sent, node, order, ports)


def _send(sent: Wait, node: Node, order: FabricOrder, ports: Ports) -> None:
    """Send, and keep under both its names what the command is about."""
    try:
        command_id = ports.try_way(node, order)
    except NotFound as error:
        _answer(sent, Outcome.UNKNOWN, str(error), ports)
        return
    ports.waits.save(sent)
    ports.waits.save(replace(sent, key=command_id, twin=(PAIR_COMMAND, sent.key)))


def _sent(wait: Wait, order_id: str, node: Node, ports: Ports) -> Wait:
    """What is kept of a command: whose it is, for which boot, and what it is a part of."""
    return Wait(
        PAIR_COMMAND,
        order_id,
        "",
        wait.incident_id,
        wait.deadline_at,
        boot_id=node.boot_id,
        twin=(wait.kind, wait.key),
        result_json=no_diagnosis_yet(node, ports).model_dump_json(),
    )


def _whose(sent: Wait) -> str:
    return StepResult.model_validate_json(sent.result_json).node_id


def _answer(sent: Wait, outcome: Outcome, reason: str, ports: Ports) -> None:
    """Note it, and resume if it was the last. `sent`: as kept under the order's id."""
    assert sent.twin is not None
    answer = CheckAnswer(sent.key, _whose(sent), sent.boot_id, outcome, reason, ports.clock())
    ports.job_notes.note_answer(sent.incident_id, answer)
    resume_if_complete(ports, ports.waits.strike(*sent.twin, sent.key))


def _strike_what_came_meanwhile(wait: Wait, ports: Ports) -> None:
    """An answer that came before the wait was stored (anew, by a repeated call) has struck nothing: do it now."""
    left: Wait | None = wait
    for answer in ports.job_notes.answers(wait.incident_id):
        if answer.request_id in wait.outstanding:
            left = ports.waits.strike(wait.kind, wait.key, answer.request_id)
    resume_if_complete(ports, left)


def _order_id(request: JobRequest, pair: Pair, role: FabricRole) -> str:
    """Names one node's part to it and back. What one node says of a way excludes nobody: it begins otherwise than what
    a round has found of a node."""
    return f"way-{request_id_of(request)}-{pair.number}-{role.lower()}"


def _seconds(deadline: datetime, ports: Ports) -> int:
    return max(5, min(SECONDS, int((deadline - ports.clock()).total_seconds())))
