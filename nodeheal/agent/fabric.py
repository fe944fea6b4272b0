"""`nodeheal-agent run fabric`: tests the way between this node and another, and reports the verdict."""

import logging
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from nodeheal.agent.bus import EventBus
from nodeheal.agent.clock import Clock
from nodeheal.agent.config import AgentConfig
from nodeheal.agent.diagnose import summary
from nodeheal.agent.diagnostics.bench import Bench
from nodeheal.agent.diagnostics.fabric import Way, check
from nodeheal.agent.event import Speaker
from nodeheal.agent.order import EXIT_DONE, EXIT_REFUSED, report, why_refuse
from nodeheal.agent.spool import Spool
from nodeheal.parsers.finding import Report
from nodeheal.parsers.tool_report import unknown

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FabricOrder:
    """Which way, for which boot, until when; contract.fabric has it as the control plane words it."""

    way: Way
    request_id: str
    boot_id: str
    expires_at: float


def try_fabric(order: FabricOrder, config: AgentConfig, spool: Spool, bus: EventBus, clock: Clock) -> int:
    """Test, report, and print one line of JSON; the exit code. A stale order is refused and nothing is reported."""
    refusal = why_refuse([order.boot_id], order.expires_at, config.boot_id(), clock)
    if refusal:
        logger.error("test of the fabric refused", extra={"why": refusal, "request": order.request_id})
        return EXIT_REFUSED
    left = order.expires_at - clock.utc_now().timestamp()
    found, said = _try(replace(order.way, seconds=min(order.way.seconds, left)), clock)
    speaker = Speaker(config.identity, order.boot_id)
    event = speaker.diagnosed(order.request_id, found, (), f"{found.reason}\n{said}", clock.utc_now())
    report(event, spool, bus)
    sys.stdout.write(summary(event, found.reason) + "\n")
    return EXIT_DONE


def _try(way: Way, clock: Clock) -> tuple[Report, str]:
    """A disk that takes no output is no fault of the fabric: nobody can tell."""
    try:
        with tempfile.TemporaryDirectory(prefix="nodeheal-", ignore_cleanup_errors=True) as folder:
            found, output = check(Bench(Path(folder), level=1, accelerators=0), way, clock.monotonic)
            return found, f"{output.errors}{output.text}"
    except OSError as error:
        return unknown(f"the tools' output cannot be kept: {error}"), ""
