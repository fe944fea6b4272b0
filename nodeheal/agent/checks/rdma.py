"""Checks EFA and InfiniBand: each adapter is present and bound to its driver, its port is active, its error counters do
not grow.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, Problem, State
from nodeheal.agent.checks.pci_tree import AMAZON, EFA_PREFIX
from nodeheal.agent.runtime.thresholds import RDMA_ERRORS
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.parsers.efa_tools import EFA_COUNTERS, IB_COUNTERS, parse_efa_tree
from nodeheal.parsers.finding import Finding

# One of these errors is significant; small numbers of the others occur on every busy node.
TELLING = ("link_downed", "local_link_integrity_errors", "symbol_error", "excessive_buffer_overrun_errors")
_STATES = ("*/ports/*/state",)
_COUNTERS = ("*/ports/*/hw_counters/*", "*/ports/*/counters/*")


def grown(now: Mapping[str, int], before: Mapping[str, object], many: float) -> Iterator[Problem]:
    """Return the error counters that have grown since the last run, by `<device>/ports/<port>/…/<counter>`.

    A smaller value was reset with its driver: the errors in between are not known.
    """
    for path, count in sorted(now.items()):
        known, name, device = before.get(path), path.rpartition("/")[2], path.partition("/")[0]
        new = count - known if isinstance(known, int) else 0
        if new >= (1 if name in TELLING else many):
            family = Family.ib if name in IB_COUNTERS else Family.efa
            message = f"{device}: {name} has grown by {new} since the last look, to {count}"
            yield Problem(Finding(family, name, device, message), message, new)


def _why_not(place: CheckContext) -> str:
    is_there = any((place.sys / "class/infiniband").glob("*")) or _adapters(place)
    return "" if is_there else "no EFA or InfiniBand adapter"


def _look(place: CheckContext, state: State) -> NodeCheckResult:
    root = place.sys / "class/infiniband"
    states = _tree(root, _STATES)
    read = _tree(root, _COUNTERS)
    counters = {path: int(text) for path, text in read.items() if _is_error(path, text)}
    unbound, growth = list(_unbound(place)), list(grown(counters, state, place.config.limit(RDMA_ERRORS)))
    report = parse_efa_tree(states)
    problems = [Problem(finding, finding.message) for finding in report.findings]
    unclear = report.reason if report.verdict is Verdict.UNKNOWN else ""
    return NodeCheckResult(
        # A link that went down once does not do so again to confirm it: it is an event.
        (*problems, *unbound, *(problem for problem in growth if problem.finding.code not in TELLING)),
        happened=tuple(problem for problem in growth if problem.finding.code in TELLING),
        unclear=unclear,
        # A counter that cannot be read keeps its value; those of a missing device are dropped.
        state={**{path: state[path] for path in read.keys() - counters.keys() if path in state}, **counters},
        summary=f"{len(states)} ports are active",
    )


def _adapters(place: CheckContext) -> list[Path]:
    """Return the EFA adapters on the PCI bus, with or without a driver."""
    devices = sorted((place.sys / "bus/pci/devices").glob("*"))
    return [at for at in devices if _text(at / "vendor") == AMAZON and _text(at / "device").startswith(EFA_PREFIX)]


def _unbound(place: CheckContext) -> Iterator[Problem]:
    for folder in _adapters(place):
        if not (folder / "driver").exists():
            message = f"EFA adapter {folder.name} has no driver"
            yield Problem(Finding(Family.efa, "DRIVER_UNBOUND", folder.name, message), message)


def _tree(root: Path, patterns: tuple[str, ...]) -> dict[str, str]:
    paths = (path for pattern in patterns for path in root.glob(pattern))
    return {str(path.relative_to(root)): _text(path) for path in paths}


def _is_error(path: str, text: str) -> bool:
    return path.rpartition("/")[2] in (*EFA_COUNTERS, *IB_COUNTERS) and text.isdecimal()


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace").strip()
    except OSError:
        return ""


CHECK = NodeCheck(
    name="rdma",
    about="EFA and InfiniBand adapters: bound, active, error counters",
    interval_seconds=60.0,
    deadline_seconds=20.0,
    why_not=_why_not,
    look=_look,
    confirm=2,
    settle_seconds=180.0,
)
