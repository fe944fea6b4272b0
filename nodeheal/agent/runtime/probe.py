"""Runs one command in a process of its own, bounded in time and output even if the hardware hangs it."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

KILL_GRACE_SECONDS = 2.0
POLL_SECONDS = 0.05
NOT_INSTALLED = "not installed"
_PR_SET_PDEATHSIG = 1  # prctl(2)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ran:
    """How a command ended. `error` is empty where it ran to its end."""

    seconds: float = 0.0
    exit_code: int | None = None
    is_truncated: bool = False
    error: str = ""

    @property
    def has_hung(self) -> bool:
        """Whether it was given up at its deadline."""
        return self.error.startswith("no answer")


def run(command: Sequence[str], output: Path, seconds: float, limit_bytes: int, errors: Path | None = None) -> Ran:
    """Run the command with its output in `output`, bounded in seconds and bytes. Never raises, never hangs.

    Its error output goes to `errors`, if given, with the same limit.

    The output goes to a file and not through a pipe, which a process that cannot be killed could keep open. On Linux
    the command is killed when this process dies: SSM kills a cancelled command with SIGKILL, and only its own process
    group.
    """
    began, outputs = time.monotonic(), [output, errors] if errors else [output]
    try:
        process = _start(command, output, errors)
    except FileNotFoundError:
        return Ran(error=NOT_INSTALLED)
    except OSError as error:
        return Ran(error=str(error.strerror))
    try:
        given_up = _wait(process, outputs, began + seconds, limit_bytes)
    finally:
        if process.poll() is None:
            _kill(process)
    took = round(time.monotonic() - began, 2)
    is_cut = sum(_cut(file, limit_bytes) for file in outputs) > 0
    return Ran(took, process.returncode, is_cut, f"no answer within {seconds:g} s" * given_up)


def _start(command: Sequence[str], output: Path, errors: Path | None) -> "subprocess.Popen[bytes]":
    """Start it in its own process group, so that its children end with it."""
    with output.open("wb") as file, errors.open("wb") if errors else nullcontext(file) as complaints:
        return subprocess.Popen(
            list(command),
            cwd=output.parent,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=complaints,
            start_new_session=True,
            preexec_fn=killed_with(os.getpid()) if sys.platform == "linux" else None,
        )


def killed_with(parent: int, *requests: tuple[int, int]) -> Callable[[], None]:
    """Return a function for the child to call before the command: it ends with its parent. `requests`: further prctl(2)
    calls.

    Everything it needs is loaded here, since no other thread exists in the child.
    """
    import ctypes  # imported only where a tool is run

    prctl = ctypes.CDLL(None).prctl

    def ask_the_kernel() -> None:
        for request, value in ((_PR_SET_PDEATHSIG, int(signal.SIGKILL)), *requests):
            prctl(request, value, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the request
            os._exit(1)

    return ask_the_kernel


def _wait(process: "subprocess.Popen[bytes]", outputs: Sequence[Path], until: float, limit_bytes: int) -> bool:
    """Wait for its end, its deadline or too much output. Returns whether it was the deadline."""
    while process.poll() is None and all(file.stat().st_size <= limit_bytes for file in outputs):
        if time.monotonic() >= until:
            return True
        time.sleep(POLL_SECONDS)
    return False


def _cut(output: Path, limit_bytes: int) -> bool:
    if output.stat().st_size <= limit_bytes:
        return False
    os.truncate(output, limit_bytes)
    return True


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill it with its children. One that blocks in the driver cannot be killed; it is left behind, and logged."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=KILL_GRACE_SECONDS)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        logger.warning(
            "a process cannot be killed and is left behind", extra={"command": process.args, "pid": process.pid}
        )
