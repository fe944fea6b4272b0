"""Follows a long-running command such as `journalctl --follow`, and returns its lines as they come.

The command is restarted when it ends, after a growing pause. Each failure is logged once.
"""

import contextlib
import logging
import math
import os
import subprocess
from collections.abc import Callable, Sequence

READ_BYTES = 64 * 1024  # capacity of a pipe
TURN_BYTES = 512 * 1024  # the agent has other work than reading from a command that never stops
LINE_BYTES = 64 * 1024  # a longer line is skipped up to its newline
COMPLAINT_BYTES, COMPLAINT_CHARACTERS, COMPLAINT_SECONDS = 4096, 500, 60.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
# A command that ran for so long has worked: its next end is logged, and its restart pause is short.
STEADY_SECONDS = 60.0
END_SECONDS = 2.0
# A silent kernel and a hung command look the same. After this time the command is ended and restarted at the same
# position: nothing is lost, and it costs some hundredths of a second.
SILENT_SECONDS = 600.0

logger = logging.getLogger(__name__)


class Follower:
    """One command and its pipes. `descriptor` stays the same over restarts of the command, so that select can wait on
    it.

    This process also holds the write ends. So the end of the command causes no end-of-file, and `read` checks for it. A
    command that notices a reader's death ends with the agent; journalctl does.
    """

    def __init__(self, command: Callable[[], Sequence[str]]) -> None:
        """Start the command that `command` returns; it is called at every start. Raises OSError where the command
        cannot be started.
        """
        self._command = command
        self.descriptor, self._output = _pipe()
        self._complaints, self._errors = _pipe()
        self._open = [self.descriptor, self._output, self._complaints, self._errors]
        self._rest = b""
        self._is_overlong = False
        self._pause = FIRST_PAUSE_SECONDS
        self._started_at: float | None = None
        self._heard_at = 0.0
        self._doubted_at: float | None = None
        self.is_asked_again = False  # restarted after a silence, and has not printed anything yet
        self._starts_at = 0.0
        self._heeds_from = -math.inf
        self._told: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = self._start()
        except OSError:
            self.close()
            raise

    def read(self, now: float) -> bytes:
        """Return the whole lines since the last call, bounded for one turn. `now`: monotonic seconds."""
        if self._process is None:
            self._start_when_due(now)
        self._started_at = now if self._started_at is None else self._started_at
        # Polled before the last read: all output from before its end is then in the pipe.
        ended = self._process.poll() if self._process is not None else None
        data = _drain(self.descriptor, TURN_BYTES)
        lines = self._whole(data)
        if data:
            self._heard_at, self.is_asked_again = now, False
        elif ended is None:
            self._doubt(now)
        if complaint := _drain(self._complaints, COMPLAINT_BYTES):
            self._pass_on(complaint.decode("utf-8", "replace").strip()[:COMPLAINT_CHARACTERS], now)
        if ended is not None and len(data) < TURN_BYTES:
            self._bury(ended, now)
        return lines

    def close(self) -> None:
        """End the command."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
            self._process = None
        for descriptor in self._open:
            os.close(descriptor)
        self._open = []

    def _start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            list(self._command()), stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._errors
        )

    def _start_when_due(self, now: float) -> None:
        if now < self._starts_at:
            return
        self._started_at = now
        try:
            self._process = self._start()
        except OSError as error:
            self._wait(now)
            self._complain("it cannot be run", str(error.strerror))

    def _doubt(self, now: float) -> None:
        """Whether to end the command after a long silence. Its pipe is read again only when the process has ended."""
        began = now if self._started_at is None else self._started_at
        if self._process is None or now - max(self._heard_at, began) < SILENT_SECONDS:
            return
        if self._doubted_at is None:
            self._process.kill()
            self._doubted_at = now
        elif now - self._doubted_at >= END_SECONDS:
            self._complain("it is silent", "and it cannot be ended")

    def _bury(self, code: int, now: float) -> None:
        """Clean up after its end. A partial line is dropped: the next process prints it again, from the last whole line
        on.
        """
        self._process, self._rest, self._is_overlong = None, b"", False
        if self._doubted_at is not None:
            self._doubted_at, self.is_asked_again, self._starts_at = None, True, now
            return
        if now - (self._started_at or now) >= STEADY_SECONDS:
            self._pause = FIRST_PAUSE_SECONDS
            self._told.clear()
        self._complain("it has ended", f"exit code {code}")
        self._wait(now)

    def _wait(self, now: float) -> None:
        self._starts_at = now + self._pause
        self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)

    def _pass_on(self, complaint: str, now: float) -> None:
        """Log what the command prints to stderr, bounded, since it may differ each second."""
        if now >= self._heeds_from:
            self._heeds_from = now + COMPLAINT_SECONDS
            self._complain("it complains", complaint)

    def _complain(self, what: str, why: str) -> None:
        if self._told.get(what) != why:
            self._told[what] = why
            tool = os.path.basename(self._command()[0])  # noqa: PTH119
            logger.warning("the command that is followed has reported an error", extra={"tool": tool, what: why})

    def _whole(self, data: bytes) -> bytes:
        """Return the lines that are complete now; keep the rest."""
        if self._is_overlong:
            _, newline, data = data.partition(b"\n")
            self._is_overlong = not newline
        end = data.rfind(b"\n") + 1
        whole = self._rest + data[:end] if end else b""
        self._rest = data[end:] if end else self._rest + data
        if len(self._rest) > LINE_BYTES:
            self._rest, self._is_overlong = b"", True
        return whole


def _pipe() -> tuple[int, int]:
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    return ours, theirs


def _drain(descriptor: int, limit: int) -> bytes:
    """Read what is available, until it is `limit` bytes or more."""
    pieces: list[bytes] = []
    with contextlib.suppress(BlockingIOError):
        while sum(map(len, pieces)) < limit:
            pieces.append(os.read(descriptor, READ_BYTES))
    return b"".join(pieces)
