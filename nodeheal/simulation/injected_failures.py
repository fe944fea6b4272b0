"""Injects a failure into one call of a run: a chosen failure instead of a random one.

A run is the same every time, so the number of a call identifies it. `Setting.injected_failures` says what happens at
which call.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from nodeheal.domain.errors import MachineRefused, NoCapacity, NotAccepted, NotFound, PlacementRefused


class NoSuchCall(ValueError):
    """An injected failure names a call that its run does not make, or a refusal that its call cannot have."""


class How(StrEnum):
    """The kinds of injected failures."""

    dies_before = "dies-before"  # the function dies before the call
    dies_after = "dies-after"  # the call was carried out, and the function dies
    hangs = "hangs"  # the call was carried out, time passes until the function's timeout, and the function dies
    is_late = "is-late"  # time passes before the call, almost until the timeout
    unanswered = "unanswered"  # the call was carried out, and its answer is lost
    answer_lost = "answer-lost"  # the call was carried out, and the function's own answer is lost
    throttled = "throttled"  # the call was provably not accepted
    throttled_after = "throttled-after"  # the call was carried out, and the next one was provably not accepted
    refused = "refused"  # the other side refuses the call, in one of the ways that the port defines; nothing was done


@dataclass(frozen=True)
class InjectedFailure:
    """One failure at one call, the first one being 1."""

    call: int
    how: How

    def __str__(self) -> str:
        return f"{self.call}:{self.how}"


# The ports' refusals. A save that finds another version has changed nothing, and returns False.
_REFUSALS: dict[str, tuple[Exception | bool, ...]] = {
    "commands.send": (NotFound("no such machine"),),
    "commands.send_to_all": (NotFound("no such machine"),),
    "jobs.save": (False,),
    "jobs.save_run": (False,),
    "machines.terminate_instance": (MachineRefused("it is protected from termination"),),
    "machines.launch": (NoCapacity("there is no capacity"), MachineRefused("the launch template does not exist")),
    "machines.power": (MachineRefused("its state does not allow this"),),
    "nodes.save": (False,),
    "operations.save": (False,),
    "pools.save": (False,),
    "scheduler.drain_all": (NotFound("no such container instance"),),
    "scheduler.start_rank": (PlacementRefused("RESOURCE:GPU"),),
    "scheduler.undrain": (NotFound("no such container instance"),),
}


def can_be_refused(port_call: str) -> bool:
    """Whether the port defines a refusal of `machines.launch`, or the like."""
    return port_call in _REFUSALS


def refuse(port_call: str, number: int) -> bool:
    """Refuse the call: raise the port's error, or return False where that is its refusal."""
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
    """Parse `4211:dies-after`. Raises ValueError."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text}: give the number of a call and what happens there, as 4211:{'|'.join(How)}")
    return InjectedFailure(int(match[1]), How(match[2]))
