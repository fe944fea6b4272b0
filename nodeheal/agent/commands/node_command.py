"""Defines what every command to a node has in common: its description, its target, and its answer."""

import argparse
import logging
import math
import re
import signal
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass

from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.config import AgentConfig
from nodeheal.agent.transport.bus import BusUnavailable, EventBus
from nodeheal.agent.transport.event import Entry, NodeFact
from nodeheal.agent.transport.spool import Spool

EXIT_DONE = 0
EXIT_REFUSED = 3
EXIT_TERMINATED = 128 + signal.SIGTERM
LATEST = 999_999_999_999  # seconds: the twelve digits that the SSM documents accept
REQUEST_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._:/#@=+-]{0,127}")  # as in the SSM documents; a test compares them

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class NodeCommand:
    """One command, as its module in `nodeheal.agent.node_commands` describes it under the name `COMMAND`.

    `nodeheal-agent run` offers it under the name of the module, with dashes.
    """

    help: str
    # Its own options; every command has the boot and its expiry.
    add_arguments: Callable[[argparse.ArgumentParser], None]
    carry_out: Callable[[argparse.Namespace, AgentConfig], int]  # returns the exit code; raises ConfigError, OSError


def add_request_id(parser: argparse.ArgumentParser) -> None:
    """Add the option of every command that answers with a report."""
    parser.add_argument("--request-id", type=_request_id, required=True, help="echoed in the report")


def _request_id(text: str) -> str:
    if not REQUEST_ID.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}: give 1 to 128 letters, digits or ._:/#@=+-")
    return text


def number(least: float, most: float) -> Callable[[str], float]:
    """An option's type: a number from `least` to `most`. `nan` is refused."""

    def read(text: str) -> float:
        try:
            given = float(text)
        except ValueError:
            given = math.nan
        if not least <= given <= most:
            raise argparse.ArgumentTypeError(f"{text!r}: give a number, {least:g} to {most:.12g}")
        return given

    return read


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """An option's type: a whole number from `least` to `most`."""

    def read(text: str) -> int:
        given = int(text) if re.fullmatch(r"[0-9]{1,12}", text) else -1
        if not least <= given <= most:
            raise argparse.ArgumentTypeError(f"{text!r}: give a whole number, {least} to {most}")
        return given

    return read


def why_refuse(meant_for: Collection[str], expires_at: float, boot_id: str, clock: Clock) -> str | None:
    """Return why a command for these boots must not run on this one now; None where it may."""
    if boot_id not in meant_for:
        return f"meant for boot {', '.join(meant_for)}, this is {boot_id}"
    now = clock.utc_now().timestamp()
    if not now < expires_at:  # an expiry that is not a number is refused: `nan` compares as not later
        return f"the command has expired: its end is {expires_at:.0f}, this node's clock says {now:.0f}"
    return None


def report(event: NodeFact, spool: Spool, bus: EventBus) -> None:
    """Store the answer, then try to deliver it. If that fails, the running agent delivers it, now or after a
    restart.
    """
    spool.put([event])
    entry = Entry(
        event.event_id, event.detail_type, event.to_json(), event.observed_at.timestamp(), event.boot_id, spool.zero()
    )
    try:
        receipt = bus.put([entry])
    except BusUnavailable as error:
        logger.error("the bus is out of reach; the agent will deliver the result", extra={"why": error})
        return
    if receipt.later:
        logger.error("the bus has not accepted the result; the agent will deliver it", extra={"why": receipt.why_later})
    spool.forget(receipt.accepted)


def end_well_when_terminated() -> None:
    """Exit normally on a termination signal, so that no tool outlives the command that started it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))
