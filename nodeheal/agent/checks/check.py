"""What every check of a node's state is: where it looks, how often, how long a look may take, and what it found.

The kernel log is no check of this kind: it is a stream of what happened, these ask how things are.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeheal.agent.checks.check_result import CheckResult, CheckSchedule, Problem, State
from nodeheal.agent.config import AgentConfig
from nodeheal.agent.diagnostics.bench import Output
from nodeheal.contract.vocabulary import Verdict
from nodeheal.parsers.finding import Finding

__all__ = ["Check", "CheckResult", "Place", "Problem", "State", "always"]


@dataclass(frozen=True)
class Place:
    """The node as a check sees it. Tests bring folders and tools of their own."""

    config: AgentConfig
    run: Callable[[Sequence[str], float], Output]  # a tool, and the seconds after which it has hung
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    etc: Path = Path("/etc")


def _nothing_more(_: Place) -> None:
    """For what is loaded with the check's file."""


@dataclass(frozen=True)
class Check:
    """One check.

    A look runs in a process of its own. One that does not end by its deadline has hung: that is the finding `hang`, or
    unclear where a check has none. With a `stream` the process stays and yields looks, each within the deadline.
    """

    name: str
    about: str  # what it watches, in a few words
    interval_seconds: float
    deadline_seconds: float
    why_not: Callable[[Place], str]  # why this node cannot be checked so; empty: it can
    look: Callable[[Place, State], CheckResult]
    floor: Verdict = Verdict.DEGRADED  # what the catalog calls less grave is not reported
    hang: Finding | None = None
    confirm: int = 1  # so many looks in a row must agree before a problem is reported, or is over
    settle_seconds: float = 0.0  # so long after the boot nothing is reported: it is still coming up
    stream: Callable[[Place, State], Iterator[CheckResult]] | None = None
    # What the look needs and not every node. Loaded before its process is forked it is there once, else twice.
    load: Callable[[Place], None] = _nothing_more
    # What doctor has it do, where that is more than to ask `why_not`: what came of it, in words. Raises OSError.
    trial: Callable[[Place], str] | None = None

    @property
    def terms(self) -> CheckSchedule:
        """What the agent must know of it."""
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


def always(_: Place) -> str:
    """For what every node has."""
    return ""
