"""What a guard is: an expression that somebody could take out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Guard:
    """`name`: what is missing. `where` holds `guard`, which becomes `becomes`; `scenario` says what is wrong then.

    `nth`: which of several that read the same, counted from 1; 0 where there is one.
    """

    name: str
    where: Callable[..., Any]
    guard: str
    scenario: Callable[[], list[str]]
    becomes: str = "False"
    nth: int = 0

    def __str__(self) -> str:
        return self.name


def not_saved(call: str) -> str:
    """The call is made, and its refusal ignored."""
    return f"({call}, False)[1]"


def taken_for_saved(call: str) -> str:
    """The call is made, and whatever it says taken for a yes."""
    return f"({call}, True)[1]"
