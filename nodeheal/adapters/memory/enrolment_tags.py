"""Implements EnrolmentTags in memory."""

from nodeheal.contract.vocabulary import Provider


class MemoryEnrolmentTags:
    """Implements EnrolmentTags. Every machine has the tag, except those in `without`; `pools` gives pools by
    machine.
    """

    def __init__(self) -> None:
        self.without: set[str] = set()
        self.pools: dict[str, str] = {}

    def pool_of(self, node_id: str, provider: Provider) -> str | None:
        return None if node_id in self.without else self.pools.get(node_id, "")
