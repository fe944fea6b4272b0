"""Shows how a training program gets on, in a file that nodeheal's agent reads on the node (docs/jobs.md).

For training programs: the standard library is all it needs, and Python 3.8 will do. Where nodeheal is not installed,
copy this one file into the image.

    progress = Progress()
    progress.ready()
    for step in range(first, steps):
        loss = train(step)
        progress.step(step, loss=loss)

No call raises, and none waits for another rank: a rank that cannot write is not watched. Give numbers that are at hand:
`tensor.item()` waits for the accelerator, at each step.
"""

from __future__ import annotations

import atexit
import itertools
import os
import re
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_LINES, _LINE_BYTES = 64, 192  # a ring: the file stays small, and has the last steps of its rank
_LOCAL_RANKS = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
_PAUSE_CHARACTERS = 16
_ENDED = "ended"  # what a program is at that has ended
_LARGEST = 10**18
_NO_NUMBER = '"nan"'


class Progress:
    """The file of this rank. Without NODEHEAL_PROGRESS_FILE in the environment it shows nothing."""

    def __init__(self) -> None:
        self._path = _path_of_rank(os.environ.get("NODEHEAL_PROGRESS_FILE", ""))
        self._descriptor: int | None = None
        self._count = itertools.count()  # a thread that saves writes, too: each line has a place of its own
        self._step = ""
        self._saved: dict[str, str] = {}
        self._pauses: tuple[str, ...] = ()
        self._stepped_at: float | None = None  # by the monotonic clock
        self._paused_at = self._paused_seconds = 0.0
        self._compute_seconds: float | None = None
        self._waits = False
        self._good_step = ""  # the last whose loss was finite
        self._process = os.getpid()
        atexit.register(self._end)

    def ready(self) -> None:
        """Show that the first step is about to begin: from here on a hang is noticed."""
        self._write({})

    def waits(self) -> None:
        """Show that this rank's own work of the step is done, and that it waits for the others from here on: they wait
        for a rank that never comes so far. Call it before the first collective of a step.
        """
        if self._stepped_at is not None:
            self._compute_seconds = time.monotonic() - self._stepped_at - self._paused_seconds
        self._waits = True
        self._write({})

    def step(
        self, step: int, loss: float | None = None, compute_seconds: float | None = None, tokens: int | None = None
    ) -> None:
        """Show that this step is done.

        `loss`: the step's; `compute_seconds`: this rank's own work in it, without its waits for others, by default the
        time until `waits`; `tokens`: what this rank has trained on in it. A value that is no number is left out.
        """
        now = time.monotonic()
        seconds = None if self._stepped_at is None else now - self._stepped_at - self._paused_seconds
        self._stepped_at, self._paused_seconds = now, 0.0
        self._step = _whole(step) or self._step
        compute_seconds = self._compute_seconds if compute_seconds is None else compute_seconds
        self._compute_seconds, self._waits = None, False
        measured = {"step_seconds": _decimal(seconds), "compute_seconds": _decimal(compute_seconds)}
        shown = _decimal(loss)
        if shown and shown != _NO_NUMBER:
            self._good_step = self._step
        good_step = self._good_step if shown == _NO_NUMBER else ""
        self._write({**measured, "loss": shown, "good_step": good_step, "tokens": _whole(tokens)})

    @contextmanager
    def pause(self, name: str) -> Iterator[None]:
        """Leave the time of this block out of the step, and show meanwhile what the job is at: `evaluation`."""
        if not self._pauses:
            self._paused_at = time.monotonic()
        self._pauses = (*self._pauses, re.sub("[^a-z]", "", str(name).lower())[:_PAUSE_CHARACTERS])
        self._write({})
        try:
            yield
        finally:
            self._pauses = self._pauses[:-1]
            if not self._pauses:
                self._paused_seconds += time.monotonic() - self._paused_at
            self._write({})

    def saved(self, step: int) -> None:
        """Show that a whole checkpoint of this step is written. Any thread may call it."""
        self._saved = {"saved": _whole(step), "saved_at": str(int(time.time()))}
        self._write({})

    def _end(self) -> None:
        """Show that the program has ended, and does not hang. A process that it has forked is another program."""
        if self._step and os.getpid() == self._process:
            self._pauses, self._waits = (_ENDED,), False
            self._write({})

    def _write(self, measured: dict[str, str]) -> None:
        """Write the next line; before the first step only touch the file."""
        if self._path is None:
            return
        with suppress(OSError):  # the folder is not mounted, or full: training goes on
            if self._descriptor is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
                self._descriptor = os.open(self._path, flags, 0o644)
            if self._step:
                place = next(self._count) % _LINES * _LINE_BYTES
                os.pwrite(self._descriptor, self._line(measured), place)
            else:
                os.utime(self._descriptor)

    def _line(self, measured: dict[str, str]) -> bytes:
        """Return the line, with what has room: all but what no training comes near."""
        pauses = self._pauses  # the main thread changes it
        states = {"pause": f'"{pauses[-1]}"' if pauses else "", "waits": "true" if self._waits else ""}
        values = {**states, **measured, **self._saved}
        text = f'{{"step":{self._step},"at":{time.time():.6f}'
        for name, value in values.items():
            part = f',"{name}":{value}'
            if value and len(text) + len(part) < _LINE_BYTES - 1:
                text += part
        return f"{text}}}".ljust(_LINE_BYTES - 1).encode() + b"\n"


def _path_of_rank(file: str) -> Path | None:
    """Return this rank's file: local rank 0 has the one that nodeheal names, the others have theirs beside it."""
    ranks = (os.environ.get(name, "") for name in _LOCAL_RANKS)
    rank = int(next(filter(str.isdecimal, ranks), "0"))
    path = Path(file)
    if not file or rank == 0:
        return path if file else None
    return path.with_name(f"{'.'.join(path.name.split('.')[:2])}.{rank}.steps")  # JOB.RUN


def _whole(value: Any) -> str:
    """Return a whole number from 0 as JSON; empty: it is none."""
    try:
        number = int(value)
    except Exception:  # any that the types of frameworks raise
        return ""
    return str(number) if 0 <= number < _LARGEST else ""


def _decimal(value: Any) -> str:
    """Return a number as JSON, one that is not finite as a string; empty: it is none."""
    try:
        text = f"{float(value):.7g}"
    except Exception:  # any that the types of frameworks raise
        return ""
    return _NO_NUMBER if text.lstrip("-") in {"nan", "inf"} else text
