"""Reads the progress files in which the ranks of a run show their steps; docs/agent.md has their form.

A job may write anything there. What is read is bounded, and what has not the form is left out.
"""

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from nodeheal.agent.runtime.safe_files import open_file
from nodeheal.contract.json_text import read_json

LINES = 64  # of a file
FILE_BYTES = LINES * 192
ENTRIES = 4_096  # of the folder
STEPS = 10**18
LATEST = 1e11  # seconds since the epoch: the year 5138
LARGEST_LOSS = 1e30
_OF_RANK = re.compile(
    r"(?P<job>[a-z0-9-]{1,63})\.(?P<run>[0-9]{1,9})\.([0-9]{1,6}\.json|((?P<rank>[1-9]|[1-5][0-9]|6[0-3])\.)?steps)"
)
_PAUSE = re.compile(r"[a-z]{1,16}")


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A line of a rank: a step that is done, or what the rank is at after it. None: unknown."""

    step: int
    at: float | None = None  # seconds since the epoch
    step_seconds: float | None = None
    compute_seconds: float | None = None
    loss: float | None = None  # not a number where it is not finite
    saved: int | None = None
    saved_at: float | None = None
    pause: str | None = None
    waits: bool = False  # its own work of the next step is done
    good_step: int | None = None  # where the loss is not a number: the last step of which it was one

    @property
    def order(self) -> tuple[int, float]:
        """By step. Only records of the same step are compared by time, since a clock may jump."""
        return self.step, self.at or 0.0


def newest(records: Sequence[StepRecord]) -> StepRecord:
    """Return the newest of a rank's records, which are in the order of its lines: of two at one time the later line."""
    return max(reversed(records), key=lambda record: record.order)


def files_by_run(folder: Path) -> list[tuple[str, dict[int, Path]]]:
    """Return the files of each `JOB/RUN` by local rank; the run that was written last comes first. Never raises."""
    runs: dict[str, dict[int, Path]] = {}
    for _, file, match in sorted(_files(folder)):
        run, rank = f"{match['job']}/{match['run']}", int(match["rank"] or 0)
        runs[run] = {**runs.pop(run, {}), rank: file}
    return list(reversed(runs.items()))


def _files(folder: Path) -> list[tuple[float, Path, re.Match[str]]]:
    """Return the files of ranks, with the time of their last change."""
    try:
        with os.scandir(folder) as entries:
            matches = [(_OF_RANK.fullmatch(entry.name), entry) for entry in islice(entries, ENTRIES)]
            return [(_changed_at(entry), Path(entry.path), match) for match, entry in matches if match]
    except OSError:
        return []  # no job has created it yet


def _changed_at(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except OSError:
        return 0.0  # a job has just removed it


def read_progress(file: Path) -> bytes:
    """Return the content of a progress file, bounded. Raises OSError."""
    with open_file(file) as opened:  # a job may write anything there
        return opened.read(FILE_BYTES)


def step_in(content: bytes) -> int | None:
    """Return the last step of a file; None where it has none."""
    return max((record.step for record in records_in(content)), default=None)


def records_in(content: bytes) -> list[StepRecord]:
    """Return the records of a file, in the order of its lines, which are a ring. It may also be one object, such as
    `{"step": 2037}`.
    """
    written = content.replace(b"\0", b"")  # a line that could not be written, to a full folder, is a hole
    lines = written.split(b"\n", LINES)[:LINES]
    records = [record for line in lines if (record := _record(line))]
    whole = None if records else _record(content)
    return [whole] if whole else records


def _record(text: bytes) -> StepRecord | None:
    try:
        values = read_json(text)
    except ValueError:
        return None
    step = _whole(values.get("step")) if isinstance(values, dict) else None
    if step is None:
        return None
    return StepRecord(
        step,
        at=_seconds(values.get("at")),
        step_seconds=_seconds(values.get("step_seconds")),
        compute_seconds=_seconds(values.get("compute_seconds")),
        loss=_loss(values.get("loss")),
        good_step=_whole(values.get("good_step")),
        saved=_whole(values.get("saved")),
        saved_at=_seconds(values.get("saved_at")),
        pause=_pause(values.get("pause")),
        waits=values.get("waits") is True,
    )


def _whole(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < STEPS else None


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value <= LATEST else None


def _loss(value: object) -> float | None:
    if value != "nan" and not isinstance(value, int | float):
        return None
    return float(value) if isinstance(value, int | float) and abs(value) <= LARGEST_LOSS else math.nan


def _pause(value: object) -> str | None:
    return value if isinstance(value, str) and _PAUSE.fullmatch(value) else None
