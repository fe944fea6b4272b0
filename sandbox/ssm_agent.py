"""The SSM agents of the nodes: they receive commands when their node is up, and really run the scripts."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from sandbox.node import Node
from sandbox.ssm_documents import Document, Script

REBOOT_REQUESTED = 194  # the exit code with which a script asks the SSM agent to reboot and to run it again
OUTPUT_CHARACTERS = 24_000
LONGEST_BOOT_SECONDS = 900.0
MOST_REBOOTS = 10  # a script that asks for ever would keep the node down

ENDED = frozenset({"Success", "Failed", "TimedOut", "Cancelled"})


@dataclass
class Invocation:
    """One command on one node."""

    command_id: str
    node_id: str
    document: Document
    script: Script
    delivery_seconds: int
    requested_at: datetime
    comment: str = ""
    status: str = "Pending"
    details: str = "Pending"
    response_code: int = -1
    output: str = ""
    errors: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    ended: threading.Event = field(default_factory=threading.Event)


Changed = Callable[[Invocation], None]


def carry_out(invocation: Invocation, node: Node, changed: Changed, delay_seconds: float = 0.0) -> None:
    """Deliver the command and see it through, reboots included. `changed` hears every change of status."""
    time.sleep(delay_seconds)  # an agent that was hibernating comes late
    waited = (datetime.now(UTC) - invocation.requested_at).total_seconds()
    if not node.wait_until_up(max(0.0, invocation.delivery_seconds - waited)):
        _end(invocation, "TimedOut", "DeliveryTimedOut", changed)
        return
    invocation.status = invocation.details = "InProgress"
    invocation.started_at = datetime.now(UTC)
    changed(invocation)
    for _ in range(MOST_REBOOTS):
        code = _run_once(invocation, node)
        if code != REBOOT_REQUESTED:
            break
        node.reboot()
        if not node.wait_until_up(LONGEST_BOOT_SECONDS):
            return  # the sandbox closes; nobody is left to be told
    invocation.response_code = 1 if code is None else code
    if code is None:
        _end(invocation, "TimedOut", "ExecutionTimedOut", changed)
    else:
        _end(invocation, *(("Success", "Success") if code == 0 else ("Failed", "Failed")), changed)


def _run_once(invocation: Invocation, node: Node) -> int | None:
    """The script's exit code; None if its time was over."""
    folder = node.directory / "ssm" / invocation.command_id
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "_script.sh"
    script.write_text(invocation.script.text, encoding="utf-8")
    stdout, stderr = folder / "stdout", folder / "stderr"
    command = ["sh", "-c", 'exec sh "$0" 2>>"$1"', str(script), str(stderr)]
    process = node.run(command, folder, stdout, {"AWS_SSM_INSTANCE_ID": invocation.node_id})
    if process is None:
        return 1  # the node went down under us: the agent reports a failed step
    code = _wait(process, invocation.script.execution_seconds)
    invocation.output = _read(stdout)
    invocation.errors = _read(stderr)
    return code


def _wait(process: "subprocess.Popen[bytes]", seconds: int) -> int | None:
    deadline = time.monotonic() + seconds
    try:
        code = process.wait(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None
    return 128 - code if code < 0 else code


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")[:OUTPUT_CHARACTERS] if path.exists() else ""


def _end(invocation: Invocation, status: str, details: str, changed: Changed) -> None:
    invocation.status, invocation.details = status, details
    invocation.ended_at = datetime.now(UTC)
    changed(invocation)
    invocation.ended.set()
