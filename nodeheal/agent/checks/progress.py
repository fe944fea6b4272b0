"""Checks that training jobs progress. Optional: a job takes part by touching a file at every step.

The file is `<folder>/<job>.<run>.<seconds>.json`, from the job's NODEHEAL_PROGRESS_FILE: it may be empty, and its name
states the limit of a step in seconds. Or it is `<folder>/<job>.json` and contains `{"limit_seconds": 900}`. The check
uses the file's age. A job removes the file when it ends.
"""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, Problem, State, always
from nodeheal.agent.runtime.safe_files import open_file
from nodeheal.contract.json_text import read_json
from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding

# A killed job leaves its file behind: after this many limits without a step, the file is taken for such a leftover.
FORGOTTEN_AFTER_LIMITS = 20.0
FILE_BYTES = 4096
FILES = 200  # more jobs than a node has; all reports must fit into an answer
JOB_CHARACTERS = 128  # of a component's name
SHORTEST_SECONDS, LONGEST_SECONDS = 10.0, 1e6
_NAMED = re.compile(r"(?P<job>.+)\.(?P<run>\d{1,9})\.(?P<seconds>\d{1,6})")


def limit_of(content: bytes) -> float | None:
    """Return the limit that a file declares, in seconds; None where it declares no valid one."""
    try:
        settings = read_json(content)
    except ValueError:
        return None
    limit = settings.get("limit_seconds") if isinstance(settings, dict) else None
    if not isinstance(limit, int | float):
        return None
    return float(limit) if SHORTEST_SECONDS <= limit < LONGEST_SECONDS else None


def name_of(stem: str) -> tuple[str, float | None]:
    """Return (the job or `job/run` of a file, the limit that its name declares or None)."""
    named = _NAMED.fullmatch(stem)
    if named is None:
        return stem, None
    return f"{named['job']}/{named['run']}", max(SHORTEST_SECONDS, float(named["seconds"]))


def _look(place: CheckContext, state: State) -> NodeCheckResult:
    """Check all files. A clock may jump, so a file's standstill counts from the run that first saw it unchanged."""
    now, times, problems, doubts = time.monotonic(), dict[str, list[float]](), list[Problem](), dict[str, str]()
    gauges = dict[str, float]()
    files, others = _files(Path(place.config.progress_dir))
    for file in files:
        try:
            content, touched = _read(file)
        except FileNotFoundError:
            continue  # the job has just ended
        except OSError as error:
            doubts[_job(file)] = f"{file}: {error.strerror}"
            continue
        whose, declared = name_of(file.stem)
        limit = limit_of(content) or declared
        if limit is None:
            doubts[_job(file)] = f"{file} must be an object with `limit_seconds`, {SHORTEST_SECONDS:g} or more"
            continue
        since = _since(state.get(file.name), touched, now)
        times[file.name] = [touched, since]
        problems += _late(whose[:JOB_CHARACTERS], limit, now - since)
        if now - since < FORGOTTEN_AFTER_LIMITS * limit:
            gauges[f"training_step_age_seconds:{whose[:JOB_CHARACTERS]}"] = now - since
    unclear = (
        f"{others} files of jobs are not checked, only the {FILES} newest: make jobs remove their files when they end"
    )
    summary = f"{len(times)} jobs report their progress"
    return NodeCheckResult(tuple(problems), unclear if others else "", times, gauges, summary=summary, doubts=doubts)


def _files(folder: Path) -> tuple[list[Path], int]:
    """Return the files of jobs, and the number of those beyond the limit."""
    try:
        entries = [(_touched(file), file) for file in folder.iterdir() if file.suffix == ".json"]
    except FileNotFoundError:
        return [], 0  # no job has created it yet; one that is not readable is an error
    newest = sorted(entries, reverse=True)[:FILES]
    return sorted(file for _, file in newest), len(entries) - len(newest)


def _touched(file: Path) -> float:
    try:
        return file.lstat().st_mtime
    except OSError:
        return 0.0


def _job(file: Path) -> str:
    return file.stem[:JOB_CHARACTERS]


def _since(known: object, touched: float, now: float) -> float:
    """Return when the file was first seen unchanged."""
    match known:
        case [before, int() | float() as since] if before == touched:
            return since
    return now


def _late(job: str, limit: float, still: float) -> Iterator[Problem]:
    if limit < still < FORGOTTEN_AFTER_LIMITS * limit:
        message = f"{job} has reported no step for longer than its limit of {limit:g} s"
        yield Problem(Finding(Family.host, "training_hang", job, message), message)


def _read(file: Path) -> tuple[bytes, float]:
    with open_file(file) as opened:  # a job may write anything there
        return opened.read(FILE_BYTES), os.fstat(opened.fileno()).st_mtime


CHECK = NodeCheck(
    name="progress",
    about="training jobs that report their steps: each step within its limit",
    interval_seconds=30.0,
    deadline_seconds=10.0,
    why_not=always,
    look=_look,
)
