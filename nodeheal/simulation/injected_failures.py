"""One call of one run, and what happens to it: how a break is aimed at a place instead of drawn.

A run is the same run every time, so the number of a call names it. `Setting.injected_failures` says what happens at
which call.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from nodeheal.domain.errors import MachineRefused, NoCapacity, NotAccepted, NotFound, PlacementRefused


class NoSuchCall(ValueError):
    """An injected failure names a call that its run does not make, or asks one to be refused that nobody can refuse."""


class How(StrEnum):
    """What happens at a call."""

    dies_before = "dies-before"  # the function is gone, and nothing was asked
    dies_after = "dies-after"  # it was done, and the function is gone
    hangs = "hangs"  # it was done, the world goes on until the function's timeout, and that is its end
    is_late = "is-late"  # the world goes on first, almost until the timeout
    unanswered = "unanswered"  # it was done, and its answer was lost
    throttled = "throttled"  # it was provably not taken
    refused = "refused"  # the other side says no, in one of the ways that the port promises; nothing was done


@dataclass(frozen=True)
class InjectedFailure:
    """This happens at this call, the first one being 1."""

    call: int
    how: How

    def __str__(self) -> str:
        return f"{self.call}:{self.how}"


# In the words of the ports. A save that finds another version has changed nothing, and says False.
_REFUSALS: dict[str, tuple[Exception | bool, ...]] = {
    "commands.send": (NotFound("no such machine"),),
    "commands.send_to_all": (NotFound("no such machine"),),
    "jobs.save": (False,),
    "jobs.save_run": (False,),
    "machines.terminate_instance": (MachineRefused("it is protected from termination"),),
    "machines.launch": (NoCapacity("there is none to be had"), MachineRefused("the launch template is gone")),
    "machines.power": (MachineRefused("it is not in a state for this"),),
    "nodes.save": (False,),
    "operations.save": (False,),
    "pools.save": (False,),
    "scheduler.drain_all": (NotFound("no such container instance"),),
    "scheduler.start_rank": (PlacementRefused("RESOURCE:GPU"),),
    "scheduler.undrain": (NotFound("no such container instance"),),
}


def can_be_refused(port_call: str) -> bool:
    """Whether the port promises a way to say no to `machines.launch`, or the like."""
    return port_call in _REFUSALS


def refuse(port_call: str, number: int) -> bool:
    """Say no. Raises what the port promises, or answers False where that is its way."""
    ways = _REFUSALS[port_call]
    way = ways[number % len(ways)]
    if isinstance(way, bool):
        return way
    raise way


def throttle(port_call: str) -> None:
    """Raises NotAccepted."""
    raise NotAccepted(f"{port_call} is throttled")


_TEXT = re.compile(rf"(\d+):({'|'.join(How)})")


def parse_injected_failure(text: str) -> InjectedFailure:
    """`4211:dies-after`. Raises ValueError."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text}: give the number of a call and what happens there, as 4211:{'|'.join(How)}")
    return InjectedFailure(int(found[1]), How(found[2]))
