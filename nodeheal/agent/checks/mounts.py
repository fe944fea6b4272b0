"""Are the shared file systems that jobs need mounted, and do they answer. Which these are, the configuration says."""

from collections.abc import Mapping

from nodeheal.agent.checks.check import Check, Look, Place, Problem, State
from nodeheal.agent.checks.disk import parse_mounts
from nodeheal.agent.diagnostics.bench import Output
from nodeheal.contract.evidence.finding import Finding
from nodeheal.contract.evidence.tool_report import first_line
from nodeheal.contract.vocabulary import Family

ANSWER_SECONDS = 10.0
# Each look at a file system that hangs leaves a process behind that nobody can end: then it is asked less often.
LOOKS_BETWEEN_HANGS = 10


def _why_not(place: Place) -> str:
    return "" if place.config.mounts else "the configuration names no `mounts`"


def _look(place: Place, state: State) -> Look:
    there = {mount.point for mount in parse_mounts((place.proc / "mounts").read_text("utf-8", "replace"))}
    problems, patience, doubts = [], {}, {}
    for point in place.config.mounts:
        left = _patience(state, point)
        if point.rstrip("/") not in there:
            problems.append(_problem("mount_missing", point, f"{point} is not mounted"))
        elif left or (answer := _ask(place, point)).ran.has_hung:
            patience[point] = left - 1 if left else LOOKS_BETWEEN_HANGS
            problems.append(_problem("mount_hung", point, f"{point} has not answered within {ANSWER_SECONDS:g} s"))
        elif answer.ran.exit_code != 0:  # such as a stale file handle: something is wrong, and nobody can say what
            doubts[point] = f"{point}: {first_line(answer.errors) or answer.ran.error}"
    said = ", ".join(place.config.mounts)
    return Look(tuple(problems), doubts=doubts, state={"patience": patience}, summary=said)


def _patience(state: State, point: str) -> int:
    """How many looks it is still left alone."""
    kept = state.get("patience")
    return int(kept.get(point, 0)) if isinstance(kept, Mapping) else 0


def _ask(place: Place, point: str) -> Output:
    """By a tool, in a process of its own: this one must live to tell."""
    return place.run(["stat", "--file-system", point], ANSWER_SECONDS)


def _problem(code: str, point: str, message: str) -> Problem:
    return Problem(Finding(Family.host, code, point, message), message)


CHECK = Check(
    name="mounts",
    about="the shared file systems of the configuration: mounted, and answering",
    interval_seconds=60.0,
    deadline_seconds=120.0,
    why_not=_why_not,
    look=_look,
    confirm=2,
    settle_seconds=300.0,
)
