"""Defines what every check of a node's state has: how to run it, how often, its deadline, and its result.

The kernel log is not such a check: it is a stream of events, while checks poll the state.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeheal.agent.checks.check_result import CheckSchedule, NodeCheckResult, Problem, State
from nodeheal.agent.diagnostics.bench import Output
from nodeheal.agent.runtime.config import AgentConfig
from nodeheal.contract.vocabulary import Verdict
from nodeheal.parsers.finding import Finding

__all__ = ["CheckContext", "NodeCheck", "NodeCheckResult", "Problem", "State", "always"]


class CheckBroken(OSError):
    """An operator's own check is broken or may not run, so nothing is known of the node."""


@dataclass(frozen=True)
class CheckContext:
    """The node as a check sees it. Tests substitute folders and tools."""

    config: AgentConfig
    run: Callable[[Sequence[str], float], Output]  # a tool, and the seconds after which it counts as hung
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    etc: Path = Path("/etc")


def _nothing_more(_: CheckContext) -> None:
    """Load nothing: for a check whose file imports all that it needs."""


@dataclass(frozen=True)
class NodeCheck:
    """One check.

    Each run has its own process. A run that does not end by its deadline has hung: the result is the finding `hang`, or
    unclear where the check has no such finding. With `stream` the process stays and yields results, each within the
    deadline.
    """

    name: str
    about: str  # what it checks, in a few words
    interval_seconds: float
    deadline_seconds: float
    why_not: Callable[[CheckContext], str]  # why this node does not support it; empty: it does
    look: Callable[[CheckContext, State], NodeCheckResult]
    floor: Verdict = Verdict.DEGRADED  # findings that the catalog rates below this are not reported
    hang: Finding | None = None
    confirm: int = 1  # results in a row that must agree before a problem is reported as begun or as over
    settle_seconds: float = 0.0  # seconds after boot during which nothing is reported: the node is still starting
    stream: Callable[[CheckContext, State], Iterator[NodeCheckResult]] | None = None
    # Loads modules that the check needs and most nodes do not. Loaded before the fork, parent and child share the
    # memory.
    load: Callable[[CheckContext], None] = _nothing_more
    # What `doctor` runs, where calling `why_not` is not enough. Returns the result in words. Raises OSError.
    trial: Callable[[CheckContext], str] | None = None

    @property
    def terms(self) -> CheckSchedule:
        """The schedule that the agent needs of this check."""
        return CheckSchedule(
            self.name,
            self.interval_seconds,
            self.deadline_seconds,
            self.floor,
            self.hang,
            self.confirm,
            self.settle_seconds,
            goes_on=self.stream is not None,
        )


def always(_: CheckContext) -> str:
    """Return an empty reason: for checks that every node supports."""
    return ""
