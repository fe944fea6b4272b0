"""Records in memory which owners have confirmed their subscription."""

from dataclasses import dataclass, field


@dataclass
class MemoryConfirmations:
    """Implements HasConfirmed. Every owner has, except those in `deaf`; for those in `unknown` it raises."""

    deaf: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)

    def __call__(self, address: str) -> bool | None:
        return None if address in self.unknown else address not in self.deaf
