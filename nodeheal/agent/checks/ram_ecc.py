"""Checks errors of the host's memory in the counters of its controllers. Source: the kernel's
Documentation/admin-guide/ras.rst.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, Problem, State
from nodeheal.agent.runtime.thresholds import RAM_CORRECTED
from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding

CONTROLLERS = "devices/system/edac/mc"
COUNTERS = ("ce_count", "ue_count")


def judge(now: Mapping[str, int], before: Mapping[str, object], corrected_many: float) -> Iterator[Problem]:
    """Judge the growth since the last run, by `mc0/ue_count`. The first run of a boot only reads the counters."""
    for name, count in sorted(now.items()):
        known = before.get(name)
        new = count - known if isinstance(known, int) else 0
        controller, _, counter = name.partition("/")
        if counter == "ue_count" and new > 0:
            message = f"{controller}: {new} new uncorrectable memory errors, {count} since it was started"
            yield Problem(Finding(Family.mce, "edac_ue", controller, message), message, new)
        if counter == "ce_count" and new >= corrected_many:
            message = f"{controller}: {new} corrected memory errors since the last look"
            yield Problem(Finding(Family.host, "ram_ecc", controller, message), message, new)


def _controllers(place: CheckContext) -> list[Path]:
    return sorted((place.sys / CONTROLLERS).glob("mc[0-9]*"))


def _why_not(place: CheckContext) -> str:
    return "" if _controllers(place) else "the kernel monitors no memory controller (EDAC)"


def _look(place: CheckContext, state: State) -> NodeCheckResult:
    read = {
        f"{folder.name}/{counter}": _count(folder / counter) for folder in _controllers(place) for counter in COUNTERS
    }
    counts = {name: count for name, count in read.items() if count is not None}
    unread = [name for name, count in read.items() if count is None]
    unclear = f"cannot be read: {', '.join(unread)}" if unread else ""
    # A counter that cannot be read keeps its value, so errors in the meantime count when it is readable again.
    kept = {name: state[name] for name in unread if name in state}
    # An event, not a state: the counter does not go back.
    happened = tuple(judge(counts, state, place.config.limit(RAM_CORRECTED)))
    return NodeCheckResult(
        happened=happened, unclear=unclear, state={**kept, **counts}, summary=f"{len(counts)} counters"
    )


def _count(path: Path) -> int | None:
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None


CHECK = NodeCheck(
    name="ram_ecc",
    about="errors of the host's memory",
    interval_seconds=600.0,
    deadline_seconds=10.0,
    why_not=_why_not,
    look=_look,
)
