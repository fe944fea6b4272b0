"""The kernel-log check: accelerator faults as the driver writes them, from the device, a log file or the journal."""

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
from nodeheal.agent.checks.kmsg import RECORDS_A_TURN, KmsgReader
from nodeheal.agent.checks.pci_tree import PciTree
from nodeheal.agent.checks.repeats import Observation, Repeats, load
from nodeheal.agent.clock import Clock
from nodeheal.agent.config import KernelLog
from nodeheal.agent.event import EventFactory, HealthEvent, Identity, clip
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
# A storm is known by its pace, and is over a second after it: by the lines of one turn it would seem to be over
# whenever a turn comes early, and the turns after that, of a few lines each, would cost more than the lines.
STORM_LINES, PACE_SECONDS, STORM_SECONDS = 16, 0.1, 1.0
TROUBLE_SECONDS = 10.0
KNOWN_BYTES = 2048  # a kernel record is no longer, and the longest header is short
KNOWN_WORDS = 512  # different ones that are recognised without being parsed again


PCI_DEVICES = Path("/sys/bus/pci/devices")

logger = logging.getLogger(__name__)

_Words = tuple[bytes, bytes]


class _Log(Protocol):
    """One place where the kernel's words are read."""

    key: str
    descriptor: int | None  # where select can wait for news; None: it must be asked again and again
    lines: int  # read by the last call
    breath_seconds: float  # how long lines may gather in a storm: a turn costs more than a line

    def observations(self, now: float, seen_at: datetime) -> Iterator[Observation]:
        """The faults since the last call."""

    def cursor(self) -> dict[str, object]:
        """Where to go on after a restart."""

    def close(self) -> None:
        """Let go."""


@dataclass(slots=True)
class _Seen:
    """Lines of one turn that say the same."""

    finding: Finding
    first: RawLine
    last: RawLine
    again: int = 0


class _FileLog:
    descriptor: int | None = None
    lines = 0
    breath_seconds = 0.0  # it is only polled anyway

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

    def observations(self, now: float, seen_at: datetime) -> Iterator[Observation]:
        """The first of those that read the same but for their times, and the rest as one: see `_KmsgLog`."""
        self.lines = 0
        if not self._tail.has_news():
            return
        told: dict[tuple[_Words, bool], _Seen] = {}
        known, lines = self._known, 0
        for line in self._tail.read(now):
            lines += 1
            words = timeless(line.content)
            finding = known[words] if words in known else self._learn(words, line.content)
            if finding is not None:
                key = (words, line.is_history)
                seen = told.get(key)
                if seen is None:
                    told[key] = _Seen(finding, line, line)
                else:
                    seen.last, seen.again = line, seen.again + 1
        self.lines = lines
        self._trouble.note(self._tail.trouble, now)
        for seen in told.values():
            yield self._observation(seen.finding, seen.first, seen_at)
            if seen.again:
                yield self._observation(seen.finding, seen.last, seen_at, seen.again)

    def _observation(self, finding: Finding, line: RawLine, seen_at: datetime, count: int = 1) -> Observation:
        boot_id = self._tail.history_boot_id if line.is_history else self._boot_id
        return Observation(
            finding, boot_id, line.position, clip(line.content.decode("utf-8", "replace")), seen_at, count
        )

    def _learn(self, words: _Words, line: bytes) -> Finding | None:
        if len(self._known) >= KNOWN_WORDS:
            self._known.clear()
        is_refused = DRILL_MARK.encode() in line and not self._takes_drills
        finding = None if is_refused else parse_syslog_line(line, self._messages.finding)
        if (
            words[0] and len(line) <= KNOWN_BYTES and is_independent(line)
        ):  # what a program logs hardly ever comes again in the same words
            self._known[words] = finding
        return finding


class _Trouble:
    """What keeps a log from being read, once it has been: it is waited out, as the node still has other things to tell.

    Rotation is trouble for a moment; what lasts is said once.
    """

    def __init__(self, path: str, *, is_said: bool) -> None:
        self._path = path
        self._since: float | None = None
        self._is_said = is_said

    def note(self, error: OSError | None, now: float) -> None:
        """How the last reading went."""
        if error is None:
            if self._is_said:
                logger.info("the kernel log is read again", extra={"path": self._path})
            self._since, self._is_said = None, False
            return
        self._since = now if self._since is None else self._since
        if not self._is_said and now - self._since >= TROUBLE_SECONDS:
            self._is_said = True
            why = error.strerror or str(error)
            logger.error("the kernel log cannot be read; it is tried again", extra={"path": self._path, "why": why})


class _KmsgLog:
    lines = 0
    breath_seconds = 0.02  # of 10,000 lines a second the smallest ring buffer, 128 KiB, is full after about 0.12

    def __init__(self, path: str, boot_id: str, cursor: dict[str, object] | None, takes_drills: bool) -> None:
        self.key = _key("kmsg", path)
        self._boot_id = boot_id
        self._takes_drills = takes_drills
        self._reader = KmsgReader(path, boot_id, cursor)
        self._messages = Messages()
        self._known: dict[_Words, Finding | None] = {}
        self.descriptor: int | None = self._reader.descriptor
        self.cursor, self.close = self._reader.cursor, self._reader.close

    def observations(self, now: float, seen_at: datetime) -> Iterator[Observation]:
        """Those that read the same are one with a count: in a storm each costs no more than to be recognised."""
        records = self._reader.read()
        self.lines = len(records)
        news = bisect_right(records, self._reader.history_until, key=itemgetter(0))
        for is_history, part in ((True, records[:news]), (False, records[news:])):
            for finding, count, last in self._told(part):
                head, _, said = last.partition(b";")
                _, sequence, after, *_ = head.split(b",")
                at = seen_at - _since(after, now) if is_history else seen_at
                text = clip(said.partition(b"\n")[0].decode("utf-8", "replace"))
                yield Observation(finding, self._boot_id, sequence.decode(), text, at, count, is_history)

    def _told(self, records: Sequence[tuple[int, bytes]]) -> Iterable[tuple[Finding, int, bytes]]:
        """What is said in the same words is counted before anything is asked about it: it is said most, in a storm."""
        last: dict[_Words, bytes] = {}
        count: dict[_Words, int] = {}
        for _, raw in records:
            head, _, said = raw.partition(b";")
            words = (head[: head.find(b",")], said)  # who says it, and what
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
    """Reports every accelerator fault in the kernel log once: at once, or folded with its repeats.

    What it returns and `state()` belong into one transaction: a crash in between then loses nothing and repeats
    nothing.
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
        """`saved`: the state of the last run, empty at the first start ever. Raises OSError if a log is unreadable."""
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
        # The minute of what was folded before a restart is not known any more: it is reported now.
        self._leftover = load(saved.get(_FOLDED, []))  # type: ignore[arg-type]  # as state() wrote it

    def poll(self) -> list[HealthEvent]:
        """The events since the last call."""
        now, seen_at = self._clock.monotonic(), self._clock.utc_now()
        reported, self._leftover = self._leftover, []
        for log in self._logs:
            for observation in log.observations(now, seen_at):
                found = self._pci.place(observation.finding, now)
                placed = observation if found is observation.finding else replace(observation, finding=found)
                reported += self._repeats.admit(placed, now)
        self._note_pace(now)
        reported += self._repeats.expire(now)
        return [self._event(observation) for observation in reported]

    def has_told(self, finding: Finding) -> bool:
        """Whether the kernel has said the same within the last minute: the driver tells every fault on two ways."""
        return self._repeats.is_open(finding, self._boot_id)

    def state(self) -> dict[str, object]:
        """What the next run must know. JSON."""
        pci = {"boot_id": self._boot_id, "serves_jobs": self._pci.state()}
        return {**{log.key: log.cursor() for log in self._logs}, _FOLDED: self._repeats.dump(), _PCI: pci}

    def descriptors(self) -> list[int]:
        """Where select hears news."""
        return [log.descriptor for log in self._logs if log.descriptor is not None]

    @property
    def breath_seconds(self) -> float:
        """How long to let lines gather, so that a turn reads many. 0: they come slowly, or more are there already."""
        told = [log for log in self._logs if log.breath_seconds]
        if self._polled_at >= self._storm_until or any(log.lines >= RECORDS_A_TURN for log in told):
            return 0.0
        return min(log.breath_seconds for log in told)

    def _note_pace(self, now: float) -> None:
        self._polled_at = now
        if now - self._pace_since > PACE_SECONDS:
            self._pace_since, self._pace = now, 0
        self._pace += sum(log.lines for log in self._logs if log.breath_seconds)
        if self._pace >= STORM_LINES:
            self._storm_until = now + STORM_SECONDS

    @property
    def must_be_polled(self) -> bool:
        """Whether a log is a file, of which select says nothing."""
        return any(log.descriptor is None for log in self._logs)

    def close(self) -> None:
        """Let the logs go."""
        for log in self._logs:
            log.close()

    def _event(self, observation: Observation) -> HealthEvent:
        event = EventFactory(self._identity, observation.boot_id).found(
            observation.finding,
            source=SOURCE,
            # The folded rest ends where a line stands that might itself have been reported.
            position=observation.position if observation.count == 1 else f"{observation.position}x{observation.count}",
            at=observation.seen_at,
            evidence=observation.evidence,
            count=observation.count,
        )
        return replace(event, is_history=True) if observation.is_history else event


def _is_there(path: str, was_read_before: bool) -> bool:
    """Raises OSError where it cannot be read. A log that is not there at the first start is a misspelt one: silence
    from it would look like health. One that was read before is being rotated, or is made anew at each boot.
    """
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except FileNotFoundError:
        if not was_read_before:
            raise
        logger.warning("the kernel log is not there; it is read when it comes", extra={"path": path})
        return False
    return True


def _since(after: bytes, now: float) -> timedelta:
    """How long ago a record is. `after`: microseconds since the boot, by a clock that may run a little apart."""
    said = int(after) / 1e6 if after.isdigit() else now
    return timedelta(seconds=max(0.0, now - said))


def _of_boot(saved: object, boot_id: str) -> object:
    """What the last run on this boot knew of PCI devices: another boot may number them otherwise."""
    return saved.get("serves_jobs") if isinstance(saved, dict) and saved.get("boot_id") == boot_id else None


def _key(kind: str, path: str) -> str:
    return f"kernel_log.{kind}.{path}"


def _open(log: KernelLog, boot_id: str, cursor: object, takes_drills: bool, now: float) -> _Log:
    known = cursor if isinstance(cursor, dict) else None
    if log.kind == "journald":
        from nodeheal.agent.checks.journal import JournalLog  # which loads what runs processes: only where it is used

        return JournalLog(_key(log.kind, log.path), log.path, boot_id, known, takes_drills, now)
    if log.kind == "kmsg":
        return _KmsgLog(log.path, boot_id, known, takes_drills)
    return _FileLog(log.path, boot_id, known, takes_drills)
