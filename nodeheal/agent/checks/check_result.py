"""When a check is asked, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeheal.contract.vocabulary import Verdict
from nodeheal.parsers.finding import Finding

# What a check remembers of its last look: JSON, kept through restarts of the agent, forgotten at a reboot.
State = Mapping[str, object]


@dataclass(frozen=True)
class Problem:
    """Something that is wrong now. How grave it is, the catalog says. Seen again at the next look it is the same."""

    finding: Finding
    evidence: str = ""
    count: int = 1


@dataclass(frozen=True)
class CheckResult:
    """What one look has found.

    `unclear`: why the check could not tell, in words; then nothing is taken back that was found before. `doubts`: the
    same of single components, by name: the others are judged. `happened`: not a state but an event, such as an XID that
    the driver hands out: reported each time.

    `gauges`: what was measured, by names such as `memory_used_percent` and `gpu_temperature_celsius:1`. The first word
    says what it is of, the last ones say the unit, one of percent, bytes, bytes_per_second, celsius, watts; where there
    are several of the kind, a colon and which of them follow. What could not be measured is left out. `called`: by what
    other names such a one is known, as `{"gpu:1": {"pci": "0000:0b:00.0"}}`.
    """

    problems: tuple[Problem, ...] = ()
    unclear: str = ""
    state: State = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    called: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    happened: tuple[Problem, ...] = ()
    summary: str = ""  # what a person reads where nothing is wrong: "8 GPUs"
    doubts: Mapping[str, str] = field(default_factory=dict)

    @property
    def why_unclear(self) -> str:
        """All that the look could not tell, in words; empty where it could tell everything."""
        return "; ".join(filter(None, (self.unclear, *self.doubts.values())))


@dataclass(frozen=True)
class CheckSchedule:
    """When a check is asked, and how its answers are taken. As `check.Check` has them."""

    name: str
    interval_seconds: float
    deadline_seconds: float
    floor: Verdict
    hang: Finding | None
    confirm: int
    settle_seconds: float
    goes_on: bool  # it is a stream: asked once, it answers again and again
