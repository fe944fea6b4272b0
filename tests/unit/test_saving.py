"""The loop that writes a change over what others have written: tests of the promises of ADR 57."""

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.pool import Pool
from nodeheal.services.saving import SAVE_TRIES, save_changed

if TYPE_CHECKING:
    from collections.abc import Iterator


class Store:
    """One record. Somebody else writes it just before each of the first `races` saves."""

    def __init__(self, races: int) -> None:
        self.stored, self.saves = Pool("h100", version=1), 0
        self._others: Iterator[int] = iter(range(1, races + 1))

    def read(self) -> Pool:
        return self.stored

    def save(self, pool: Pool) -> bool:
        self.saves += 1
        number = next(self._others, None)
        if number is not None:
            self.stored = replace(self.stored, nodes=number, version=self.stored.version + 1)
        if pool.version != self.stored.version:
            return False
        self.stored = replace(pool, version=pool.version + 1)
        return True


def _tripped(pool: Pool) -> Pool:
    return replace(pool, breaker_why="a storm")


def test_a_change_is_written_over_what_others_have_written() -> None:
    store = Store(races=SAVE_TRIES - 1)

    saved = save_changed(store.read(), store.read, store.save, _tripped, "pool h100")

    assert saved == store.stored
    assert (store.stored.breaker_why, store.stored.nodes) == ("a storm", SAVE_TRIES - 1)


def test_nothing_is_written_where_nothing_changes() -> None:
    store = Store(races=0)

    assert save_changed(store.read(), store.read, store.save, lambda pool: pool, "pool h100") == store.stored
    assert store.saves == 0


def test_after_the_last_lost_race_the_error_names_the_record() -> None:
    store = Store(races=SAVE_TRIES)

    with pytest.raises(NotAccepted, match="pool h100 is being written by others"):
        save_changed(store.read(), store.read, store.save, _tripped, "pool h100")

    assert (store.saves, store.stored.breaker_why) == (SAVE_TRIES, "")
