"""Reports accelerator faults from the kernel log: from the device, a log file or the journal."""

import logging
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Protocol

from nodeheal.agent.checks.file_tail import FileTail, RawLine
from nodeheal.agent.checks.journal import JournalLog
from nodeheal.agent.checks.kmsg import RECORDS_A_TURN, KmsgReader
from nodeheal.agent.checks.pci_tree import PciTree
from nodeheal.agent.checks.repeats import FindingOccurrence, Repeats, load
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.config import KernelLog
from nodeheal.agent.transport.event import EventFactory, HealthEvent, Identity, clip
from nodeheal.contract.names import DRILL_MARK
from nodeheal.parsers.finding import Finding
from nodeheal.parsers.kernel_header import timeless
from nodeheal.parsers.kernel_line import (
    Messages,
    finding_in_record,
    is_independent,
    parse_kmsg_record,
    parse_syslog_line,
)

SOURCE = "kernel_log"
_FOLDED = "kernel_log.folded"
_PCI = "kernel_log.pci"
# A storm is recognised by its rate and is over a second after it. Counting the lines of one turn would end it whenever
# a turn comes early, and short turns cost more than the lines in them.
STORM_LINES, PACE_SECONDS, STORM_SECONDS = 16, 0.1, 1.0
TROUBLE_SECONDS = 10.0
KNOWN_BYTES = 2048  # a kernel record is not longer, and the longest header is short
KNOWN_WORDS = 512  # different lines that are recognised without being parsed again


PCI_DEVICES = Path("/sys/bus/pci/devices")

logger = logging.getLogger(__name__)

_Words = tuple[bytes, bytes]


class _Log(Protocol):
    """One source of kernel messages."""

    key: str
    descriptor: int | None  # the descriptor that select can wait on; None: the source must be polled
    lines: int  # lines read by the last call
    breath_seconds: float  # how long lines may accumulate in a storm: a turn costs more than a line

    def observations(self, now: float, seen_at: datetime) -> Iterator[FindingOccurrence]:
        """Return the faults since the last call."""

    def cursor(self) -> dict[str, object]:
        """Return the position for the next start."""

    def close(self) -> None:
        """Close the source."""


@dataclass(slots=True)
class _Seen:
    """Identical lines of one turn."""

    finding: Finding
    first: RawLine
    last: RawLine
    again: int = 0


class _FileLog:
    descriptor: int | None = None
    lines = 0
    breath_seconds = 0.0  # the file is polled anyway

    def __init__(self, path: str, boot_id: str, cursor: dict[str, object] | None, takes_drills: bool) -> None:
        is_there = _is_there(path, was_read_before=cursor is not None)
        self.key = _key("file", path)
        self._boot_id = boot_id
        self._takes_drills = takes_drills
        self._tail = FileTail(Path(path), boot_id, cursor)
        self._trouble = _Trouble(path, is_said=not is_there)
        self._messages = Messages()
        self._known: dict[_Words, Finding | None] = {}
        self.cursor, self.close = self._tail.cursor, self._tail.close

    def observations(self, now: float, seen_at: datetime) -> Iterator[FindingOccurrence]:
        """Return the first of those that are equal but for their times, and the rest as one: see `_KmsgLog`."""
        self.lines = 0
        if not self._tail.has_news():
            return
        groups: dict[tuple[_Words, bool], _Seen] = {}
        known, lines = self._known, 0
        for line in self._tail.read(now):
            lines += 1
            words = timeless(line.content)
            finding = known[words] if words in known else self._learn(words, line.content)
            if finding is not None:
                key = (words, line.is_history)
                group = groups.get(key)
                if group is None:
                    groups[key] = _Seen(finding, line, line)
                else:
                    group.last, group.again = line, group.again + 1
        self.lines = lines
        self._trouble.note(self._tail.trouble, now)
        for group in groups.values():
            yield self._observation(group.finding, group.first, seen_at)
            if group.again:
                yield self._observation(group.finding, group.last, seen_at, group.again)

    def _observation(self, finding: Finding, line: RawLine, seen_at: datetime, count: int = 1) -> FindingOccurrence:
        boot_id = self._tail.history_boot_id if line.is_history else self._boot_id
        return FindingOccurrence(
            finding, boot_id, line.position, clip(line.content.decode("utf-8", "replace")), seen_at, count
        )

    def _learn(self, words: _Words, line: bytes) -> Finding | None:
        if len(self._known) >= KNOWN_WORDS:
            self._known.clear()
        is_refused = DRILL_MARK.encode() in line and not self._takes_drills
        finding = None if is_refused else parse_syslog_line(line, self._messages.finding)
        if (
            words[0] and len(line) <= KNOWN_BYTES and is_independent(line)
        ):  # messages of programs hardly ever repeat word for word
            self._known[words] = finding
        return finding


class _Trouble:
    """A read failure of a log that was readable before. The agent retries, since the node has other things to report.

    A rotation fails for a moment; a failure that lasts is logged once.
    """

    def __init__(self, path: str, *, is_said: bool) -> None:
        self._path = path
        self._since: float | None = None
        self._is_said = is_said

    def note(self, error: OSError | None, now: float) -> None:
        """Record the result of the last read."""
        if error is None:
            if self._is_said:
                logger.info("the kernel log is read again", extra={"path": self._path})
            self._since, self._is_said = None, False
            return
        self._since = now if self._since is None else self._since
        if not self._is_said and now - self._since >= TROUBLE_SECONDS:
            self._is_said = True
            why = error.strerror or str(error)
            logger.error("the kernel log cannot be read; retrying", extra={"path": self._path, "why": why})


class _KmsgLog:
    lines = 0
    breath_seconds = 0.02  # at 10,000 lines a second the smallest ring buffer, 128 KiB, is full after about 0.12 s

    def __init__(self, path: str, boot_id: str, cursor: dict[str, object] | None, takes_drills: bool) -> None:
        self.key = _key("kmsg", path)
        self._boot_id = boot_id
        self._takes_drills = takes_drills
        self._reader = KmsgReader(path, boot_id, cursor)
        self._messages = Messages()
        self._known: dict[_Words, Finding | None] = {}
        self.descriptor: int | None = self._reader.descriptor
        self.cursor, self.close = self._reader.cursor, self._reader.close

    def observations(self, now: float, seen_at: datetime) -> Iterator[FindingOccurrence]:
        """Return the faults; identical ones are one with a count. In a storm, recognising each line is the only
        cost.
        """
        records = self._reader.read()
        self.lines = len(records)
        news = bisect_right(records, self._reader.history_until, key=itemgetter(0))
        for is_history, part in ((True, records[:news]), (False, records[news:])):
            for finding, count, last in self._told(part):
                head, _, message = last.partition(b";")
                _, sequence, after, *_ = head.split(b",")
                at = seen_at - _since(after, now) if is_history else seen_at
                text = clip(message.partition(b"\n")[0].decode("utf-8", "replace"))
                yield FindingOccurrence(finding, self._boot_id, sequence.decode(), text, at, count, is_history)

    def _told(self, records: Sequence[tuple[int, bytes]]) -> Iterable[tuple[Finding, int, bytes]]:
        """Count a line with known words before anything is parsed: in a storm most lines are such."""
        last: dict[_Words, bytes] = {}
        count: dict[_Words, int] = {}
        for _, raw in records:
            head, _, message = raw.partition(b";")
            words = (head[: head.find(b",")], message)  # source and message
            last[words] = raw
            count[words] = count.get(words, 0) + 1
        for words, raw in last.items():
            finding = self._known[words] if words in self._known else self._learn(words, raw)
            if finding is not None:
                yield finding, count[words], raw

    def _learn(self, words: "_Words", raw: bytes) -> Finding | None:
        if len(self._known) >= KNOWN_WORDS:
            self._known.clear()
        record = parse_kmsg_record(raw)
        finding = finding_in_record(record, self._takes_drills, self._messages.finding) if record else None
        if is_independent(raw):
            self._known[words] = finding
        return finding


class KernelLogCheck:
    """Reports every accelerator fault of the kernel log once: at once, or folded with its repeats.

    Store its result and `state()` in one transaction: a crash in between then loses nothing and repeats nothing.
    """

    def __init__(
        self,
        logs: Sequence[KernelLog],
        identity: Identity,
        boot_id: str,
        clock: Clock,
        saved: dict[str, object],
        takes_drills: bool = False,
        pci_devices: Path = PCI_DEVICES,
    ) -> None:
        """`saved`: the state of the last run, empty at the first start ever. Raises OSError if a log is not
        readable.
        """
        self._identity = identity
        self._boot_id = boot_id
        self._clock = clock
        self._repeats = Repeats()
        began = clock.monotonic()
        self._pci = PciTree(pci_devices, _of_boot(saved.get(_PCI), boot_id))
        self._pci.look(began)
        self._logs = [_open(log, boot_id, saved.get(_key(log.kind, log.path)), takes_drills, began) for log in logs]
        self._polled_at = self._pace_since = self._storm_until = began
        self._pace = 0
        # The minute of what was folded before a restart is not known any more, so it is reported now.
        self._leftover = load(saved.get(_FOLDED, []))  # type: ignore[arg-type]  # as state() wrote it

    def poll(self) -> list[HealthEvent]:
        """Return the events since the last call."""
        now, seen_at = self._clock.monotonic(), self._clock.utc_now()
        reported, self._leftover = self._leftover, []
        for log in self._logs:
            for observation in log.observations(now, seen_at):
                finding = self._pci.place(observation.finding, now)
                placed = observation if finding is observation.finding else replace(observation, finding=finding)
                reported += self._repeats.admit(placed, now)
        self._note_pace(now)
        reported += self._repeats.expire(now)
        return [self._event(observation) for observation in reported]

    def has_told(self, finding: Finding) -> bool:
        """Whether the kernel logged the same fault within the last minute: the driver reports every fault in
        two ways.
        """
        return self._repeats.is_open(finding, self._boot_id)

    def state(self) -> dict[str, object]:
        """Return the state for the next run, as JSON."""
        pci = {"boot_id": self._boot_id, "serves_jobs": self._pci.state()}
        return {**{log.key: log.cursor() for log in self._logs}, _FOLDED: self._repeats.dump(), _PCI: pci}

    def descriptors(self) -> list[int]:
        """The descriptors to select on."""
        return [log.descriptor for log in self._logs if log.descriptor is not None]

    @property
    def breath_seconds(self) -> float:
        """Seconds to let lines accumulate, so that a turn reads many. 0: lines come slowly, or more are available
        already.
        """
        logs = [log for log in self._logs if log.breath_seconds]
        if self._polled_at >= self._storm_until or any(log.lines >= RECORDS_A_TURN for log in logs):
            return 0.0
        return min(log.breath_seconds for log in logs)

    def _note_pace(self, now: float) -> None:
        self._polled_at = now
        if now - self._pace_since > PACE_SECONDS:
            self._pace_since, self._pace = now, 0
        self._pace += sum(log.lines for log in self._logs if log.breath_seconds)
        if self._pace >= STORM_LINES:
            self._storm_until = now + STORM_SECONDS

    @property
    def must_be_polled(self) -> bool:
        """Whether a log is a file, which select cannot wait on."""
        return any(log.descriptor is None for log in self._logs)

    def close(self) -> None:
        """Close the logs."""
        for log in self._logs:
            log.close()

    def _event(self, observation: FindingOccurrence) -> HealthEvent:
        event = EventFactory(self._identity, observation.boot_id).found(
            observation.finding,
            source=SOURCE,
            # The folded rest ends at the position of a line that might have been reported by itself.
            position=observation.position if observation.count == 1 else f"{observation.position}x{observation.count}",
            at=observation.seen_at,
            evidence=observation.evidence,
            count=observation.count,
        )
        return replace(event, is_history=True) if observation.is_history else event


def _is_there(path: str, was_read_before: bool) -> bool:
    """Whether the log exists. Raises OSError where it cannot be read. A log that is missing at the first start is a
    typing error: its silence would look like health. A log that was read before is being rotated, or is created at each
    boot.
    """
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except FileNotFoundError:
        if not was_read_before:
            raise
        logger.warning("the kernel log does not exist; it is read once it does", extra={"path": path})
        return False
    return True


def _since(after: bytes, now: float) -> timedelta:
    """Seconds since a record. `after`: microseconds since boot, by a clock that may drift a little."""
    at = int(after) / 1e6 if after.isdigit() else now
    return timedelta(seconds=max(0.0, now - at))


def _of_boot(saved: object, boot_id: str) -> object:
    """Parse what the last run on this boot knew of PCI devices: another boot may number them differently."""
    return saved.get("serves_jobs") if isinstance(saved, dict) and saved.get("boot_id") == boot_id else None


def _key(kind: str, path: str) -> str:
    return f"kernel_log.{kind}.{path}"


def _open(log: KernelLog, boot_id: str, cursor: object, takes_drills: bool, now: float) -> _Log:
    known = cursor if isinstance(cursor, dict) else None
    if log.kind == "journald":
        return JournalLog(_key(log.kind, log.path), log.path, boot_id, known, takes_drills, now)
    if log.kind == "kmsg":
        return _KmsgLog(log.path, boot_id, known, takes_drills)
    return _FileLog(log.path, boot_id, known, takes_drills)
