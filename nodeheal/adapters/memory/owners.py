"""Which owners hear us, in memory."""

from dataclasses import dataclass, field


@dataclass
class MemoryConfirmations:
    """HasConfirmed. Everybody has but those in `deaf`; of those in `unknown` nobody can tell."""

    deaf: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)

    def __call__(self, address: str) -> bool | None:
        return None if address in self.unknown else address not in self.deaf
