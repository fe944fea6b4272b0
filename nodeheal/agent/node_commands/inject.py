"""`nodeheal-agent run inject`: a drill. Writes one fault line where this node's agent reads kernel messages.

It needs `drills` in the configuration, and a line that is marked as a drill: the recovery that follows is real.
"""

import argparse
import base64
import binascii
import json
import logging
import os
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from nodeheal.agent.commands.node_command import EXIT_DONE, EXIT_REFUSED, NodeCommand, why_refuse
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.config import AgentConfig, KernelLog
from nodeheal.agent.runtime.safe_files import open_file
from nodeheal.contract.names import DRILL_MARK

# A kernel record has at most 1 KiB.
LINE_CHARACTERS = 800
# The level of an error. The kernel itself sets the facility of what user space writes.
_KMSG_LEVEL = "<3>"
_DEVICE = "/dev/kmsg"
LOG_MODE = 0o640

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class InjectCommand:
    """The line, the boot, and the expiry."""

    line_base64: str
    boot_id: str
    expires_at: float


def inject(command: InjectCommand, config: AgentConfig, clock: Clock) -> int:
    """Write the line; returns the exit code. Refused where the command is stale, or this node accepts no drills."""
    line = _decoded(command.line_base64)
    refusal = why_refuse([command.boot_id], command.expires_at, config.boot_id(), clock) or _why_not(line, config)
    if refusal:
        return _refuse(refusal)
    log = config.kernel_log[0]
    try:
        _write(log, line, clock)
    except OSError as error:
        return _refuse(f"{log.path or log.kind} cannot be written: {error.strerror}")
    sys.stdout.write(json.dumps({"injected": line, "log": log.path or log.kind}) + "\n")
    return EXIT_DONE


def _refuse(why: str) -> int:
    logger.error("drill refused", extra={"why": why})
    sys.stdout.write(json.dumps({"refused": why}) + "\n")
    return EXIT_REFUSED


def _decoded(text: str) -> str:
    """Decode the line; empty where it is not valid."""
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _why_not(line: str, config: AgentConfig) -> str | None:
    if not config.drills:
        return "this node accepts no drills: set `drills = true` in its configuration and restart the agent"
    if not line or len(line) > LINE_CHARACTERS or not line.isprintable():
        return f"the line is not one of 1 to {LINE_CHARACTERS} printable ASCII characters"
    return None if DRILL_MARK in line else f"the line lacks the mark of a drill: {DRILL_MARK}"


def _write(log: KernelLog, line: str, clock: Clock) -> None:
    if log.kind != "file":  # journald reads the device, too
        # One write is one record; a buffered file could split it.
        with Path(log.path if log.kind == "kmsg" else _DEVICE).open("wb", buffering=0) as device:
            device.write(f"{_KMSG_LEVEL}{line}\n".encode())
        return
    stamp = clock.utc_now().isoformat(timespec="microseconds")
    record = f"{stamp} {platform.node() or 'node'} kernel: [{time.monotonic():12.6f}] {line}\n"
    with open_file(log.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, LOG_MODE) as file:
        file.write(record.encode("ascii", "replace"))


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--line", required=True, help="the kernel message, as URL-safe Base64")


def _carry_out(arguments: argparse.Namespace, config: AgentConfig) -> int:
    return inject(InjectCommand(arguments.line, arguments.boot_id, arguments.expires_at), config, Clock())


COMMAND = NodeCommand(
    help="a drill: write a fault where the agent reads kernel messages",
    add_arguments=_add_arguments,
    carry_out=_carry_out,
)
