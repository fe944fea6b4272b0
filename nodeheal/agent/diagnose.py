"""`nodeheal-agent diagnose`: runs DCGM's diagnostics once and reports the verdict."""

import json
import logging
import os
import signal
import subprocess
import sys
from dataclasses import dataclass

from nodeheal.agent.bus import BusUnavailable, EventBus
from nodeheal.agent.clock import Clock
from nodeheal.agent.config import AgentConfig
from nodeheal.agent.event import DiagnosticsFinished, Speaker
from nodeheal.agent.machine import accelerators
from nodeheal.agent.spool import Entry, Spool
from nodeheal.contract.evidence.dcgm_diag import parse_diagnostic
from nodeheal.contract.evidence.finding import Report
from nodeheal.contract.vocabulary import Verdict

EXIT_REPORTED = 0
EXIT_REFUSED = 3
# NVIDIA gives seconds, 2, 30 and 90 minutes for healthy nodes; a dead GPU makes DCGM wait for ever.
DEADLINE_SECONDS = {1: 300.0, 2: 900.0, 3: 3600.0, 4: 10800.0}
KILL_GRACE_SECONDS = 5.0
OUTPUT_CHARACTERS = 4 * 1024 * 1024

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DiagnoseOrder:
    """What was asked, of which boot, until when."""

    level: int
    request_id: str
    boot_id: str
    expires_at: float
    deadline_seconds: float | None = None


def diagnose(order: DiagnoseOrder, config: AgentConfig, spool: Spool, bus: EventBus, clock: Clock) -> int:
    """Run, report, and print one line of JSON; the exit code. A stale order is refused and nothing is reported."""
    refusal = _refusal(order, config.boot_id(), clock)
    if refusal:
        logger.error("diagnostics refused", extra={"why": refusal, "request": order.request_id})
        return EXIT_REFUSED
    expected = accelerators(config)
    diagnosis, output = run_dcgmi(order.level, order.deadline_seconds or DEADLINE_SECONDS[order.level], expected)
    event = Speaker(config.identity, order.boot_id).diagnosed(
        order.request_id, diagnosis.verdict, diagnosis.failed_tests, f"{diagnosis.reason}\n{output}", clock.utc_now()
    )
    _report(event, spool, bus)
    summary = {
        "verdict": event.verdict,
        "failed_tests": event.failed_tests,
        "reason": diagnosis.reason,
        "request_id": event.request_id,
    }
    sys.stdout.write(json.dumps(summary) + "\n")
    return EXIT_REPORTED


def run_dcgmi(level: int, deadline_seconds: float, expected: int) -> tuple[Report, str]:
    """The verdict and what DCGM printed. A diagnostic that hangs has failed: only broken hardware makes it."""
    command = ["dcgmi", "diag", "-r", str(level), "-j"]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # its own group, so that its children end with it
            text=True,
            errors="replace",
        )
    except OSError as error:
        return Report(Verdict.UNKNOWN, reason=f"dcgmi cannot be run: {error.strerror}"), ""
    try:
        output, errors = process.communicate(timeout=deadline_seconds)
    except subprocess.TimeoutExpired:
        return Report(Verdict.FAILED, ("timeout",), reason=f"no answer within {deadline_seconds:g} s"), ""
    finally:
        if process.returncode is None:
            _kill(process)
    # The exit code says no more than the results: dcgmi also returns an error for mere warnings.
    return parse_diagnostic(output[:OUTPUT_CHARACTERS], expected), errors + output


def _refusal(order: DiagnoseOrder, boot_id: str, clock: Clock) -> str | None:
    if order.boot_id != boot_id:
        return f"meant for boot {order.boot_id}, this is {boot_id}"
    if clock.utc_now().timestamp() >= order.expires_at:
        return "the order has expired"
    return None


def _report(event: DiagnosticsFinished, spool: Spool, bus: EventBus) -> None:
    """Keep it, then try to deliver it; if that fails, the running agent does, now or after a restart."""
    spool.put([event])
    entry = Entry(event.event_id, event.detail_type, event.to_json(), event.observed_at.timestamp())
    try:
        receipt = bus.put([entry])
    except BusUnavailable as error:
        logger.error("the bus is out of reach; the agent will deliver the result", extra={"why": error})
        return
    spool.forget(receipt.accepted)


def _kill(process: "subprocess.Popen[str]") -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=KILL_GRACE_SECONDS)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        # Uninterruptible in the driver: nobody can end it, and waiting for it would hang us too.
        logger.warning("dcgmi did not end", extra={"pid": process.pid})
