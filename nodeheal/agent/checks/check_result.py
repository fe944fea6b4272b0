"""Defines the schedule of a check and its result."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeheal.agent.transport.event import Accelerator
from nodeheal.contract.vocabulary import Verdict
from nodeheal.parsers.finding import Finding

# What a check remembers of its last run: JSON, kept over restarts of the agent, discarded at a reboot.
State = Mapping[str, object]


@dataclass(frozen=True)
class Problem:
    """Something that is wrong now. The catalog defines its verdict. The same problem in the next result has the same
    key. `confirm`: results in a row that must show it before it is reported, where the check asks for fewer.
    """

    finding: Finding
    evidence: str = ""
    count: int = 1
    confirm: int = 1


@dataclass(frozen=True)
class NodeCheckResult:
    """The result of one run.

    `unclear`: why the check could not judge the node; then no earlier problem is reported as over. `doubts`: the same
    for single components, by name; the other components are judged. `happened`: events rather than states, such as an
    XID from the driver; each is reported.

    `gauges`: measured values, by names such as `memory_used_percent` and `gpu_temperature_celsius:1`. The first word
    names the kind of thing, the last words the unit: percent, bytes, bytes_per_second, celsius or watts. Where there
    are several of a kind, a colon and the thing's name follow. A value that could not be measured is absent. `called`:
    other names of such a thing, as `{"gpu:1": {"pci": "0000:0b:00.0"}}`.
    """

    problems: tuple[Problem, ...] = ()
    unclear: str = ""
    state: State = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    called: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    accelerators: tuple[Accelerator, ...] = ()  # all of them as they are now; none: not known, or another check's
    happened: tuple[Problem, ...] = ()
    summary: str = ""  # shown to a person where nothing is wrong: "8 GPUs"
    doubts: Mapping[str, str] = field(default_factory=dict)

    @property
    def why_unclear(self) -> str:
        """Return all reasons why the result is incomplete; empty where it is complete."""
        return "; ".join(filter(None, (self.unclear, *self.doubts.values())))


@dataclass(frozen=True)
class CheckSchedule:
    """When a check runs, and how its answers are interpreted. The fields are those of `check.Check`."""

    name: str
    interval_seconds: float
    deadline_seconds: float
    floor: Verdict
    hang: Finding | None
    confirm: int
    settle_seconds: float
    goes_on: bool  # a stream: started once, it answers again and again
