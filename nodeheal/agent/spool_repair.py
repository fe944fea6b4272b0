"""Finds and repairs damage in the spool that SQLite does not notice: it checks its own pages, not our text.

A connection that is used here needs `as_it_is` as its text factory. Otherwise SQLite raises an error at bytes that are
not text, and the row cannot be read at all.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from nodeheal.agent.event import NodeFact

# Enough to see what the disk did, and less than the smallest spool.
KEPT_ASIDE = 16

EVENTS = """CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, event_id TEXT NOT NULL UNIQUE, detail_type TEXT NOT NULL,
    detail TEXT NOT NULL, observed_at REAL NOT NULL, kind TEXT NOT NULL, zero REAL
)"""
BY_KIND = "CREATE INDEX IF NOT EXISTS by_kind ON events (kind, seq)"
SET_ASIDE = (
    "CREATE TABLE IF NOT EXISTS set_aside (seq INTEGER PRIMARY KEY, event_id, detail_type, detail, observed_at, kind)"
)
_ALL = "seq, event_id, detail_type, detail, observed_at, kind"
# A column that is lost is named anew: NOT NULL would lose the row with it, without a word.
_RESCUED = (
    "seq, coalesce(event_id, 'lost ' || seq), coalesce(detail_type, ''), coalesce(detail, ''), "
    "coalesce(observed_at, 0), coalesce(kind, '')"
)
_COPY = f"INSERT OR IGNORE INTO events ({_ALL}) VALUES (?,?,?,?,?,?)"
# With each, where its id is found: an index that is spoilt finds it nowhere, and what is nowhere is never forgotten.
_READ = (
    "SELECT seq, event_id, detail_type, detail, zero, "
    "(SELECT same.seq FROM events AS same WHERE same.event_id = events.event_id) FROM events"
)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_KIND = 0xFF  # the rest of a code says which of the kind


@dataclass(frozen=True)
class Entry:
    """One event as it waits for the bus."""

    event_id: str
    detail_type: str
    detail: str
    observed_at: float
    boot_id: str = ""  # that it is about
    zero: float | None = None  # when this boot began, by the clock that dated it; None: nobody knows


@dataclass(frozen=True)
class Loss:
    """An event that cannot be read. `seq`: its place in the spool, and where it is set aside."""

    seq: int
    event_id: str
    why: str


def as_it_is(stored: bytes) -> str | bytes:
    """Text, as it was put; bytes where the disk has left no text. For sqlite3's `text_factory`."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


def text(value: object) -> str:
    """What should be text. Raises ValueError."""
    if not isinstance(value, (str, bytes)):
        raise ValueError(f"{value!r} is no text")
    return value if isinstance(value, str) else value.decode()


def is_damage(error: Exception) -> bool:
    """Whether the disk has handed out something else than was written."""
    return is_one_of(error, _DAMAGED)


def is_one_of(error: Exception, kinds: Sequence[int]) -> bool:
    """Whether SQLite's error is of these kinds."""
    return getattr(error, "sqlite_errorcode", 0) & _KIND in kinds


def readable(
    database: sqlite3.Connection, which: str, values: Sequence[object]
) -> tuple[Sequence[Entry], Sequence[Loss]]:
    """The events that the rest of the query asks for, and those that had to be set aside to read them."""
    losses: list[Loss] = []
    query = f"{_READ} {which}"
    rows = database.execute(query, values).fetchall()
    if any(found != seq for seq, *_, found in rows):
        write_anew(database)
        rows = database.execute(query, values).fetchall()
    while True:
        entries, spoilt, misnamed = _sorted_out(rows)
        if not spoilt and not misnamed:
            return entries, losses
        for loss in spoilt:
            _set_aside(database, loss.seq)
        database.executemany("UPDATE OR REPLACE events SET event_id = ? WHERE seq = ?", misnamed)
        losses += spoilt
        rows = database.execute(query, values).fetchall()


def bring_up_to_date(database: sqlite3.Connection) -> None:
    """A spool of an agent that did not know of zeros. Raises sqlite3.Error."""
    if _has_zeros(database):
        return
    with database:
        database.execute("BEGIN IMMEDIATE")  # another process may be at it
        if not _has_zeros(database):
            database.execute("ALTER TABLE events ADD COLUMN zero REAL")


def _has_zeros(database: sqlite3.Connection) -> bool:
    return any(name == "zero" for _, name, *_ in database.execute("PRAGMA table_info(events)"))


def write_anew(database: sqlite3.Connection) -> None:
    """Every event by its place alone: what is found by an index may be another one, or none. Raises sqlite3.Error."""
    if not database.in_transaction:
        database.execute("BEGIN IMMEDIATE")
    database.execute("DROP INDEX IF EXISTS by_kind")
    database.execute("ALTER TABLE events RENAME TO spoilt")
    database.execute(EVENTS)
    database.execute(f"INSERT OR IGNORE INTO events ({_ALL}) SELECT {_RESCUED} FROM spoilt NOT INDEXED ORDER BY seq")
    database.execute("DROP TABLE spoilt")
    database.execute(BY_KIND)


def rescue(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Copy what can be read of a spool with pages that cannot. Raises sqlite3.Error if the target cannot be written."""
    with target:
        for row in _from_both_ends(source):
            target.execute(_COPY, row)
        for key, value in _until_it_breaks(source, "SELECT key, value FROM state"):
            target.execute("INSERT OR IGNORE INTO state VALUES (?,?)", (key, value))


def _from_both_ends(source: sqlite3.Connection) -> Iterator[tuple[object, ...]]:
    """A page that is gone lies between the two."""
    for order in ("ASC", "DESC"):
        yield from _until_it_breaks(source, f"SELECT {_RESCUED} FROM events NOT INDEXED ORDER BY seq {order}")


def _until_it_breaks(source: sqlite3.Connection, query: str) -> Iterator[tuple[object, ...]]:
    try:
        yield from source.execute(query)
    except sqlite3.Error:
        return


def _sorted_out(
    rows: Sequence[tuple[int, object, object, object, object, object]],
) -> tuple[list[Entry], list[Loss], list[tuple[str, int]]]:
    """(what can be sent, what cannot be read, what is spooled under another id than its own)."""
    entries, spoilt, misnamed = [], [], []
    for seq, event_id, detail_type, detail, zero, _ in rows:
        try:
            entry = _entry(detail_type, detail, zero)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            spoilt.append(Loss(seq, str(event_id), f"{type(error).__name__}: {error}"))
            continue
        entries.append(entry)
        if event_id != entry.event_id:
            misnamed.append((entry.event_id, seq))
    return entries, spoilt, misnamed


def _entry(detail_type: object, detail: object, zero: object) -> Entry:
    """Its id and its time are its own words': those beside them may be spoilt alone. Raises what `_sorted_out` says."""
    kind, told = text(detail_type), text(detail)
    if kind not in {fact.detail_type for fact in NodeFact.__subclasses__()}:
        raise ValueError(f"{kind[:64]!r} is no kind of event")
    said = json.loads(told)
    event_id = said["event_id"]
    if not isinstance(event_id, str) or not event_id:
        raise ValueError("it has no id")
    observed_at, boot_id = datetime.fromisoformat(said["observed_at"]).timestamp(), str(said.get("boot_id", ""))
    return Entry(event_id, kind, told, observed_at, boot_id, zero if isinstance(zero, float) else None)


def _set_aside(database: sqlite3.Connection, seq: int) -> None:
    database.execute(f"INSERT OR REPLACE INTO set_aside SELECT {_ALL} FROM events WHERE seq = ?", (seq,))
    database.execute("DELETE FROM events WHERE seq = ?", (seq,))
    newest = f"SELECT seq FROM set_aside ORDER BY seq DESC LIMIT {KEPT_ASIDE}"
    database.execute(f"DELETE FROM set_aside WHERE seq NOT IN ({newest})")
