"""`nodeheal-agent run reboot`: ends the boot that is meant, once, however often and however late the order comes.

The SSM agent does it: on exit code 194 it reboots the node, and then runs the same order again. The boot id alone keeps
that from being a second reboot. The mark on disk only tells the rerun from an order that has come too late.
"""

import json
import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from nodeheal.agent.clock import Clock
from nodeheal.agent.config import AgentConfig
from nodeheal.agent.order import EXIT_DONE, EXIT_REFUSED, why_refuse

EXIT_REBOOT = 194
MARK = "rebooted.json"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RebootOrder:
    """Which boot is to be ended, and until when."""

    boot_id: str
    expires_at: float


def reboot(order: RebootOrder, config: AgentConfig, clock: Clock) -> int:
    """Ask for the reboot, or say why not; the exit code. What came of it is one line of JSON."""
    running = config.boot_id()
    refusal = why_refuse([order.boot_id], order.expires_at, running, clock)
    if refusal is None:
        _leave_mark(order, Path(config.orders_dir))
        return _answer({"rebooting": running}, EXIT_REBOOT)
    if running != order.boot_id and _is_fulfilled(order, Path(config.orders_dir), clock):
        return _answer({"already_rebooted": order.boot_id, "boot_id": running}, EXIT_DONE)
    logger.error("reboot refused", extra={"why": refusal})
    return _answer({"refused": refusal}, EXIT_REFUSED)


def _is_fulfilled(order: RebootOrder, folder: Path, clock: Clock) -> bool:
    """Whether the boot ended as this order wanted, by this order or, while it was still wanted, by anything else."""
    return clock.utc_now().timestamp() < order.expires_at or _marked(folder) == order.boot_id


def _leave_mark(order: RebootOrder, folder: Path) -> None:
    """On disk before the reboot. A disk that takes nothing is no reason to stay: it may be why we are rebooted."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = folder / f".{MARK}.new"
        with fresh.open("w", encoding="utf-8") as file:
            file.write(json.dumps({"boot_id": order.boot_id}))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(folder / MARK)
    except OSError as error:
        logger.error("no mark is left for the rerun of this order", extra={"why": error})


def _marked(folder: Path) -> str:
    """The boot that an order ended here last; empty where none is known."""
    try:
        mark = json.loads((folder / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return str(mark.get("boot_id", "")) if isinstance(mark, dict) else ""


def _answer(told: dict[str, object], code: int) -> int:
    sys.stdout.write(json.dumps(told) + "\n")
    return code
