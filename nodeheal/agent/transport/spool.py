"""Stores events on disk until the bus has accepted them."""

import contextlib
import json
import logging
import math
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.file_owner import as_owner_of
from nodeheal.agent.transport.clock_correction import BootEpochs
from nodeheal.agent.transport.event import Entry, HealthEvent, NodeFact
from nodeheal.contract.vocabulary import Family, Verdict

FILE_NAME = "spool.db"
TRIM_ROWS = 64
LOCK_SECONDS = 5.0
# Seconds until a full or locked disk is tried again. A broken one is not: the next access may hang.
AGAIN_SECONDS = 60.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, event_id TEXT NOT NULL UNIQUE, detail_type TEXT NOT NULL,
    detail TEXT NOT NULL, observed_at REAL NOT NULL, kind TEXT NOT NULL, zero REAL
);
CREATE INDEX IF NOT EXISTS by_kind ON events (kind, seq);
CREATE TABLE IF NOT EXISTS state (key TEXT PRIMARY KEY, value TEXT NOT NULL)
"""
_COLUMNS = "event_id, detail_type, detail, observed_at, kind, zero"
_INSERT = f"INSERT OR IGNORE INTO events ({_COLUMNS}) VALUES (?,?,?,?,?,?)"
_REMEMBER = "INSERT OR REPLACE INTO state VALUES (?,?)"
_READ = "SELECT seq, event_id, detail_type, detail, zero FROM events"
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_PASSING = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY)
_KIND = 0xFF  # of SQLite's error codes: the other bits give the detail
_HEARTBEAT, _OK, _FINDING = "heartbeat", "ok", "finding"
_DROPPED, _NODE = "spool.dropped", "spool.node"
_DROP_OTHER_BOOTS = (
    "DELETE FROM events WHERE CASE WHEN json_valid(detail) THEN json_extract(detail, '$.boot_id') END IS NOT ?"
)
_NAME_NODE = "UPDATE events SET detail = json_set(detail, '$.node_id', ?1, '$.instance_id', ?1)"

logger = logging.getLogger(__name__)
T = TypeVar("T")


class Spool:
    """Holds events until they are deleted, through crashes and power cuts, oldest first.

    Bounded: when it is full, the oldest good news is dropped first, then the oldest findings; drops are counted. When
    the disk fails, it goes on in memory and logs that; when a full disk has room again, it goes back. Safe to use from
    several threads and processes.

    The file names its node, since a disk may be copied to another machine, and a hybrid machine registered again
    (ADR 49). In the file of another node, only the events of the running boot are this machine's: they get its id.
    """

    def __init__(
        self, directory: Path, limit_mib: int = 64, clock: Clock | None = None, boot_id: str = "", node_id: str = ""
    ) -> None:
        """`boot_id`: of the running boot. Events of other boots are dated by clocks that can no longer be compared.
        `node_id`: the node whose events it holds.
        """
        self._path = directory / FILE_NAME
        self._clock, self._boot_id, self._node_id = clock or Clock(), boot_id, node_id
        self._boot_epochs = BootEpochs(self._clock)
        self._again_at = math.inf
        self._limit_bytes = limit_mib * 1024 * 1024
        self._lock = threading.Lock()
        self._is_in_memory = False
        self._database = self._begin(directory)

    def put(self, events: Iterable[NodeFact], state: dict[str, object] | None = None) -> None:
        """Store the events and the state in one transaction. An event that is stored already is stored once."""
        kept = list(events)
        rows = [
            (*_columns(event), _kind(event), zero) for event, zero in zip(kept, self._boot_epochs.of(kept), strict=True)
        ]

        def write(database: sqlite3.Connection) -> None:
            if any(kind == _HEARTBEAT for *_, kind, _ in rows):
                # The newest heartbeat replaces the older ones.
                database.execute("DELETE FROM events WHERE kind = ?", (_HEARTBEAT,))
            database.executemany(_INSERT, rows)
            database.executemany(_REMEMBER, _state_rows(state or {}))
            self._trim(database)

        self._do(write)

    def oldest(self, count: int) -> Sequence[Entry]:
        """Return the oldest events. Unreadable ones are dropped and logged."""
        return self._readable("ORDER BY seq LIMIT ?", (count,))

    def failed(self, after: str, count: int) -> Sequence[Entry]:
        """Return the oldest FAILED findings; only those after this event, where it is still stored."""
        which = (
            "WHERE kind NOT IN (?, ?) AND detail_type = ? "
            "AND detail LIKE ? AND seq > COALESCE((SELECT seq FROM events WHERE event_id = ?), 0) ORDER BY seq LIMIT ?"
        )
        verdict = f'%"verdict":"{Verdict.FAILED.value}"%'
        return self._readable(which, (_HEARTBEAT, _OK, HealthEvent.detail_type, verdict, after, count))

    def forget(self, event_ids: Iterable[str]) -> None:
        """Delete these events, which the bus has accepted."""
        rows = [(event_id,) for event_id in event_ids]
        self._do(lambda database: database.executemany("DELETE FROM events WHERE event_id = ?", rows))

    def state(self) -> dict[str, object]:
        """Return all state as last stored, without invalid entries, which a disk may have damaged."""
        rows = self._do(lambda database: database.execute("SELECT * FROM state").fetchall())
        return dict(_understood(rows))

    def dropped(self) -> int:
        """Return how many events have ever been dropped for lack of room."""
        return _count(self.state().get(_DROPPED))

    def size(self) -> tuple[int, int]:
        """Return (number of stored events, bytes used by the spool)."""

        def measure(database: sqlite3.Connection) -> tuple[int, int]:
            (events,) = database.execute("SELECT COUNT(*) FROM events").fetchone()
            return int(events), self._used_bytes(database)

        return self._do(measure)

    def zero(self) -> float:
        """Set when the boot began by the clock that dates the events stored from now on."""
        return self._clock.zero()

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._database.close()

    def _readable(self, which: str, values: Sequence[object]) -> Sequence[Entry]:
        while True:
            entries, is_whole = self._do(lambda database: self._read(database, which, values))
            if is_whole:
                return entries

    def _read(self, database: sqlite3.Connection, which: str, values: Sequence[object]) -> tuple[list[Entry], bool]:
        """Return the readable events, and whether all were readable: damaged ones are dropped."""
        entries, spoilt = list[Entry](), list[tuple[int]]()
        for seq, event_id, detail_type, detail, zero in database.execute(f"{_READ} {which}", values).fetchall():
            try:
                entry = _entry(event_id, detail_type, detail, zero)
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
                spoilt.append((seq,))
                fields = {"event": str(event_id)[:64], "why": f"{type(error).__name__}: {error}"}
                logger.error("the spool contains an event that cannot be read; it is dropped", extra=fields)
                continue
            entries.append(entry if entry.boot_id == self._boot_id else replace(entry, zero=None))
        database.executemany("DELETE FROM events WHERE seq = ?", spoilt)
        return entries, not spoilt

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            if self._is_in_memory and self._clock.monotonic() >= self._again_at:
                self._go_back()
            try:
                with self._database:
                    return work(self._database)
            except sqlite3.Error as error:
                if self._is_in_memory:
                    raise
                self._recover(error)
            with self._database:
                return work(self._database)

    def _recover(self, error: sqlite3.Error) -> None:
        """Recover into a new file where the old one is corrupt, else into memory, with what was readable."""
        memory = _in_memory()
        if _is_one_of(error, _DAMAGED):
            self._database.close()
            with contextlib.suppress(OSError, sqlite3.Error), as_owner_of(self._path.parent):
                self._move_aside(error)
                self._database = self._open()
                return
        else:
            try:
                self._database.backup(memory)
            except sqlite3.Error:
                memory = _in_memory()
            self._database.close()
        self._complain(error)
        self._database, self._is_in_memory = memory, True

    def _go_back(self) -> None:
        """Go back to a disk that accepts writes again. Events that other processes have stored there stay. Events that
        were accepted in the meantime are sent again, which is harmless.
        """
        try:
            with as_owner_of(self._path.parent):
                disk = self._open()
        except (OSError, sqlite3.Error) as error:
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
        logger.info("the spool is writable again", extra={"path": self._path})

    def _look_again_after(self, error: Exception) -> None:
        """Return when to try the disk again; never, where the error does not pass."""
        passes = _is_one_of(error, _PASSING)
        self._again_at = self._clock.monotonic() + AGAIN_SECONDS if passes else math.inf

    def _begin(self, directory: Path) -> sqlite3.Connection:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with as_owner_of(directory):
                return self._open_or_begin_anew()
        except (OSError, sqlite3.Error) as error:
            self._complain(error)
            self._is_in_memory = True
            return _in_memory()

    def _open_or_begin_anew(self) -> sqlite3.Connection:
        """Open the database, or create a new one. Raises OSError, sqlite3.Error: a disk that has damaged the spool may
        not be writable.
        """
        try:
            return self._open()
        except sqlite3.OperationalError:
            raise  # read-only, full, locked: not corrupt
        except sqlite3.DatabaseError as error:
            self._move_aside(error)
        return self._open()

    def _complain(self, error: Exception) -> None:
        """Log a disk failure, which must not silence a node. Stable event ids make repeated events harmless."""
        logger.error(
            "the spool cannot be written; events are kept in memory", extra={"path": self._path, "error": error}
        )
        self._look_again_after(error)

    def _open(self) -> sqlite3.Connection:
        database = _connected(self._path)
        try:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=FULL")
            result = database.execute("PRAGMA quick_check(1)").fetchone()
            if result != ("ok",):
                raise sqlite3.DatabaseError(result[0])
            database.executescript(_SCHEMA)
            with database:
                self._claim(database)
        except sqlite3.Error:
            database.close()
            raise
        return database

    def _claim(self, database: sqlite3.Connection) -> None:
        """Make the file this node's. The state stays: each part of it names the boot that it is of."""
        node = _value(database, _NODE) or ""
        if node == self._node_id:
            return
        database.execute(_REMEMBER, (_NODE, json.dumps(self._node_id)))
        if node:
            dropped = database.execute(_DROP_OTHER_BOOTS, (self._boot_id,)).rowcount
            kept = database.execute(_NAME_NODE, (self._node_id,)).rowcount
            logger.warning(
                "the spool was another node's: events of other boots are dropped, those of this boot are kept",
                extra={"of": node, "dropped": dropped, "kept": kept},
            )

    def _move_aside(self, error: sqlite3.Error) -> None:
        """Rename the corrupt file with its write-ahead log, which has the last writes."""
        aside = self._path.with_suffix(".corrupt")
        self._path.replace(aside)
        logger.error("the spool is corrupt; a new one is created", extra={"moved_to": aside, "error": error})
        self._path.with_name(f"{self._path.name}-shm").unlink(missing_ok=True)
        log, log_aside = (path.with_name(f"{path.name}-wal") for path in (self._path, aside))
        log_aside.unlink(missing_ok=True)
        if log.exists():
            log.replace(log_aside)

    def _trim(self, database: sqlite3.Connection) -> None:
        dropped = 0
        while self._used_bytes(database) > self._limit_bytes:
            gone = self._drop(database, "IN") or self._drop(database, "NOT IN")
            if not gone:
                break
            dropped += gone
        if dropped:
            logger.error("the spool is full; the oldest events were dropped", extra={"dropped": dropped})
            total = dropped + _count(_value(database, _DROPPED))
            database.execute(_REMEMBER, (_DROPPED, json.dumps(total)))

    @staticmethod
    def _drop(database: sqlite3.Connection, which: str) -> int:
        """Drop good news (IN), or everything else, including kinds that the disk has damaged."""
        query = f"SELECT seq FROM events WHERE kind {which} (?, ?) ORDER BY seq LIMIT ?"
        return database.execute(f"DELETE FROM events WHERE seq IN ({query})", (_HEARTBEAT, _OK, TRIM_ROWS)).rowcount

    @staticmethod
    def _used_bytes(database: sqlite3.Connection) -> int:
        pages, free, size = (
            database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)


def _connected(place: Path | str) -> sqlite3.Connection:
    database = sqlite3.connect(place, timeout=LOCK_SECONDS, check_same_thread=False)
    database.text_factory = lambda stored: stored.decode("utf-8", "replace")  # a damaged file may not contain text
    return database


def _in_memory() -> sqlite3.Connection:
    database = _connected(":memory:")
    database.executescript(_SCHEMA)
    return database


def _columns(event: NodeFact) -> tuple[str, str, str, float]:
    return (event.event_id, event.detail_type, event.to_json(), event.observed_at.timestamp())


def _kind(event: NodeFact) -> str:
    if not isinstance(event, HealthEvent) or event.verdict is not Verdict.OK:
        return _FINDING
    return _HEARTBEAT if event.family is Family.heartbeat else _OK


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def _understood(rows: Iterable[tuple[object, object]]) -> Iterator[tuple[str, object]]:
    for key, value in rows:
        try:
            yield str(key), json.loads(str(value))
        except (ValueError, RecursionError) as error:
            logger.error("the spool contains invalid state; it is discarded", extra={"key": key, "why": error})


def _value(database: sqlite3.Connection, key: str) -> object:
    """Return a part of the state; None where there is none, or an invalid one."""
    rows = database.execute("SELECT key, value FROM state WHERE key = ?", (key,)).fetchall()
    return dict(_understood(rows)).get(key)


def _state_rows(state: dict[str, object]) -> list[tuple[str, str]]:
    return [(key, json.dumps(value)) for key, value in state.items()]


def _entry(event_id: object, detail_type: object, detail: object, zero: object) -> Entry:
    """Parse a stored event, with the time from its JSON. Raises what `_read` catches for damaged rows."""
    kind = str(detail_type)
    if kind not in {fact.detail_type for fact in NodeFact.__subclasses__()}:
        raise ValueError(f"{kind[:64]!r} is not a kind of event")
    fields = json.loads(str(detail))
    if fields["event_id"] != event_id:
        raise ValueError("it has the id of another event")
    observed_at, boot_id = datetime.fromisoformat(fields["observed_at"]).timestamp(), str(fields.get("boot_id", ""))
    return Entry(str(event_id), kind, str(detail), observed_at, boot_id, zero if isinstance(zero, float) else None)


def _is_one_of(error: Exception, kinds: Sequence[int]) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & _KIND in kinds
