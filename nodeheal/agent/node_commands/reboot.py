"""`nodeheal-agent run reboot`: ends the given boot once, however often and however late the command arrives.

The command ends with success, and systemd reboots the node `DELAY_SECONDS` later. Where systemd does not accept such a
timer, the command ends with exit code 194. The SSM agent then reboots the node about a minute later
(`FALLBACK_SECONDS`) and runs the same command again. Only the boot id keeps that rerun, and any other late copy of the
command, from a second reboot. The mark on disk distinguishes the rerun from a command that came too late.
"""

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeheal.agent.commands.node_command import EXIT_DONE, EXIT_REFUSED, NodeCommand, why_refuse
from nodeheal.agent.runtime import orders, systemd
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.config import AgentConfig
from nodeheal.contract.json_text import read_json

EXIT_REBOOT = 194
MARK = "rebooted.json"
UNIT, FORCED_UNIT = "nodeheal-reboot", "nodeheal-reboot-forced"

# The reply of the SSM agent (3.3) needs 2 s at most: its document worker hands the result over in a file that may be
# read five times, 200 ms apart (filewatcherchannel.go), and the agent waits 1 s for the service to acknowledge it
# (agentruncommandreplytype.go). The worker itself ends 3 s after that (outofproc/worker/main.go). A reply that is late
# all the same lies on disk, and is sent after the boot.
DELAY_SECONDS = 3
# The SSM agent stops its modules first, 15 s at most (coremanager.go; 4.4 s were seen), and then runs
# `shutdown -r +1` (rebooter_unix.go).
FALLBACK_SECONDS = 70
# A disk that accepts no writes would block `sync`, and a reboot that waits for it.
_FORCED_REBOOT = "sync & sleep 10; reboot --force --no-sync"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RebootCommand:
    """The boot to end, the expiry, and the diagnostics to store for the next boot."""

    boot_id: str
    expires_at: float
    after_boot: str = ""


def reboot(order: RebootCommand, config: AgentConfig, clock: Clock, call: systemd.Call = systemd.call) -> int:
    """Reboot the node, or report why not; returns the exit code. The result is one line of JSON."""
    running, folder = config.boot_id(), Path(config.orders_dir)
    refusal = why_refuse([order.boot_id], order.expires_at, running, clock)
    if running != order.boot_id and _is_fulfilled(order, folder, clock):
        return _answer({"already_rebooted": order.boot_id, "boot_id": running}, EXIT_DONE)
    refusal = refusal or _too_late(order, DELAY_SECONDS, clock)
    if refusal is not None:
        return _refuse(refusal)
    why_not = arm(config.reboot_force_seconds, call)
    if not why_not:
        _leave_mark(order, folder)
        # After arming the timer: a disk that hangs must not keep the node from its reboot.
        left = orders.leave(order.after_boot, running, config, call)
        diagnoses = {"diagnoses": left} if left else {}
        return _answer({"rebooting": running, "in_seconds": DELAY_SECONDS, **diagnoses}, EXIT_DONE)
    refusal = _too_late(order, FALLBACK_SECONDS, clock)
    if refusal is not None:
        return _refuse(f"{refusal}; systemd arms no reboot: {why_not}")
    logger.warning("systemd does not schedule the reboot; the SSM agent reboots the node", extra={"why": why_not})
    _leave_mark(order, folder)
    return _answer({"rebooting": running, "in_seconds": FALLBACK_SECONDS}, EXIT_REBOOT)


def arm(force_seconds: float, call: systemd.Call) -> str:
    """Schedule the reboot with systemd in `DELAY_SECONDS`. Returns why that failed, or an empty string. A second call
    in a boot changes nothing.

    A shutdown that is not complete `force_seconds` later is forced: a process that blocks in a driver never ends, and
    systemd's own limit is half an hour.
    """
    why_not = _start_timer(UNIT, DELAY_SECONDS, ["systemctl", "reboot", "-i"], [], call)
    if why_not and call(["systemctl", "is-active", "--quiet", f"{UNIT}.timer", f"{FORCED_UNIT}.timer"]):
        return why_not
    # When the shutdown begins, systemd stops every other timer, and starts nothing in a slice that is to stop.
    outlives = ["--timer-property=DefaultDependencies=no", "--property=DefaultDependencies=no", "--slice=-.slice"]
    forced = ["sh", "-c", _FORCED_REBOOT]
    unbounded = _start_timer(FORCED_UNIT, DELAY_SECONDS + force_seconds, forced, outlives, call)
    if unbounded and not why_not:
        logger.warning(
            "the forced reboot cannot be scheduled; systemd's own limit applies to the shutdown",
            extra={"why": unbounded},
        )
    return ""


def _start_timer(unit: str, seconds: float, command: Sequence[str], more: Sequence[str], call: systemd.Call) -> str:
    """Run the command once, later, in a cgroup of its own. A unit of this name that exists already is an error."""
    # The default accuracy of a timer is a minute.
    when = [f"--on-active={seconds:g}", "--timer-property=AccuracySec=100ms"]
    return call(["systemd-run", f"--unit={unit}", *when, *more, "--collect", "--quiet", *command])


def _too_late(order: RebootCommand, seconds: int, clock: Clock) -> str | None:
    """Return why the node cannot go down in time for the command; None where it can."""
    left = order.expires_at - clock.utc_now().timestamp()
    if left >= seconds:
        return None
    return f"the command expires in {left:.0f} s, and the node would go down {seconds} s from now"


def _is_fulfilled(order: RebootCommand, folder: Path, clock: Clock) -> bool:
    """Whether the boot has ended: by this command or, before the command expired, for any other reason."""
    return clock.utc_now().timestamp() < order.expires_at or _marked(folder) == order.boot_id


def _leave_mark(order: RebootCommand, folder: Path) -> None:
    """Write the mark before the reboot. A disk that accepts no writes is no reason not to reboot: it may be the
    fault.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = folder / f".{MARK}.new"
        with fresh.open("w", encoding="utf-8") as file:
            file.write(json.dumps({"boot_id": order.boot_id}))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(folder / MARK)
    except OSError as error:
        logger.error("the mark for the rerun of this command cannot be written", extra={"why": error})


def _marked(folder: Path) -> str:
    """Return the boot that a command ended here last; empty where that is not known."""
    try:
        mark = read_json((folder / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return str(mark.get("boot_id", "")) if isinstance(mark, dict) else ""


def _refuse(why: str) -> int:
    logger.error("reboot refused", extra={"why": why})
    return _answer({"refused": why}, EXIT_REFUSED)


def _answer(answer: dict[str, object], code: int) -> int:
    sys.stdout.write(json.dumps(answer) + "\n")
    return code


def _add_arguments(_: argparse.ArgumentParser) -> None:
    """Add no options beyond those of every command."""


def _carry_out(arguments: argparse.Namespace, config: AgentConfig) -> int:
    asked = RebootCommand(arguments.boot_id, arguments.expires_at, os.environ.get(orders.VARIABLE, ""))
    return reboot(asked, config, Clock())


COMMAND = NodeCommand(
    help="reboot in a few seconds; exit code 194: the SSM agent must do it",
    add_arguments=_add_arguments,
    carry_out=_carry_out,
)
