"""What every check of a node's state is: where it looks, how often, how long a look may take, and what it found.

The kernel log is no check of this kind: it is a stream of what happened, these ask how things are.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nodeheal.agent.config import AgentConfig
from nodeheal.agent.diagnostics.bench import Output
from nodeheal.contract.evidence.finding import Finding
from nodeheal.contract.vocabulary import Verdict

# What a check remembers of its last look: JSON, kept through restarts of the agent, forgotten at a reboot.
State = Mapping[str, object]


@dataclass(frozen=True)
class Problem:
    """Something that is wrong now. How grave it is, the catalog says. Seen again at the next look it is the same."""

    finding: Finding
    evidence: str = ""
    count: int = 1


@dataclass(frozen=True)
class Look:
    """What one look has found.

    `unclear`: why the check could not tell, in words; then nothing is taken back that was found before. `doubts`: the
    same of single components, by name: the others are judged. `happened`: not a state but an event, such as an XID that
    the driver hands out: reported each time.

    `gauges`: what was measured, by names such as `memory_used_percent` and `gpu_temperature_celsius:1`. The first word
    says what it is of, the last ones say the unit, one of percent, bytes, bytes_per_second, celsius, watts; where there
    are several of the kind, a colon and which of them follow. What could not be measured is left out.
    """

    problems: tuple[Problem, ...] = ()
    unclear: str = ""
    state: State = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    happened: tuple[Problem, ...] = ()
    summary: str = ""  # what a person reads where nothing is wrong: "8 GPUs"
    doubts: Mapping[str, str] = field(default_factory=dict)

    @property
    def why_unclear(self) -> str:
        """All that the look could not tell, in words; empty where it could tell everything."""
        return "; ".join(filter(None, (self.unclear, *self.doubts.values())))


@dataclass(frozen=True)
class Place:
    """The node as a check sees it. Tests bring folders and tools of their own."""

    config: AgentConfig
    run: Callable[[Sequence[str], float], Output]  # a tool, and the seconds after which it has hung
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    etc: Path = Path("/etc")


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
    look: Callable[[Place, State], Look]
    floor: Verdict = Verdict.DEGRADED  # what the catalog calls less grave is not reported
    hang: Finding | None = None
    confirm: int = 1  # so many looks in a row must agree before a problem is reported, or is over
    settle_seconds: float = 0.0  # so long after the boot nothing is reported: it is still coming up
    stream: Callable[[Place, State], Iterator[Look]] | None = None


def always(_: Place) -> str:
    """For what every node has."""
    return ""
