"""Files that a number of ranks write: which of them are missing."""

import re
from collections.abc import Iterable
from itertools import product

from nodeheal.checkpoints.found import Broken

RANKS_AT_MOST = 1_000_000  # a name with an absurd number is not worth an absurd amount of memory
NAMED = 3


def check_ranks(names: Iterable[str], pattern: re.Pattern[str], what: str) -> list[str]:
    """The names that fit the pattern, whose groups are numbers of ranks. Raises Broken where one is missing between
    those that are there: ranks are counted from 0 in each direction, and all of them write."""
    found = {
        tuple(int(number) for number in match.groups() if number): name for name, match in _fitting(names, pattern)
    }
    lengths = {len(rank) for rank in found}
    if len(lengths) > 1:
        raise Broken(f"{what}: names of two kinds lie side by side")
    if not found:
        return []
    sides = [range(max(numbers) + 1) for numbers in zip(*found, strict=True)]
    total = 1
    for side in sides:
        total *= len(side)
    if total > RANKS_AT_MOST:
        raise Broken(f"{what}: {total} ranks cannot be")
    if total != len(found):
        missing = [rank for rank in product(*sides) if rank not in found][:NAMED]
        shown = ", ".join("/".join(str(number) for number in rank) for rank in missing)
        raise Broken(f"{what}: of rank {shown} there is nothing ({len(found)} of {total} are there)")
    return sorted(found.values())


def _fitting(names: Iterable[str], pattern: re.Pattern[str]) -> list[tuple[str, re.Match[str]]]:
    return [(name, match) for name in names if (match := pattern.fullmatch(name))]
