"""DIAGNOSE: a node reruns its diagnostics, and its own answer ends the operation."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from pydantic import Field

from nodeheal.contract.health_event import DiagnosticsFinished, Frozen
from nodeheal.contract.measures import regressions
from nodeheal.contract.results import TESTS_NAMED, Diagnosed, StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Check, Outcome, VerbName, Verdict
from nodeheal.domain.errors import NotFound
from nodeheal.domain.operation import Operation, OperationState, node_owner
from nodeheal.operations.handler import Answers, Facts, Handler, World, read_node, step_result
from nodeheal.operations.record import plan_step, send_command, update
from nodeheal.ports import Ports
from nodeheal.ports.commands import Command
from nodeheal.services.recovery.spares import claim_node
from nodeheal.services.saving import node_of
from nodeheal.services.steps import add_timeline_entry, save_node

FIRST_TESTS = 5
_TEST = re.compile(r"[a-z][a-z0-9_]{0,39}")
_UNREADABLE = "UNREADABLE"
REFUSED = "the node refused the command or could not run it"


class DiagnosisAnswer(Frozen):
    """What a node has found, from its event or from the output of its command."""

    verdict: Verdict
    failed_tests: tuple[str, ...] = ()
    measured: dict[str, float] = Field(default_factory=dict)
    checks: str = ""
    output: str = ""

    @classmethod
    def of(cls, event: DiagnosticsFinished) -> "DiagnosisAnswer":
        """The part of the event that decides, and what people read of it."""
        checks = "; ".join(f"{one.check} {one.verdict} in {one.seconds:g} s" for one in event.checks)
        return cls(
            verdict=event.verdict,
            failed_tests=tuple(event.failed_tests),
            measured=dict(event.measured),
            checks=checks,
            output=event.evidence,
        )


class _Record(Frozen):
    """`tolerated_percent`: as the policy had it when the node was asked; who observes reads no policy."""

    tolerated_percent: float


def plan(request: StepRequest, ports: Ports) -> Operation:
    """The operation of this turn."""
    return plan_step(request, ports, VerbName.DIAGNOSE, node_owner(request.decision.node_id))


def _start(operation: Operation, world: World) -> Operation | StepResult:
    ports, request = world.ports, operation.step
    node, now = node_of(operation.node_id, ports), ports.clock()
    is_held = request.decision.is_move and claim_node(node.node_id, request.incident_id, ports)
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
    named = {"Checks": ",".join(checks), "First": ",".join(first) or "none"}
    return Command("run-diagnostics", {"Level": str(level), **named})


def _failed_before(request: StepRequest, ports: Ports) -> tuple[str, ...]:
    """The tests that this node has failed in this incident: a repair is proven by them before anything else."""
    turns = ports.incidents.history(request.incident_id).turns
    results = [turn.result for turn in turns if turn.result is not None]
    own = [result for result in results if result.node_id == request.decision.node_id]
    named = [test for result in own if isinstance(result.facts, Diagnosed) for test in result.facts.failed_tests]
    # They come from a node, and go into a command.
    return tuple(dict.fromkeys(test for test in named if _TEST.fullmatch(test)))[:FIRST_TESTS]


def _observe(operation: Operation, facts: Facts) -> StepResult | None:
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


def _judged(operation: Operation, facts: Facts) -> StepResult:
    answer = DiagnosisAnswer.model_validate_json(operation.answer_json)
    baseline = facts.node.diagnostic_baseline if facts.node is not None else {}
    outcome, reason = judge(answer, baseline, _Record.model_validate_json(operation.data_json).tolerated_percent)
    return step_result(operation, facts.now, outcome, reason, boot_id=operation.boot_id, facts=found(answer))


def judge(answer: DiagnosisAnswer, baseline: Mapping[str, float], tolerated_percent: float) -> tuple[Outcome, str]:
    """What an answer is worth: its own verdict, and how it compares with the node's last good run.

    Only OK is a proof. DEGRADED (settings, not hardware) is for a human, not a swap.
    """
    outcome, reason = _judge_verdict(answer.verdict, ", ".join(answer.failed_tests)[:800])
    worse = regressions(answer.measured, baseline, tolerated_percent) if outcome is Outcome.DONE else ()
    if worse:
        return Outcome.UNKNOWN, f"diagnostics passed, but {'; '.join(worse)[:800]}"
    return outcome, reason


def _judge_verdict(verdict: Verdict, failed_tests: str) -> tuple[Outcome, str]:
    if verdict is Verdict.OK:
        return Outcome.DONE, "diagnostics passed"
    if verdict is Verdict.DEGRADED:
        return Outcome.UNKNOWN, f"diagnostics found the node's settings wanting: {failed_tests or 'see its output'}"
    if verdict is Verdict.UNKNOWN:
        return Outcome.UNKNOWN, f"diagnostics gave no result{f' ({failed_tests})' if failed_tests else ''}"
    return Outcome.FAILED, f"diagnostics failed: {failed_tests or verdict}"


def found(answer: DiagnosisAnswer) -> Diagnosed | None:
    """The facts that later decisions and people read; None: there is nothing to read."""
    if not (answer.failed_tests or answer.checks or answer.output):
        return None
    return Diagnosed(failed_tests=answer.failed_tests[:TESTS_NAMED], checks=answer.checks, output=answer.output)


def _refresh(operation: Operation, ports: Ports) -> Operation:
    """The command's own output is one line of JSON, which the agent prints beside the event that did not arrive."""
    if not operation.reference or operation.answer_json:
        return operation
    status = ports.commands.look(node_of(operation.node_id, ports), operation.reference)
    answer = read_output(status.output) if status.state == "SUCCEEDED" else None
    if answer is not None:
        return update(operation, ports, lambda one: replace(one, answer_json=answer.model_dump_json()))
    state = _UNREADABLE if status.state == "SUCCEEDED" else status.state
    return update(operation, ports, lambda one: replace(one, command_state=state))


def read_output(output: str) -> DiagnosisAnswer | None:
    """What a diagnosis has printed; None: it cannot be read."""
    try:
        summary = json.loads(output.strip().splitlines()[-1])
        failed: Sequence[str] = [str(test) for test in summary["failed_tests"]]
        measured = {str(name): float(number) for name, number in summary.get("measured", {}).items()}
        return DiagnosisAnswer(verdict=Verdict(summary["verdict"]), failed_tests=tuple(failed), measured=measured)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
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
HANDLER = Handler(_start, _observe, read_node, _refresh, _settle, answers=ANSWERS)
