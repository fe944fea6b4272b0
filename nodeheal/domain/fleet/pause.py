"""Pauses: until when a person wants nothing touched, on a node or in a pool.

Persons write these items, by the command or by hand in the console, so an item may have any content.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from textwrap import shorten

from nodeheal.contract import names

WHY_CHARACTERS = 500  # the reason goes into decisions and emails, which have limits of their own


@dataclass(frozen=True)
class Pause:
    """Nothing is touched before `until`. `why`: who wants that, and the reason."""

    until: datetime
    why: str

    def sentence(self, name: str) -> str:
        """Returns that `name` is paused, until when and why."""
        return f"{name} is paused until {self.until:%Y-%m-%d %H:%M} UTC ({self.why})"


# A typing error must not release the brake: the pause lasts until a person writes or deletes the item.
UNREADABLE = Pause(datetime(9999, 12, 31, tzinfo=UTC), "an unreadable pause")


def pause_of(fields: Mapping[str, object]) -> Pause:
    """Returns the pause that these fields describe; UNREADABLE where they describe none."""
    until, why = fields.get("until"), fields.get("why")
    if not isinstance(until, str) or not isinstance(why, str):
        return UNREADABLE
    try:
        at = datetime.fromisoformat(until)
        if at.tzinfo is None:
            return UNREADABLE
        return Pause(at.astimezone(UTC), shorten(why, WHY_CHARACTERS, placeholder=" ..."))
    except (ValueError, OverflowError):
        return UNREADABLE


@dataclass(frozen=True)
class Pauses:
    """All pauses on record, by their sort keys; some of them may be over."""

    by_key: Mapping[str, Pause] = field(default_factory=dict)

    def of_node(self, node_id: str, now: datetime) -> Pause | None:
        """Returns the pause of this node that holds now."""
        return self._holding(names.node_pause_sk(node_id), now)

    def of_pool(self, pool: str, now: datetime) -> Pause | None:
        """Returns the pause of this pool that holds now."""
        return self._holding(names.pool_pause_sk(pool), now)

    def why_pool_is_paused(self, pool: str, now: datetime) -> str:
        """Returns why nothing in the pool may be touched now, in words. Empty: there is no pause."""
        pause = self.of_pool(pool, now)
        return pause.sentence(f"pool {pool}") if pause is not None else ""

    def why_paused(self, node_id: str, pool: str, now: datetime) -> str:
        """Returns why a pause of the node or of its pool forbids acts on it now. Empty: nothing is paused."""
        pause = self.of_node(node_id, now)
        return pause.sentence(node_id) if pause is not None else self.why_pool_is_paused(pool, now)

    def _holding(self, key: str, now: datetime) -> Pause | None:
        pause = self.by_key.get(key)
        return pause if pause is not None and pause.until > now else None


NO_PAUSES = Pauses()
