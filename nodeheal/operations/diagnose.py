"""DIAGNOSE: a node reruns its diagnostics. Its own answer ends the operation."""

import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

from pydantic import Field

from nodeheal.contract.health_event import DiagnosticsFinished, Frozen
from nodeheal.contract.measures import regressions
from nodeheal.contract.results import TESTS_NAMED, Diagnosed, Refused, StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Check, Outcome, Refusal, Step, VerbName, Verdict
from nodeheal.domain.errors import NotAccepted, NotFound
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.operation import Operation, OperationState, node_owner
from nodeheal.operations.handler import Answers, Handler, OperationFacts, VerbContext, read_node, step_result
from nodeheal.operations.record import plan_step, read_printed, send_command, start_waiting, update
from nodeheal.ports import Ports
from nodeheal.ports.commands import Command
from nodeheal.services.recovery.spares import claim_node
from nodeheal.services.saving import node_of
from nodeheal.services.scheduling import why_work_unknown
from nodeheal.services.steps import add_timeline_entry, save_node

FIRST_TESTS = 5
_LEFT = "-after-boot"
_TEST = re.compile(r"[a-z][a-z0-9_]{0,39}")
_UNREADABLE = "UNREADABLE"
REFUSED = "the node refused the command or could not run it"


class DiagnosisAnswer(Frozen):
    """What a node has found, from its event or from the output of its command."""

    verdict: Verdict
    failed_tests: tuple[str, ...] = ()
    undone_tests: tuple[str, ...] = ()
    measured: dict[str, float] = Field(default_factory=dict)
    checks: str = ""
    output: str = ""

    @classmethod
    def of(cls, event: DiagnosticsFinished) -> "DiagnosisAnswer":
        """The part of the event that decides, and what people read of it."""
        checks = "; ".join(f"{check.check} {check.verdict} in {check.seconds:g} s" for check in event.checks)
        return cls(
            verdict=event.verdict,
            failed_tests=tuple(event.failed_tests),
            undone_tests=tuple(event.undone_tests),
            measured=dict(event.measured),
            checks=checks,
            output=event.evidence,
        )


class _Record(Frozen):
    """`tolerated_percent`: as the policy had it when the node was asked; who observes reads no policy. `is_left`: the
    command of a reboot has brought it, and it is not known yet whether the node has accepted it.
    """

    tolerated_percent: float
    is_left: bool = False


def plan(request: StepRequest, ports: Ports) -> Operation:
    """Returns the operation of this turn, or the one that the reboot has left if the decision goes on with it."""
    suffix = "" if request.decision.continues is None else _LEFT
    return plan_step(request, ports, VerbName.DIAGNOSE, node_owner(request.decision.node_id), suffix=suffix)


def leave_with_reboot(reboot: Operation, ports: Ports) -> dict[str, str]:
    """The parameters of a reboot's command that leave diagnostics on the node. Empty: the decision wants none left.

    They have an operation of their own. No workflow waits for it until the step DIAGNOSE goes on with it.
    """
    request, leaves = reboot.step, reboot.step.decision.leaves
    if leaves is None:
        return {}
    seconds = request.decision.deadline_seconds + leaves.seconds
    asked = {"step": Step.DIAGNOSE, "action": None, "deadline_seconds": leaves.seconds, "leaves": None, "reserve": ()}
    of_step = request.model_copy(update={"decision": request.decision.model_copy(update=asked)})
    planned = plan_step(of_step, ports, VerbName.DIAGNOSE, reboot.owner, suffix=_LEFT, seconds=seconds)
    record = _Record(tolerated_percent=leaves.tolerated_percent, is_left=True)
    planned = replace(planned, token="", nonce=uuid4().hex, data_json=record.model_dump_json())
    known = ports.operations.get(planned.owner, planned.operation_id) or start_waiting(planned, ports)
    options = _asked(leaves.level, leaves.checks, _failed_before(request, ports))
    order = {name.lower(): text for name, text in options.items()}
    order |= {"request_id": known.request_id, "expires_at": str(int(known.deadline_at.timestamp()))}
    return {"AfterBoot": urlsafe_b64encode(json.dumps(order, separators=(",", ":")).encode()).decode().rstrip("=")}


def _start(operation: Operation, world: VerbContext) -> Operation | StepResult:
    ports, request = world.ports, operation.step
    node, now = node_of(operation.node_id, ports), ports.clock()
    if unknown := why_work_unknown(ports.scheduler_of(node)):
        return step_result(operation, now, Outcome.REFUSED, unknown, facts=Refused(code=Refusal.WORK_UNKNOWN))
    is_move = request.decision.is_move
    is_held = is_move and claim_node(node.node_id, request.incident_id, ports.pauses.read(), ports)
    if node.open_incident != request.incident_id and not is_held:
        why = f"{node.node_id} belongs to incident {node.open_incident or 'nobody'}; its accelerators may be in use"
        return step_result(operation, now, Outcome.REFUSED, why)
    first = _failed_before(request, ports)
    level, checks = request.decision.diagnostics_level or 1, world.policy.pool(node.pool).checks
    record = _Record(tolerated_percent=world.policy.regression_percent)
    operation = replace(operation, boot_id=node.boot_id, data_json=record.model_dump_json())
    deadline = now + timedelta(seconds=request.decision.deadline_seconds)
    try:
        operation = send_command(operation, node, command(level, checks, first), deadline, ports)
    except NotFound as gone:
        return step_result(operation, now, Outcome.UNKNOWN, f"the diagnostics were not started: {gone}")
    again = f", {', '.join(first)} first" if first else ""
    text = f"diagnostics at level {level} ({', '.join(checks)}) started on {node.node_id}{again}"
    add_timeline_entry(request, ports, "diagnostics-sent", text)
    return operation


def command(level: int, checks: Sequence[Check], first: Sequence[str] = ()) -> Command:
    """Diagnostics at this level. `first`: the tests that failed before, which are rerun first."""
    return Command("run-diagnostics", _asked(level, checks, first))


def _asked(level: int, checks: Sequence[Check], first: Sequence[str]) -> dict[str, str]:
    return {"Level": str(level), "Checks": ",".join(checks), "First": ",".join(first) or "none"}


def _failed_before(request: StepRequest, ports: Ports) -> tuple[str, ...]:
    """The tests that this node has failed in this incident: a repair is proven by them before anything else."""
    turns = ports.incidents.history(request.incident_id).turns
    results = [turn.result for turn in turns if turn.result is not None]
    own = [result for result in results if result.node_id == request.decision.node_id]
    named = [test for result in own if isinstance(result.facts, Diagnosed) for test in result.facts.failed_tests]
    # They come from a node, and go into a command.
    return tuple(dict.fromkeys(test for test in named if _TEST.fullmatch(test)))[:FIRST_TESTS]


def _observe(operation: Operation, facts: OperationFacts) -> StepResult | None:
    boot_id, seconds = operation.boot_id, operation.step.decision.deadline_seconds
    if operation.answer_json:
        return _judged(operation, facts)
    if operation.has_command_failed:
        return step_result(operation, facts.now, Outcome.FAILED, REFUSED)
    if not facts.is_final:
        return None
    if operation.state is OperationState.PLANNED:
        return step_result(operation, facts.now, Outcome.UNKNOWN, "the diagnostics were not started")
    if operation.command_state == _UNREADABLE:
        why = "the diagnostics' output cannot be read"
        return step_result(operation, facts.now, Outcome.UNKNOWN, why, boot_id=boot_id)
    why = f"diagnostics did not answer within {seconds} s; the command is {operation.command_state or 'UNKNOWN'}"
    return step_result(operation, facts.now, Outcome.TIMED_OUT, why, boot_id=boot_id)


def _judged(operation: Operation, facts: OperationFacts) -> StepResult:
    answer = DiagnosisAnswer.model_validate_json(operation.answer_json)
    baseline = facts.node.diagnostic_baseline if facts.node is not None else {}
    outcome, reason = judge(answer, baseline, _Record.model_validate_json(operation.data_json).tolerated_percent)
    return step_result(operation, facts.now, outcome, reason, boot_id=operation.boot_id, facts=found(answer))


def judge(answer: DiagnosisAnswer, baseline: Mapping[str, float], tolerated_percent: float) -> tuple[Outcome, str]:
    """Returns the outcome of an answer: its own verdict, compared with the node's last good run.

    Only OK is a proof. DEGRADED (settings, not hardware) is for a human, not a swap.
    """
    named = answer.undone_tests if answer.verdict is Verdict.UNKNOWN else answer.failed_tests
    outcome, reason = _judge_verdict(answer.verdict, ", ".join(named)[:800])
    worse = regressions(answer.measured, baseline, tolerated_percent) if outcome is Outcome.DONE else ()
    if worse:
        return Outcome.UNKNOWN, f"diagnostics passed, but {'; '.join(worse)[:800]}"
    return outcome, reason


def _judge_verdict(verdict: Verdict, tests: str) -> tuple[Outcome, str]:
    if verdict is Verdict.OK:
        return Outcome.DONE, "diagnostics passed"
    if verdict is Verdict.DEGRADED:
        return Outcome.UNKNOWN, f"diagnostics found the node's settings wanting: {tests or 'see its output'}"
    if verdict is Verdict.UNKNOWN:
        return Outcome.UNKNOWN, f"diagnostics gave no result{f' ({tests})' if tests else ''}"
    return Outcome.FAILED, f"diagnostics failed: {tests or verdict}"


def found(answer: DiagnosisAnswer) -> Diagnosed | None:
    """The facts that later decisions and people read; None: there is nothing to read."""
    if not (answer.failed_tests or answer.checks or answer.output):
        return None
    return Diagnosed(failed_tests=answer.failed_tests[:TESTS_NAMED], checks=answer.checks, output=answer.output)


def _refresh(operation: Operation, ports: Ports) -> Operation:
    """The command's own output is one line of JSON, which the agent prints beside the event that did not arrive."""
    if operation.answer_json:
        return operation
    if not operation.reference:
        return _taken_by_node(operation, ports) if _read_record(operation).is_left else operation
    status = ports.commands.look(node_of(operation.node_id, ports), operation.reference)
    answer = read_output(status.output) if status.state == "SUCCEEDED" else None
    if answer is not None:
        return update(operation, ports, lambda operation: replace(operation, answer_json=answer.model_dump_json()))
    state = _UNREADABLE if status.state == "SUCCEEDED" else status.state
    return update(operation, ports, lambda operation: replace(operation, command_state=state))


def _taken_by_node(operation: Operation, ports: Ports) -> Operation:
    """The operation as one that the node runs, if the reboot's command says that it has taken the command; else as one
    that is still to be sent, under another request id: what the node says of the first one does not count then.

    Where SSM cannot be asked now, it stays as it is: the node may be running them.
    """
    node = node_of(operation.node_id, ports)
    reboot = ports.operations.get(operation.owner, operation.operation_id.removesuffix(_LEFT))
    try:
        is_taken = reboot is not None and _has_taken(reboot, node, operation.request_id, ports)
    except NotAccepted:
        return operation

    def settled(operation: Operation) -> Operation:
        record = _read_record(operation)
        if not record.is_left or operation.is_over or operation.answer_json:
            return operation  # a call at the same time was quicker, or the answer
        operation = replace(operation, data_json=record.model_copy(update={"is_left": False}).model_dump_json())
        return (
            replace(operation, boot_id=node.boot_id)
            if is_taken
            else replace(operation, state=OperationState.PLANNED, nonce="")
        )

    return update(operation, ports, settled)


def _has_taken(reboot: Operation, node: Node, request_id: str, ports: Ports) -> bool:
    """Whether the node has taken the diagnostics that the reboot's command brought, and has not booted again since."""
    result = reboot.result if reboot.is_over else None
    if not reboot.reference or not isinstance(result, StepResult) or result.boot_id != node.boot_id:
        return False
    return _left_under(ports.commands.look(node, reboot.reference).output) == request_id


def _left_under(output: str) -> str:
    """The request id under which a reboot has left diagnostics, from what its command has printed; or empty."""
    try:
        return str(read_printed(output)["diagnoses"])
    except (KeyError, ValueError):
        return ""


def _read_record(operation: Operation) -> _Record:
    return _Record.model_validate_json(operation.data_json) if operation.data_json else _Record(tolerated_percent=0)


def read_output(output: str) -> DiagnosisAnswer | None:
    """What a diagnosis has printed; None: it cannot be read."""
    try:
        summary = read_printed(output)
        failed = tuple(str(test) for test in summary["failed_tests"])
        undone = tuple(str(test) for test in summary.get("undone_tests", ()))
        measured = {str(name): float(number) for name, number in summary.get("measured", {}).items()}
        verdict = Verdict(summary["verdict"])
        return DiagnosisAnswer(verdict=verdict, failed_tests=failed, undone_tests=undone, measured=measured)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _settle(operation: Operation, result: StepResult, ports: Ports) -> None:
    """A run that passed and is not worse than the last good one becomes the last good one."""
    if result.outcome is Outcome.DONE:
        note_good_run(operation.node_id, DiagnosisAnswer.model_validate_json(operation.answer_json), ports)


def note_good_run(node_id: str, answer: DiagnosisAnswer, ports: Ports) -> None:
    """Later runs of the node are compared with this one."""
    if answer.measured:
        save_node(ports, node_of(node_id, ports), diagnostic_baseline=dict(answer.measured))


ANSWERS = Answers(DiagnosticsFinished, lambda event: DiagnosisAnswer.of(event).model_dump_json())
HANDLER = Handler(_start, _observe, read_node, _refresh, _settle, answers=ANSWERS, refreshes_when_repeated=True)
