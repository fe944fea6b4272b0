"""Simulates the table's index, which shows writes after a delay. A read of the table itself is consistent, one of the
index is not. A write is not shown before an earlier one to the same item.
"""

from collections import defaultdict
from collections.abc import Collection
from typing import TypeVar

from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.chance import Chance
from nodeheal.simulation.setting import Cloud

Item = TypeVar("Item")
Key = tuple[str, ...]
_KEPT = 1_000  # items of one kind, before outdated entries are removed


class Index:
    """What the index does not show yet. `before` is what it shows instead; None: nothing."""

    def __init__(self, agenda: Agenda, chance: Chance, cloud: Cloud) -> None:
        self._agenda, self._cloud, self._stream = agenda, cloud, chance.of("index")
        self._hidden: defaultdict[str, dict[Key, tuple[float, object]]] = defaultdict(dict)  # by kind
        self._sweep_at: defaultdict[str, int] = defaultdict(lambda: _KEPT)

    def wrote(self, key: Key, before: object) -> None:
        """Record that an item was changed, created or deleted."""
        if not self._cloud.index_late or self._stream.random() >= self._cloud.index_late:
            return
        until = self._agenda.now + self._stream.uniform(0, self._cloud.index_seconds)
        kind = key[0]
        known = self._hidden[kind].get(key)
        is_hidden = known is not None and known[0] > self._agenda.now
        if len(self._hidden[kind]) >= self._sweep_at[kind]:
            self._sweep_at[kind] = max(_KEPT, 2 * len(self.behind(kind)))
        hidden = (max(until, known[0]), known[1]) if known is not None and is_hidden else (until, before)
        self._hidden[kind][key] = hidden

    def shown(self, key: Key, now: Item | None) -> Item | None:
        """Return the item as the index has it, where the table has this."""
        hidden = self._hidden[key[0]]
        known = hidden.get(key) if hidden else None
        if known is None:
            return now
        if known[0] <= self._agenda.now:
            del hidden[key]
            return now
        return known[1]  # type: ignore[return-value]

    def forget(self) -> None:
        """Show everything as it is, as the index of a restored table does."""
        self._hidden.clear()

    def behind(self, kind: str) -> Collection[Key]:
        """Return the items of this kind that it may show outdated. The others are forgotten: a year has millions."""
        now = self._agenda.now
        live = {key: hidden for key, hidden in self._hidden[kind].items() if hidden[0] > now}
        self._hidden[kind] = live
        return live.keys()
