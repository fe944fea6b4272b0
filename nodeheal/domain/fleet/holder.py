"""Who keeps a node out of service at its scheduler."""

from dataclasses import dataclass


@dataclass(frozen=True)
class HeldByNodeheal:
    """nodeheal does, for this incident."""

    incident_id: str


@dataclass(frozen=True)
class HeldByPerson:
    """A person does. `who` and `why`: as the scheduler has them, cut to what fits a line; `how`: its word for that."""

    who: str
    why: str = ""
    how: str = "drained"

    def __str__(self) -> str:
        return f"{self.how} by {self.who}{': ' if self.why else ''}{self.why}"


@dataclass(frozen=True)
class HeldBySystem:
    """The scheduler itself does, or another system. `why`: as it says it."""

    name: str
    why: str


Holder = HeldByNodeheal | HeldByPerson | HeldBySystem


def person_holding(holder: Holder | None) -> str:
    """Return which person keeps the node out of service, and why; empty: none is known to."""
    return str(holder) if isinstance(holder, HeldByPerson) else ""
