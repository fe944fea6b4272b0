"""Starts programs that stay, and ends only these."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

_END_SECONDS = 10.0
_POLL_SECONDS = 0.1
_TAIL_CHARACTERS = 3_000


class DaemonEndedError(RuntimeError):
    """A program has ended that should have stayed."""


class Daemons:
    """The programs of one control plane, in the order of their start."""

    def __init__(self, folder: Path) -> None:
        """`folder`: where each program has its log."""
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, path: Path, arguments: list[str], environment: Mapping[str, str] | None = None) -> None:
        """Start a program; its log has its name."""
        with self.log_of(path.name).open("wb") as log:
            self._running[path.name] = subprocess.Popen(
                [str(path), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(environment or {})},
                cwd=self._folder,
                start_new_session=True,  # Ctrl-C reaches this process, which ends them in their order
            )

    def log_of(self, name: str) -> Path:
        """Return the path of a program's log."""
        return self._folder / f"{name}.log"

    def check(self) -> None:
        """Raise DaemonEndedError, with the end of the log, if a program has ended."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise DaemonEndedError(f"{name} has ended with {process.returncode}:\n{self._tail(name)}")

    def wait(self, is_ready: Callable[[], bool], what: str, seconds: float) -> None:
        """Wait until it is ready; raise TimeoutError after that many seconds, or DaemonEndedError."""
        deadline = time.monotonic() + seconds
        while not is_ready():
            self.check()
            if time.monotonic() > deadline:
                tails = "\n".join(f"--- {name}\n{self._tail(name)}" for name in self._running)
                raise TimeoutError(f"not after {seconds:g} s: {what}\n{tails}")
            time.sleep(_POLL_SECONDS)

    def end(self) -> None:
        """End the programs, the last one first."""
        while self._running:
            _, process = self._running.popitem()
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def pids(self) -> dict[str, int]:
        """Return the process id of each program."""
        return {name: process.pid for name, process in self._running.items()}

    def _tail(self, name: str) -> str:
        """Return the end of a program's log."""
        return self.log_of(name).read_text("utf-8", "replace")[-_TAIL_CHARACTERS:]
