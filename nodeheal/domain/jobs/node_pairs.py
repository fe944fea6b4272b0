"""Pairs of nodes for node-to-node network tests."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Pair:
    """Two nodes. `is_shared`: one of them takes part in another test at the same time, so its speed does not count."""

    number: int
    serves: str
    connects: str
    is_shared: bool = False

    @property
    def nodes(self) -> tuple[str, str]:
        """Both nodes, the serving one first."""
        return self.serves, self.connects


def pairs_of(nodes: Sequence[str]) -> list[Pair]:
    """Returns pairs of neighbours by rank. All of them test at the same time.

    An odd node out tests with the last neighbour a second time.
    """
    even = len(nodes) - len(nodes) % 2
    pairs = [Pair(first // 2, nodes[first], nodes[first + 1]) for first in range(0, even, 2)]
    if even == len(nodes) or not pairs:
        return pairs
    *others, last = pairs
    again = Pair(last.number + 1, nodes[-1], last.connects, is_shared=True)
    return [*others, Pair(last.number, last.serves, last.connects, is_shared=True), again]


def suspects(failed: Sequence[Pair]) -> tuple[str, ...]:
    """Returns the nodes that all failed pairs contain: both of a single pair, the shared one of several.

    None: no node.
    """
    if not failed:
        return ()
    return tuple(name for name in failed[0].nodes if all(name in pair.nodes for pair in failed))
