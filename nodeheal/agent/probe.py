"""Runs one command in a process of its own: bounded in time and in output, whatever the hardware does to it."""

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
    """How a command went. `error` is empty where it ran to its end."""

    seconds: float = 0.0
    exit_code: int | None = None
    is_truncated: bool = False
    error: str = ""

    @property
    def has_hung(self) -> bool:
        """Whether it was given up at its deadline."""
        return self.error.startswith("no answer")


def run(command: Sequence[str], output: Path, seconds: float, limit_bytes: int, errors: Path | None = None) -> Ran:
    """Run the command with what it prints in `output`, at most so long and so much. Never raises, never hangs.

    What it complains about goes to `errors`, if that is given, and is bounded likewise.

    What it prints goes to a file and not through a pipe: a process that nobody can end must not hold us by one.
    On Linux the command is killed when this process dies: SSM kills a cancelled command with SIGKILL, and only its own
    process group.
    """
    began, said = time.monotonic(), [output, errors] if errors else [output]
    try:
        process = _start(command, output, errors)
    except FileNotFoundError:
        return Ran(error=NOT_INSTALLED)
    except OSError as error:
        return Ran(error=str(error.strerror))
    try:
        given_up = _wait(process, said, began + seconds, limit_bytes)
    finally:
        if process.poll() is None:
            _kill(process)
    took = round(time.monotonic() - began, 2)
    is_cut = sum(_cut(file, limit_bytes) for file in said) > 0
    return Ran(took, process.returncode, is_cut, f"no answer within {seconds:g} s" * given_up)


def _start(command: Sequence[str], output: Path, errors: Path | None) -> "subprocess.Popen[bytes]":
    """Start it in its own group, so that its children end with it."""
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
    """To run in the child before the command: it ends with its parent. `requests`: what else prctl(2) is asked for.

    All that it needs is loaded here: no other thread lives in the child.
    """
    import ctypes  # only where a tool is run

    prctl = ctypes.CDLL(None).prctl

    def ask_the_kernel() -> None:
        for request, value in ((_PR_SET_PDEATHSIG, int(signal.SIGKILL)), *requests):
            prctl(request, value, 0, 0, 0)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)

    return ask_the_kernel


def _wait(process: "subprocess.Popen[bytes]", said: Sequence[Path], until: float, limit_bytes: int) -> bool:
    """Wait for its end, its deadline or too much output; whether it was the deadline."""
    while process.poll() is None and all(file.stat().st_size <= limit_bytes for file in said):
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
    """End it with its children. One that waits in the driver cannot be ended; it is left behind, and said to be."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=KILL_GRACE_SECONDS)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        logger.warning("a probe did not end", extra={"command": process.args, "pid": process.pid})
