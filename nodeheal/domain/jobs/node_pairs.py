"""Which nodes of a gang test the way between them."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Pair:
    """Two nodes. `is_shared`: one of them tests another way at the same time, so speed tells nothing."""

    number: int
    serves: str
    connects: str
    is_shared: bool = False

    @property
    def nodes(self) -> tuple[str, str]:
        """Both, the one that serves first."""
        return self.serves, self.connects


def pairs_of(nodes: Sequence[str]) -> list[Pair]:
    """Neighbours by rank, each node once: all pairs test at the same time. One that is left over takes the last
    neighbour a second time.
    """
    even = len(nodes) - len(nodes) % 2
    pairs = [Pair(first // 2, nodes[first], nodes[first + 1]) for first in range(0, even, 2)]
    if even == len(nodes) or not pairs:
        return pairs
    *others, last = pairs
    again = Pair(last.number + 1, nodes[-1], last.connects, is_shared=True)
    return [*others, Pair(last.number, last.serves, last.connects, is_shared=True), again]


def suspects(failed: Sequence[Pair]) -> tuple[str, ...]:
    """The nodes that every failed way has: both of a single one, the shared one of several. None: look elsewhere."""
    if not failed:
        return ()
    return tuple(name for name in failed[0].nodes if all(name in pair.nodes for pair in failed))
