"""Keeps events on disk until the bus has them."""

import json
import logging
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from nodeheal.agent.event import HealthEvent, NodeFact
from nodeheal.contract.vocabulary import Family, Verdict

FILE_NAME = "spool.db"
TRIM_ROWS = 64
LOCK_SECONDS = 5.0
# How soon a disk is tried again that was full, or locked. One that is broken is not: the next try may hang in it.
AGAIN_SECONDS = 60.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, event_id TEXT NOT NULL UNIQUE, detail_type TEXT NOT NULL,
    detail TEXT NOT NULL, observed_at REAL NOT NULL, kind TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_kind ON events (kind, seq);
CREATE TABLE IF NOT EXISTS state (key TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
_COLUMNS = "event_id, detail_type, detail, observed_at, kind"
_INSERT = f"INSERT OR IGNORE INTO events ({_COLUMNS}) VALUES (?,?,?,?,?)"
_REMEMBER = "INSERT OR REPLACE INTO state VALUES (?,?)"
_PASSING, _KIND = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY), 0xFF  # the rest of a code says which of the kind
_HEARTBEAT, _OK, _FINDING = "heartbeat", "ok", "finding"
_DROPPED = "spool.dropped"

logger = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """One event as it waits for the bus."""

    event_id: str
    detail_type: str
    detail: str
    observed_at: float


class Spool:
    """Holds events until they are forgotten, through crashes and power cuts, oldest first.

    Bounded: when it is full the oldest good news go first, then the oldest findings; what went is counted. When the
    disk fails, it goes on in memory and says so; when a full one has room again, it goes back. Safe to use from several
    threads and processes.
    """

    def __init__(self, directory: Path, limit_mib: int = 64, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._path = directory / FILE_NAME
        self._monotonic = monotonic
        self._again_at = math.inf
        self._limit_bytes = limit_mib * 1024 * 1024
        self._lock = threading.Lock()
        self._is_in_memory = False
        self._database = self._begin(directory)

    def put(self, events: Iterable[NodeFact], state: dict[str, object] | None = None) -> None:
        """Keep the events and the state, all or nothing. An event that is there already is kept once."""
        rows = [(*_columns(event), _kind(event)) for event in events]

        def write(database: sqlite3.Connection) -> None:
            if any(row[-1] == _HEARTBEAT for row in rows):
                # The newest sign of life says all that the older ones did.
                database.execute("DELETE FROM events WHERE kind = ?", (_HEARTBEAT,))
            database.executemany(_INSERT, rows)
            database.executemany(_REMEMBER, _state_rows(state or {}))
            self._trim(database)

        self._do(write)

    def oldest(self, count: int) -> Sequence[Entry]:
        """The events that have waited longest."""
        query = "SELECT event_id, detail_type, detail, observed_at FROM events ORDER BY seq LIMIT ?"
        return self._do(lambda database: [Entry(*row) for row in database.execute(query, (count,))])

    def failed(self, after: str, count: int) -> Sequence[Entry]:
        """The oldest findings that say FAILED; only those behind this event, where it still waits."""
        query = (
            "SELECT event_id, detail_type, detail, observed_at FROM events WHERE kind = ? AND detail_type = ? "
            "AND detail LIKE ? AND seq > COALESCE((SELECT seq FROM events WHERE event_id = ?), 0) ORDER BY seq LIMIT ?"
        )
        values = (_FINDING, HealthEvent.detail_type, f'%"verdict":"{Verdict.FAILED.value}"%', after, count)
        return self._do(lambda database: [Entry(*row) for row in database.execute(query, values)])

    def forget(self, event_ids: Iterable[str]) -> None:
        """The bus has these."""
        rows = [(event_id,) for event_id in event_ids]
        self._do(lambda database: database.executemany("DELETE FROM events WHERE event_id = ?", rows))

    def state(self) -> dict[str, object]:
        """All state as it was last put, without what is not understood: a disk may have spoilt it."""
        rows = self._do(lambda database: database.execute("SELECT * FROM state").fetchall())
        return dict(_understood(rows))

    def dropped(self) -> int:
        """How many events have been given up for room, ever."""
        return int(str(self.state().get(_DROPPED, 0)))

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._database.close()

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            if self._is_in_memory and self._monotonic() >= self._again_at:
                self._go_back()
            try:
                with self._database:
                    return work(self._database)
            except sqlite3.Error as error:
                if self._is_in_memory:
                    raise
                self._go_on_in_memory(error)
            with self._database:
                return work(self._database)

    def _go_on_in_memory(self, error: sqlite3.Error) -> None:
        memory = _in_memory()
        try:
            self._database.backup(memory)
        except sqlite3.Error:
            memory = _in_memory()
        self._complain(error)
        self._database.close()
        self._database, self._is_in_memory = memory, True

    def _go_back(self) -> None:
        """To a disk that may take it again. What others have put there meanwhile stays; what it held before and the bus
        has got since is sent again, which is harmless.
        """
        try:
            disk = self._open()
        except sqlite3.Error as error:
            self._look_again_after(error)
            return
        try:
            with disk:
                rows = self._database.execute(f"SELECT {_COLUMNS} FROM events ORDER BY seq")
                disk.executemany(_INSERT, rows)
                disk.executemany(_REMEMBER, self._database.execute("SELECT * FROM state"))
        except sqlite3.Error as error:
            disk.close()
            self._look_again_after(error)
            return
        self._database.close()
        self._database, self._is_in_memory = disk, False
        logger.info("the spool is written again", extra={"path": self._path})

    def _look_again_after(self, error: Exception) -> None:
        """Or never, where the error is not of the kind that passes."""
        passes = getattr(error, "sqlite_errorcode", 0) & _KIND in _PASSING
        self._again_at = self._monotonic() + AGAIN_SECONDS if passes else math.inf

    def _begin(self, directory: Path) -> sqlite3.Connection:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            return self._open_or_begin_anew()
        except (OSError, sqlite3.Error) as error:
            self._complain(error)
            self._is_in_memory = True
            return _in_memory()

    def _open_or_begin_anew(self) -> sqlite3.Connection:
        """Raises OSError, sqlite3.Error: a disk that has spoilt the spool may no longer be written either."""
        try:
            return self._open()
        except sqlite3.OperationalError:
            raise  # read-only, full, locked: not corrupt
        except sqlite3.DatabaseError as error:
            self._move_aside(error)
            return self._open()

    def _complain(self, error: Exception) -> None:
        """A failed disk must not silence a node. Stable event ids make harmless what is sent twice because of it."""
        logger.error("the spool cannot be written; going on in memory", extra={"path": self._path, "error": error})
        self._look_again_after(error)

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, timeout=LOCK_SECONDS, check_same_thread=False)
        try:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=FULL")
            result = database.execute("PRAGMA quick_check(1)").fetchone()
            if result != ("ok",):
                raise sqlite3.DatabaseError(result[0])
            database.executescript(_SCHEMA)
        except sqlite3.Error:
            database.close()
            raise
        return database

    def _move_aside(self, error: sqlite3.Error) -> None:
        aside = self._path.with_suffix(".corrupt")
        self._path.replace(aside)
        logger.error("the spool is corrupt; beginning a new one", extra={"moved_to": aside, "error": error})
        for suffix in ("-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def _trim(self, database: sqlite3.Connection) -> None:
        dropped = 0
        while self._used_bytes(database) > self._limit_bytes:
            gone = sum(self._drop(database, kind) for kind in (_HEARTBEAT, _OK)) or self._drop(database, _FINDING)
            if not gone:
                break
            dropped += gone
        if dropped:
            logger.error("the spool is full; the oldest events were dropped", extra={"dropped": dropped})
            row = database.execute("SELECT value FROM state WHERE key = ?", (_DROPPED,)).fetchone()
            total = dropped + (json.loads(row[0]) if row else 0)
            database.execute(_REMEMBER, (_DROPPED, json.dumps(total)))

    def _drop(self, database: sqlite3.Connection, kind: str) -> int:
        query = "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE kind = ? ORDER BY seq LIMIT ?)"
        return database.execute(query, (kind, TRIM_ROWS)).rowcount

    @staticmethod
    def _used_bytes(database: sqlite3.Connection) -> int:
        pages, free, size = (
            database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)


def _in_memory() -> sqlite3.Connection:
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.executescript(_SCHEMA)
    return database


def _columns(event: NodeFact) -> tuple[str, str, str, float]:
    return (event.event_id, event.detail_type, event.to_json(), event.observed_at.timestamp())


def _kind(event: NodeFact) -> str:
    if not isinstance(event, HealthEvent) or event.verdict is not Verdict.OK:
        return _FINDING
    return _HEARTBEAT if event.family is Family.heartbeat else _OK


def _understood(rows: Iterable[tuple[str, str]]) -> Iterator[tuple[str, object]]:
    for key, value in rows:
        try:
            yield key, json.loads(value)
        except ValueError as error:
            logger.error("the spool holds what is not understood; it is forgotten", extra={"key": key, "why": error})


def _state_rows(state: dict[str, object]) -> list[tuple[str, str]]:
    return [(key, json.dumps(value)) for key, value in state.items()]
