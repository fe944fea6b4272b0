"""Finds which files of a set of ranks are missing."""

import re
from collections.abc import Iterable
from itertools import product

from nodeheal.checkpoints.found import CheckpointBroken

RANKS_AT_MOST = 1_000_000  # an absurd number in a name must not take an absurd amount of memory
NAMED = 3


def check_ranks(names: Iterable[str], pattern: re.Pattern[str], what: str) -> list[str]:
    """Check the names that match the pattern, whose groups are numbers of ranks. Raises CheckpointBroken where one is
    missing: ranks are numbered from 0 in each direction, and all of them write.
    """
    names_by_rank = {
        tuple(int(number) for number in match.groups() if number): name for name, match in _fitting(names, pattern)
    }
    lengths = {len(rank) for rank in names_by_rank}
    if len(lengths) > 1:
        raise CheckpointBroken(f"{what}: it mixes names of two kinds")
    if not names_by_rank:
        return []
    sides = [range(max(numbers) + 1) for numbers in zip(*names_by_rank, strict=True)]
    total = 1
    for side in sides:
        total *= len(side)
    if total > RANKS_AT_MOST:
        raise CheckpointBroken(f"{what}: {total} ranks are not possible")
    if total != len(names_by_rank):
        missing = [rank for rank in product(*sides) if rank not in names_by_rank][:NAMED]
        shown = ", ".join("/".join(str(number) for number in rank) for rank in missing)
        raise CheckpointBroken(f"{what}: rank {shown} is missing ({len(names_by_rank)} of {total} exist)")
    return sorted(names_by_rank.values())


def _fitting(names: Iterable[str], pattern: re.Pattern[str]) -> list[tuple[str, re.Match[str]]]:
    return [(name, match) for name in names if (match := pattern.fullmatch(name))]
