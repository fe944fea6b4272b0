"""How a run trains on a node: what its agent has read in the progress files of the ranks, as a heartbeat carries it.

A machine may write anything there. `read_training` takes what has the form, and leaves out the rest.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

TEXT_CHARACTERS = 512  # a run takes some 110
LONGEST_SECONDS = 1e9  # thirty years
LONGER_THAN_EVER = 2.0
ENDED = "ended"  # the pause of a program that has ended
# Faults that slow a node's own work for as long as its checks measure them. What only its links or its jobs may cause
# is not among them.
SLOWING_FAULTS = frozenset(
    {
        "nvml/CLOCKS_LOW",
        "nvml/PCIE_GENERATION_REDUCED",
        "nvml/PCIE_WIDTH_REDUCED",
        "nvml/POWER_BRAKE",
        "nvml/THERMAL_SLOWDOWN",
    }
)
_RUN = re.compile(r"(?P<run>[a-z0-9-]{1,63}/[0-9]{1,9})=(?P<step>[0-9]{1,18})")


@dataclass(frozen=True)
class NodeTraining:
    """The ranks of a run on one node. Seconds and losses are medians; `usual_…`: of the run so far, without its warm-up
    and the last ten minutes; `…_spread`: robust standard deviation of that.
    """

    run: str  # JOB/RUN
    step: int  # the last that a rank has done
    idle_seconds: float | None = None  # since then, when the heartbeat was sent
    longest_idle_seconds: float | None = None  # that it has stood at one step before, at least
    step_seconds: float | None = None  # of the last ten minutes, pauses left out
    usual_step_seconds: float | None = None
    step_spread: float | None = None
    compute_seconds: float | None = None  # own work in a step, without waiting for others: the median of the ranks
    slowest_compute_seconds: float | None = None  # of the rank whose own work takes longest
    slowest_rank: int | None = None  # its local rank
    loss: float | None = None  # of the last steps; not a number where one of them is not finite
    usual_loss: float | None = None
    loss_spread: float | None = None
    good_step: int | None = None  # where the loss is not a number: the last step of which it was one
    saved_step: int | None = None  # of the last checkpoint
    saved_seconds: float | None = None  # since it was written, when the heartbeat was sent
    waiting_ranks: int | None = None  # whose own work of the next step is done; None: its ranks do not show that
    working_rank: int | None = None  # the local rank that has not come so far for the longest
    slowed_by: str | None = None  # one of SLOWING_FAULTS, that the node's checks measure now
    pause: str | None = None  # what a rank is at between two steps, such as `evaluation`; ENDED: its ranks have ended

    @property
    def has_lost_its_loss(self) -> bool:
        """Whether its loss is not a number."""
        return self.loss is not None and not math.isfinite(self.loss)

    def is_stalled(self, least_seconds: float, least_steps: float) -> bool:
        """Return whether it has stood still for so many seconds, for as long as so many of its steps usually take, and
        for twice as long as ever before in this run: an evaluation that nobody declares is long, and comes again.
        """
        usual = self.usual_step_seconds or self.step_seconds
        if self.idle_seconds is None or usual is None or self.pause:
            return False
        longest = self.longest_idle_seconds or 0.0
        return self.idle_seconds > max(least_seconds, least_steps * usual, LONGER_THAN_EVER * longest)


_KEYS = {
    "idle_seconds": "t",
    "longest_idle_seconds": "lt",
    "step_seconds": "s",
    "usual_step_seconds": "us",
    "step_spread": "ss",
    "compute_seconds": "c",
    "slowest_compute_seconds": "sc",
    "slowest_rank": "sr",
    "loss": "l",
    "usual_loss": "ul",
    "loss_spread": "ls",
    "good_step": "g",
    "saved_step": "k",
    "saved_seconds": "kt",
    "waiting_ranks": "w",
    "working_rank": "wr",
    "slowed_by": "b",
    "pause": "p",
}
_FIELDS = {key: name for name, key in _KEYS.items()}
_WHOLE = frozenset(field.name for field in fields(NodeTraining) if field.type == (int | None))
_SIGNED = frozenset({"loss", "usual_loss"})


def write_training(trainings: Iterable[NodeTraining]) -> str:
    """Return the text of a heartbeat: `JOB/RUN=STEP;KEY=VALUE…`, separated by commas. Runs that have no room are left
    out, the last first.
    """
    text = ""
    for training in trainings:
        values = ((key, getattr(training, name)) for name, key in _KEYS.items())
        parts = [f"{training.run}={training.step}", *(f"{key}={_shown(key, v)}" for key, v in values if v is not None)]
        longer = f"{text},{';'.join(parts)}" if text else ";".join(parts)
        if len(longer) > TEXT_CHARACTERS:
            break
        text = longer
    return text


def read_training(text: str) -> dict[str, NodeTraining]:
    """Return what a heartbeat says, by run. A run or a value that has not its form is left out."""
    trainings: dict[str, NodeTraining] = {}
    for part in text[:TEXT_CHARACTERS].split(","):
        begin, *rest = part.split(";")
        match = _RUN.fullmatch(begin)
        if match is not None:
            pairs = (item.partition("=") for item in rest)
            values: dict[str, Any] = {
                _FIELDS[key]: _value(_FIELDS[key], value) for key, _, value in pairs if key in _FIELDS
            }
            trainings[match["run"]] = NodeTraining(match["run"], int(match["step"]), **values)
    return trainings


def _shown(key: str, value: float | str) -> str:
    if isinstance(value, str):
        return value if key == _KEYS["slowed_by"] else re.sub(r"[^a-z]", "", value.lower())[:16]
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def _value(name: str, text: str) -> "float | str | None":
    """Return the value of this field; None where the text has not its form."""
    if name == "pause":
        return text if re.fullmatch(r"[a-z]{1,16}", text) else None
    if name == "slowed_by":
        return text if text in SLOWING_FAULTS else None
    if name in _WHOLE:
        return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None
    try:
        value = float(text)
    except ValueError:
        return None
    if not math.isfinite(value):
        return math.nan if name == "loss" else None
    return value if name in _SIGNED or 0 <= value <= LONGEST_SECONDS else None
