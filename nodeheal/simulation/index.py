"""The table's index, which shows what was written after a while: a read of the table itself is consistent, one of the
index is not. A write is not shown before one to the same item that came earlier.
"""

from typing import TypeVar

from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.chance import Chance
from nodeheal.simulation.setting import Cloud

Item = TypeVar("Item")
Key = tuple[str, ...]
_KEPT = 1_000  # items, before those that are shown by now are looked for


class Index:
    """What the index does not show yet. `before` is what it shows instead; None: nothing."""

    def __init__(self, agenda: Agenda, chance: Chance, cloud: Cloud) -> None:
        self._agenda, self._cloud, self._stream = agenda, cloud, chance.of("index")
        self._hidden: dict[Key, tuple[float, object]] = {}
        self._sweep_at = _KEPT

    def wrote(self, key: Key, before: object) -> None:
        """An item was written over, or is new, or is gone."""
        if not self._cloud.index_late or self._stream.random() >= self._cloud.index_late:
            return
        until = self._agenda.now + self._stream.uniform(0, self._cloud.index_seconds)
        known = self._hidden.get(key)
        is_hidden = known is not None and known[0] > self._agenda.now
        if len(self._hidden) >= self._sweep_at:
            self._forget()
        self._hidden[key] = (max(until, known[0]), known[1]) if known is not None and is_hidden else (until, before)

    def shown(self, key: Key, now: Item | None) -> Item | None:
        """The item as the index has it, where the table has this."""
        known = self._hidden.get(key) if self._hidden else None
        if known is None:
            return now
        if known[0] <= self._agenda.now:
            del self._hidden[key]
            return now
        return known[1]  # type: ignore[return-value]

    def behind(self, kind: str) -> list[Key]:
        """The items of this kind that it may show as they were."""
        now = self._agenda.now
        return [key for key, (until, _) in self._hidden.items() if key[0] == kind and until > now]

    def _forget(self) -> None:
        """What it shows by now. Most of it nobody reads again, and a year has millions of writes."""
        self._hidden = {key: hidden for key, hidden in self._hidden.items() if hidden[0] > self._agenda.now}
        self._sweep_at = max(_KEPT, 2 * len(self._hidden))
