"""Until when the records of the table are known to be whole: a restored table knows less than the mark outside it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

# DynamoDB restores a table to a moment of the last 35 days.
LONGEST_RESTORE = timedelta(days=35)


@dataclass(frozen=True)
class Epoch:
    """When the sweep last renewed the mark in the table, and the one outside. None: never."""

    in_table: datetime | None = None
    outside: datetime | None = None

    @property
    def has_gone_back(self) -> bool:
        """Whether the table is an older copy of itself. Its own mark is written first, so it is never behind else."""
        return self.outside is not None and (self.in_table is None or self.in_table < self.outside)

    @property
    def lost_since(self) -> datetime | None:
        """Since when the records may miss what has happened. None: they miss nothing."""
        if self.outside is None or not self.has_gone_back:
            return None
        return self.in_table or self.outside - LONGEST_RESTORE
