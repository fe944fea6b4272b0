"""`nodeheal-agent run fabric`: tests the network between this node and another, and reports the verdict."""

import argparse
import logging
import re
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from nodeheal.agent.commands.node_command import (
    EXIT_DONE,
    EXIT_REFUSED,
    NodeCommand,
    add_request_id,
    end_well_when_terminated,
    number,
    report,
    whole_number,
    why_refuse,
)
from nodeheal.agent.diagnostics.bench import Bench
from nodeheal.agent.diagnostics.fabric import FabricTest, check
from nodeheal.agent.node_commands.diag import summary
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.compose import event_bus, open_spool
from nodeheal.agent.runtime.config import AgentConfig
from nodeheal.agent.transport.bus import EventBus
from nodeheal.agent.transport.event import EventFactory
from nodeheal.agent.transport.spool import Spool
from nodeheal.contract.vocabulary import FabricRole
from nodeheal.parsers.finding import ToolReport
from nodeheal.parsers.tool_report import unknown

FABRIC_PORT, FABRIC_SECONDS = 47592, 60.0  # as in contract.fabric; a test compares them
LONGEST_FABRIC_SECONDS = 600.0
FASTEST_MB_PER_SECOND = 9_999_999  # the seven digits that the SSM document accepts
_PEER = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,254}")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FabricTestCommand:
    """The test, the boot, and the expiry; contract.fabric is the control plane's form."""

    fabric_test: FabricTest
    request_id: str
    boot_id: str
    expires_at: float


def try_fabric(command: FabricTestCommand, config: AgentConfig, spool: Spool, bus: EventBus, clock: Clock) -> int:
    """Test, report, and print one line of JSON; returns the exit code. Refuses a stale command without a report."""
    refusal = why_refuse([command.boot_id], command.expires_at, config.boot_id(), clock)
    if refusal:
        logger.error("test of the fabric refused", extra={"why": refusal, "request": command.request_id})
        return EXIT_REFUSED
    left = command.expires_at - clock.utc_now().timestamp()
    answer, output = _try(replace(command.fabric_test, seconds=min(command.fabric_test.seconds, left)), clock)
    event_factory = EventFactory(config.identity, command.boot_id)
    event = event_factory.diagnosed(command.request_id, answer, (), f"{answer.reason}\n{output}", clock.utc_now())
    report(event, spool, bus)
    sys.stdout.write(summary(event, answer.reason) + "\n")
    return EXIT_DONE


def _try(fabric_test: FabricTest, clock: Clock) -> tuple[ToolReport, str]:
    """Run the test. A disk that stores no output is no fault of the fabric: UNKNOWN."""
    try:
        with tempfile.TemporaryDirectory(prefix="nodeheal-", ignore_cleanup_errors=True) as folder:
            answer, output = check(Bench(Path(folder), level=1, accelerators=0), fabric_test, clock.monotonic)
            return answer, f"{output.errors}{output.text}"
    except OSError as error:
        return unknown(f"the tools' output cannot be stored: {error}"), ""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_id(parser)
    parser.add_argument(
        "--peer", type=_peer, required=True, help="address of the node that serves; none: this one serves"
    )
    port = f"port of the node that serves; default: {FABRIC_PORT}"
    parser.add_argument("--port", type=whole_number(1, 65_535), default=FABRIC_PORT, help=port)
    parser.add_argument(
        "--seconds",
        type=number(1, LONGEST_FABRIC_SECONDS),
        default=FABRIC_SECONDS,
        help="seconds for all of it, waiting included",
    )
    speed, any_speed = number(0, FASTEST_MB_PER_SECOND), "below this the test fails; default: any speed passes"
    parser.add_argument("--min-mb-per-second", type=speed, default=0.0, help=any_speed)
    parser.add_argument(
        "--all-reduce", choices=("yes", "no"), default="no", help="then run an all-reduce over both nodes' GPUs"
    )
    parser.add_argument(
        "--min-all-reduce-mb-per-second",
        type=speed,
        default=0.0,
        help="bus bandwidth of the all-reduce; below this it fails",
    )


def _peer(text: str) -> str | None:
    if text == "none":
        return None
    if not _PEER.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}: give a host name or an IPv4 address, or none to serve")
    return text


def _carry_out(arguments: argparse.Namespace, config: AgentConfig) -> int:
    end_well_when_terminated()
    clock, peer = Clock(), arguments.peer
    role = FabricRole.SERVE if peer is None else FabricRole.CONNECT
    fabric_test = FabricTest(
        role,
        peer or "",
        arguments.port,
        arguments.seconds,
        arguments.min_mb_per_second,
        arguments.all_reduce == "yes",
        arguments.min_all_reduce_mb_per_second,
    )
    command = FabricTestCommand(fabric_test, arguments.request_id, arguments.boot_id, arguments.expires_at)
    return try_fabric(command, config, open_spool(config), event_bus(config, clock), clock)


COMMAND = NodeCommand(
    help="test the network to another node, which must run the same command",
    add_arguments=_add_arguments,
    carry_out=_carry_out,
)
