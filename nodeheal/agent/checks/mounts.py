"""Checks that the shared file systems that jobs need are mounted, answer, and have room."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, Problem, State
from nodeheal.agent.checks.disk import fuller, parse_mounts
from nodeheal.agent.diagnostics.bench import Output
from nodeheal.agent.runtime.thresholds import MOUNT_ANSWER, MOUNT_FULL
from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding
from nodeheal.parsers.tool_report import first_line

DEADLINE_SECONDS = 120.0
ASK_SECONDS = DEADLINE_SECONDS - 10.0  # for all file systems together
# Each query of a file system that hangs leaves a process behind that nobody can end, so it is then queried less often.
LOOKS_BETWEEN_HANGS = 10
# Amazon EFS reports 8 EiB whatever it holds, and mounts of object stores report similar sizes: these never become full.
ELASTIC_BYTES = 2**60
# Bytes a block, blocks, free ones, those free for users, inodes, free ones. Source: coreutils, "stat invocation".
_FORMAT = "%S %b %f %a %c %d"


@dataclass(frozen=True)
class FileSystemUsage:
    """The size of a file system, and the share of its blocks or inodes that is in use."""

    size_bytes: int
    used_percent: float

    @property
    def is_elastic(self) -> bool:
        """Whether it reports a size that nobody can fill."""
        return self.size_bytes >= ELASTIC_BYTES


def parse_capacity(text: str) -> FileSystemUsage | None:
    """Parse the output of `stat --file-system` in the format above; None for anything else."""
    words = text.split()
    if len(words) != 6 or not all(word.isdecimal() and len(word) <= 20 for word in words):
        return None
    block, blocks, free, available, inodes, free_inodes = map(int, words)
    return FileSystemUsage(block * blocks, fuller((available, blocks - free + available), (free_inodes, inodes)))


def _why_not(place: CheckContext) -> str:
    return "" if place.config.mounts else "the configuration names no `mounts`"


def _look(place: CheckContext, state: State) -> NodeCheckResult:
    there = {mount.point for mount in parse_mounts((place.proc / "mounts").read_text("utf-8", "replace"))}
    patience_seconds, full_percent = place.config.limit(MOUNT_ANSWER), place.config.limit(MOUNT_FULL)
    problems, patience, doubts, gauges = [], {}, {}, {}
    ends_at = time.monotonic() + ASK_SECONDS
    for point in place.config.mounts:
        left = _patience(state, point)
        if point.rstrip("/") not in there:
            problems.append(_problem("mount_missing", point, f"{point} is not mounted"))
            continue
        if not left and time.monotonic() + patience_seconds > ends_at:
            doubts[point] = f"{point}: not checked, since others took too long to answer"
            continue
        if left or (answer := _ask(place, point, patience_seconds)).ran.has_hung:
            patience[point] = left - 1 if left else LOOKS_BETWEEN_HANGS
            problems.append(_problem("mount_hung", point, f"{point} has not answered within {patience_seconds:g} s"))
        elif answer.ran.exit_code != 0:  # such as a stale file handle: something is wrong, but not clear what
            doubts[point] = f"{point}: {first_line(answer.errors) or answer.ran.error}"
        elif (capacity := parse_capacity(answer.text)) is None:
            doubts[point] = f"{point}: its size cannot be read: {first_line(answer.text)[:100]!r}"
        elif not capacity.is_elastic:
            gauges[f"mount_used_percent:{point}"] = capacity.used_percent
            if capacity.used_percent >= full_percent:
                message = f"{point} is {capacity.used_percent:.1f} % full, the limit is {full_percent:g} %"
                problems.append(_problem("mount_full", point, message))
    summary = ", ".join(_shown(point, gauges) for point in place.config.mounts)
    return NodeCheckResult(tuple(problems), doubts=doubts, state={"patience": patience}, gauges=gauges, summary=summary)


def _shown(point: str, gauges: Mapping[str, float]) -> str:
    used = gauges.get(f"mount_used_percent:{point}")
    return point if used is None else f"{point} ({used:.0f} % full)"


def _patience(state: State, point: str) -> int:
    """The number of runs for which it is skipped."""
    kept = state.get("patience")
    return int(kept.get(point, 0)) if isinstance(kept, Mapping) else 0


def _ask(place: CheckContext, point: str, seconds: float) -> Output:
    """Query it by a tool in its own process: a system call on a file system that hangs never returns."""
    return place.run(["stat", "--file-system", f"--format={_FORMAT}", point], seconds)


def _problem(code: str, point: str, message: str) -> Problem:
    return Problem(Finding(Family.host, code, point, message), message)


CHECK = NodeCheck(
    name="mounts",
    about="the shared file systems of the configuration: mounted, answering, and with room",
    interval_seconds=60.0,
    deadline_seconds=DEADLINE_SECONDS,
    why_not=_why_not,
    look=_look,
    confirm=2,
    settle_seconds=300.0,
)
