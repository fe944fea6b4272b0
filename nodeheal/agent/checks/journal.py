"""Reads the kernel's messages from journald, of this boot and earlier ones, by `journalctl --follow`.

Each journal entry names its boot. After a restart or a reboot, reading goes on at the stored position, so the last
messages of a boot that died are reported once, as history.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice, takewhile

from nodeheal.agent.checks.follower import Follower
from nodeheal.agent.checks.repeats import FindingOccurrence
from nodeheal.agent.transport.event import clip
from nodeheal.parsers.finding import Finding
from nodeheal.parsers.journal_entry import FIELDS, JournalEntry, parse_journal_entry
from nodeheal.parsers.kernel_filter import all_lines, suspicious_lines
from nodeheal.parsers.kernel_line import Messages, finding_in_record, is_independent

TOOL = "journalctl"
KNOWN_WORDS = 512  # different messages that are recognised without being parsed again
# journalctl refuses a cursor of another form, at every start.
_CURSOR = re.compile(
    r"s=[0-9a-f]{32};i=[0-9a-f]{1,16};b=[0-9a-f]{32};m=[0-9a-f]{1,16};t=[0-9a-f]{1,16};x=[0-9a-f]{1,16}"
)
# Fields that differ between two entries with the same message: __CURSOR, __REALTIME_TIMESTAMP and the like. Quotes
# within a message are escaped.
_OF_THE_MOMENT = re.compile(rb'"__[A-Z_]{1,40}"[ \t]*:[ \t]*"[^"\\\n]*"')
_TELLING = tuple(f'"{name}":'.encode() for name in FIELDS if name != "_BOOT_ID")
# An entry that was in the journal for so long, and that journalctl prints only after a restart, was late.
LATE_SECONDS = 30.0
_AT = re.compile(r";t=([0-9a-f]{1,16});")
_AFTER = re.compile(r";m=([0-9a-f]{1,16});")  # microseconds since boot, which setting the clock does not change
_BOOT_ID = re.compile(r"([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})")

logger = logging.getLogger(__name__)

_Told = tuple[str, str, Finding]  # boot, words, finding


class JournalLog:
    """One journal. A restart loses and repeats nothing: `cursor()` gives the position after what was returned."""

    lines = 0
    breath_seconds = 0.01  # at 10,000 entries a second the pipe is full after 0.013 s, and journalctl blocks

    def __init__(
        self,
        key: str,
        directory: str,
        boot_id: str,
        cursor: dict[str, object] | None,
        takes_drills: bool,
        now: float,
    ) -> None:
        """Without a cursor (the first start ever), messages of this boot from before `now`, monotonic seconds, are
        history.

        Raises OSError.
        """
        self.key = key
        self._directory = directory
        self._boot_id = boot_id
        self._takes_drills = takes_drills
        # the first word of a drill, by which a suspicious line is recognised, in a field of its own
        self._lines = all_lines if takes_drills else suspicious_lines
        self._messages = Messages()
        self._known: dict[bytes, _Told | None] = {}
        self._place: dict[str, object] = _place(cursor) if cursor is not None else {}
        until = cursor.get("history_until") if cursor is not None else now
        self._history_until = until if isinstance(until, int | float) else None
        self._has_hung = False
        self._follower = Follower(self._command)
        self.descriptor: int | None = self._follower.descriptor
        self.close = self._follower.close

    def observations(self, now: float, seen_at: datetime) -> Iterator[FindingOccurrence]:
        """Return the faults since the last call; identical ones of one boot are one with a count."""
        was_silent = self._follower.is_asked_again
        block = self._follower.read(now)
        if was_silent and block:
            self._judge_silence(block, seen_at)
        lines = block.split(b"\n")[:-1]
        self.lines = len(lines)
        history = list(takewhile(self._is_history, lines)) if self._history_until is not None else []
        yield from self._told(history, seen_at, is_history=True)
        yield from self._told(lines[len(history) :], seen_at)
        if len(history) < len(lines):
            self._history_until = None
        self._go_on_behind(lines)

    def _told(self, lines: Sequence[bytes], seen_at: datetime, is_history: bool = False) -> Iterator[FindingOccurrence]:
        phrases = _words_of(lines)
        last = dict(zip(phrases, lines, strict=True))
        meanings, count = self._understand(last), Counter(phrases)
        for words, (boot_id, text, finding) in meanings.items():
            entry = parse_journal_entry(last[words])
            position = entry.cursor if entry else ""
            at = min(seen_at, _written_at(position) or seen_at) if is_history else seen_at
            yield FindingOccurrence(finding, boot_id, position, text, at, count[words], is_history)

    def _is_history(self, line: bytes) -> bool:
        """Whether this boot logged it before the first start ever. An entry without a time is judged by its
        position.
        """
        entry = parse_journal_entry(line)
        after = _AFTER.search(entry.cursor) if entry is not None and _is_cursor(entry) else None
        if entry is None or after is None:
            return True
        return self._boot(entry.boot_id) == self._boot_id and int(after[1], 16) / 1e6 <= (self._history_until or 0.0)

    def cursor(self) -> dict[str, object]:
        """Return the position for the next start."""
        is_over = self._history_until is None
        return dict(self._place) if is_over else {**self._place, "history_until": self._history_until}

    def _judge_silence(self, block: bytes, now: datetime) -> None:
        """Whether journalctl held entries back, by the age of what it prints now. One such entry is enough."""
        entry = parse_journal_entry(block.partition(b"\n")[0])
        at = _written_at(entry.cursor) if entry is not None else None
        late = (now - at).total_seconds() if at is not None else 0.0
        if late >= LATE_SECONDS and not self._has_hung:
            self._has_hung = True
            logger.warning(
                "journalctl did not print entries that the journal had; it was restarted",
                extra={"seconds": round(late)},
            )

    def _understand(self, lines: Mapping[bytes, bytes]) -> dict[bytes, _Told]:
        """Find the faults among the entries, by their words."""
        fresh = {words: line for words, line in lines.items() if words not in self._known}
        suspicious = {line for _, line in self._lines(iter((b"\n".join(fresh.values()) + b"\n",)))}
        learnt = {words: self._meaning(line) for words, line in fresh.items() if line in suspicious}
        known = {words: self._known[words] for words in lines if words in self._known} | learnt
        if len(self._known) + len(learnt) > KNOWN_WORDS:
            self._known.clear()
        lasting = ((words, meaning) for words, meaning in known.items() if is_independent(words))
        self._known.update(islice(lasting, KNOWN_WORDS))
        return {words: meaning for words in lines if (meaning := known.get(words)) is not None}

    def _meaning(self, line: bytes) -> _Told | None:
        entry = parse_journal_entry(line)
        record = entry.record if entry is not None else None
        parse = self._messages.finding
        finding = finding_in_record(record, self._takes_drills, parse) if record is not None else None
        if entry is None or record is None or finding is None:
            return None
        return (self._boot(entry.boot_id), clip(record.text), finding)

    def _go_on_behind(self, lines: Sequence[bytes]) -> None:
        """Move the cursor behind the last entry that has one; entries after it are not valid."""
        for line in reversed(lines):
            entry = parse_journal_entry(line)
            if entry is not None and _is_cursor(entry):
                self._place = {"cursor": entry.cursor}
                return

    def _boot(self, name: str) -> str:
        """Return the boot id as the kernel spells it. An entry without one belongs to the running boot."""
        parts = _BOOT_ID.fullmatch(name)
        if parts is None or name == self._boot_id.replace("-", ""):
            return self._boot_id
        return "-".join(parts.groups())

    def _command(self) -> list[str]:
        return _command(self._directory, "--follow", "--no-tail", *self._since())

    def _since(self) -> list[str]:
        if "cursor" in self._place:
            return [f"--after-cursor={self._place['cursor']}"]
        return [f"--since=@{self._place['since']}"] if "since" in self._place else ["--boot"]


def journal_of_boot(directory: str) -> list[str]:
    """Return the command that prints all kernel messages of the running boot."""
    return _command(directory, "--boot")


def _command(directory: str, *which: str) -> list[str]:
    """Build the command. --all: else long messages are omitted. No --quiet: that would hide that this user may not read
    the journal.
    """
    where = [f"--directory={directory}"] if directory else []
    how = ["--no-pager", "--all", "--output=json", f"--output-fields={','.join(FIELDS)}"]
    return [TOOL, *where, *how, *which, "_TRANSPORT=kernel"]


def _words_of(lines: Sequence[bytes]) -> list[bytes]:
    """Return each entry without its time-dependent fields: entries with equal words have equal meaning.

    In a storm the work for each line dominates. journalctl prints time-dependent fields first and the message last.
    Where all fields with a meaning follow the boot id, the fields before it are skipped.
    """
    ends = [line.rpartition(b'"_BOOT_ID":')[2] for line in lines]
    whole = {end for end in set(ends) if all(key in end for key in _TELLING)}
    return [end if end in whole else _OF_THE_MOMENT.sub(b"", line) for end, line in zip(ends, lines, strict=True)]


def _is_cursor(entry: JournalEntry) -> bool:
    return _CURSOR.fullmatch(entry.cursor) is not None


def _written_at(cursor: str) -> datetime | None:
    at = _AT.search(cursor)
    try:
        return datetime.fromtimestamp(int(at[1], 16) / 1e6, UTC) if at else None
    except (OverflowError, ValueError, OSError):  # not a usable time
        return None


def _place(saved: dict[str, object]) -> dict[str, object]:
    """Parse the stored position. Where it is not valid, the whole boot is read again."""
    cursor, since = saved.get("cursor"), saved.get("since")
    if isinstance(cursor, str) and _CURSOR.fullmatch(cursor):
        return {"cursor": cursor}
    return {"since": since} if isinstance(since, int) else {}
