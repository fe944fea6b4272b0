"""`nodeheal-agent run diag`: runs diagnostics once and reports the verdict."""

import argparse
import fcntl
import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import sleep

from nodeheal.agent.checks.dcgm_host import dcgmi
from nodeheal.agent.commands.node_command import (
    EXIT_DONE,
    EXIT_REFUSED,
    NodeCommand,
    add_request_id,
    end_well_when_terminated,
    number,
    report,
    why_refuse,
)
from nodeheal.agent.diagnostics import dcgm, efa, neuron, stress
from nodeheal.agent.diagnostics.bench import Bench, Output
from nodeheal.agent.identity.machine import accelerators
from nodeheal.agent.runtime import orders
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.compose import event_bus, open_spool
from nodeheal.agent.runtime.config import AgentConfig
from nodeheal.agent.runtime.safe_files import open_folder
from nodeheal.agent.transport.bus import EventBus
from nodeheal.agent.transport.event import DiagnosticResult, DiagnosticsFinished, EventFactory
from nodeheal.agent.transport.spool import Spool
from nodeheal.contract.check_seconds import HEALTHY_SECONDS
from nodeheal.contract.vocabulary import Check, Verdict
from nodeheal.parsers.finding import ToolReport
from nodeheal.parsers.tool_report import unknown, worst_of

CHECKS: dict[Check, Callable[[Bench], tuple[ToolReport, Output]]] = {
    Check.dcgm: dcgm.check,
    Check.neuron: neuron.check,
    Check.efa: efa.check,
    Check.stress: stress.check,
}

LONGEST_SECONDS = 86_400.0
LOCK_POLL_SECONDS = 1.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DiagnoseCommand:
    """The requested diagnostics, the boot, and the expiry."""

    level: int
    request_id: str
    boot_id: str
    expires_at: float
    deadline_seconds: float | None = None
    checks: tuple[Check, ...] = (Check.dcgm,)
    first: tuple[str, ...] = ()  # tests that failed before


def diagnose(command: DiagnoseCommand, config: AgentConfig, spool: Spool, bus: EventBus, clock: Clock) -> int:
    """Run, report, and print one line of JSON; returns the exit code. Refuses a stale command without a report."""
    with alone(Path(config.orders_dir), command, config, clock) as refusal:
        if refusal:
            logger.error("diagnostics refused", extra={"why": refusal, "request": command.request_id})
            return EXIT_REFUSED
        orders.forget(config)
        parts = run_all(command, config, clock)
    answer = _named_first(worst_of([part for part, _, _ in parts]), command.first)
    results = tuple(result for _, result, _ in parts)
    output = "\n".join(text for _, _, text in parts)
    event_factory = EventFactory(config.identity, command.boot_id)
    event = event_factory.diagnosed(command.request_id, answer, results, f"{answer.reason}\n{output}", clock.utc_now())
    report(event, spool, bus)
    sys.stdout.write(summary(event, answer.reason) + "\n")
    return EXIT_DONE


@contextmanager
def alone(place: Path, command: DiagnoseCommand, config: AgentConfig, clock: Clock) -> Iterator[str | None]:
    """Wait until no other diagnostics run here, since two at once make each other fail. Yields why the command is
    refused: it is stale, or has become so during the wait.

    Where locking fails, it does not wait: a broken disk must not keep a node from being diagnosed.
    """

    def stale() -> str | None:
        return why_refuse([command.boot_id], command.expires_at, config.boot_id(), clock)

    with ExitStack() as held:
        try:
            folder = _open_folder(place)
            held.callback(os.close, folder)
            while not stale() and not _lock(folder):
                sleep(LOCK_POLL_SECONDS)
        except OSError as error:
            logger.warning(
                "the lock of diagnostics cannot be taken; other diagnostics may run at the same time",
                extra={"why": error},
            )
        yield stale()


def is_running(config: AgentConfig) -> bool:
    """Whether diagnostics run on this node now."""
    try:
        folder = _open_folder(Path(config.orders_dir))
    except OSError:
        return False
    try:
        return not _lock(folder)
    finally:
        os.close(folder)


def _open_folder(place: Path) -> int:
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return open_folder(place)


def _lock(folder: int) -> bool:
    """Take the lock, until the descriptor is closed. False: another process has it."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def run_all(
    command: DiagnoseCommand, config: AgentConfig, clock: Clock
) -> list[tuple[ToolReport, DiagnosticResult, str]]:
    """Run every check. A disk that stores no output is no fault of the accelerators: UNKNOWN."""
    try:
        with tempfile.TemporaryDirectory(prefix="nodeheal-", ignore_cleanup_errors=True) as folder:
            asked = command.level, accelerators(config), command.first, command.deadline_seconds
            bench = Bench(Path(folder), *asked, tuple(dcgmi(config, "diag")))
            return [_run(check, bench, clock) for check in command.checks]
    except OSError as error:
        nothing = unknown(f"the tools' output cannot be stored: {error}")
        return [(nothing, DiagnosticResult(command.checks[0], Verdict.UNKNOWN, nothing.reason), "")]


def _run(check: Check, bench: Bench, clock: Clock) -> tuple[ToolReport, DiagnosticResult, str]:
    """Run one check; returns its part of the answer, and the tool's output."""
    began = clock.monotonic()
    answer, output = CHECKS[check](bench)
    result = DiagnosticResult(check, answer.verdict, answer.reason, round(clock.monotonic() - began, 1))
    return answer, result, f"{output.errors}{output.text}"


def _named_first(answer: ToolReport, first: tuple[str, ...]) -> ToolReport:
    """Move the tests that failed before and fail again to the front: a reader looks for these."""
    ordered = sorted(answer.failed_tests, key=lambda test: test not in first)
    return replace(answer, failed_tests=tuple(ordered))


def summary(event: DiagnosticsFinished, reason: str) -> str:
    """Summarise for the command's output, which the control plane reads where the event was lost."""
    return json.dumps(
        {
            "verdict": event.verdict,
            "failed_tests": event.failed_tests,
            "undone_tests": event.undone_tests,
            "reason": reason,
            "request_id": event.request_id,
            "measured": dict(event.measured),
        }
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--level", type=int, choices=sorted(HEALTHY_SECONDS), required=True)
    add_request_id(parser)
    # A tool without any time would look like one that hangs, which is a verdict on the node.
    deadline, by_level = number(0.1, LONGEST_SECONDS), "seconds for each tool; default: by level"
    parser.add_argument("--deadline-seconds", type=deadline, help=by_level)
    parser.add_argument(
        "--checks",
        type=_checks,
        default=[Check.dcgm],
        help=f"comma-separated list of {','.join(CHECKS)}; default: dcgm",
    )
    parser.add_argument(
        "--first", type=_names, default=[], help="comma-separated tests that failed before; they run again first"
    )


def _checks(text: str) -> list[Check]:
    wrong = [name for name in _names(text) if name not in list(CHECKS)]
    if wrong or not _names(text):
        raise argparse.ArgumentTypeError(f"{text!r}: give some of {', '.join(CHECKS)}, separated by commas")
    return [Check(name) for name in _names(text)]


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name and name != "none"]


def _carry_out(arguments: argparse.Namespace, config: AgentConfig) -> int:
    end_well_when_terminated()
    clock = Clock()
    command = DiagnoseCommand(
        arguments.level,
        arguments.request_id,
        arguments.boot_id,
        arguments.expires_at,
        arguments.deadline_seconds,
        tuple(arguments.checks),
        tuple(arguments.first),
    )
    return diagnose(command, config, open_spool(config), event_bus(config, clock), clock)


COMMAND = NodeCommand(
    help="run diagnostics once and report the verdict",
    add_arguments=_add_arguments,
    carry_out=_carry_out,
)
