"""The kernel's words as journald keeps them, of this boot and of those before: `journalctl --follow` is listened to.

The journal says of every entry which boot it is of, and after a restart or a reboot it is read on from where it was
left: what a boot has said before it died is told once, as history.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice, takewhile

from nodeheal.agent.checks.follower import Follower
from nodeheal.agent.checks.repeats import Observation
from nodeheal.agent.event import clip
from nodeheal.parsers.finding import Finding
from nodeheal.parsers.journal_entry import FIELDS, JournalEntry, parse_journal_entry
from nodeheal.parsers.kernel_filter import all_lines, suspicious_lines
from nodeheal.parsers.kernel_line import Messages, finding_in_record, is_independent

TOOL = "journalctl"
KNOWN_WORDS = 512  # different ones that are recognised without being parsed again
# Of another shape journalctl would refuse it, at every start.
_CURSOR = re.compile(
    r"s=[0-9a-f]{32};i=[0-9a-f]{1,16};b=[0-9a-f]{32};m=[0-9a-f]{1,16};t=[0-9a-f]{1,16};x=[0-9a-f]{1,16}"
)
# What differs from one entry to the next that says the same: __CURSOR, __REALTIME_TIMESTAMP and the like. Within a
# message the quotes are escaped.
_OF_THE_MOMENT = re.compile(rb'"__[A-Z_]{1,40}"[ \t]*:[ \t]*"[^"\\\n]*"')
_TELLING = tuple(f'"{name}":'.encode() for name in FIELDS if name != "_BOOT_ID")
# What the journal held for so long, and journalctl tells only when it is started again, it did not tell in time.
LATE_SECONDS = 30.0
_AT = re.compile(r";t=([0-9a-f]{1,16});")
_AFTER = re.compile(r";m=([0-9a-f]{1,16});")  # microseconds since the boot, which no set clock moves
_BOOT_ID = re.compile(r"([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})")

logger = logging.getLogger(__name__)

_Told = tuple[str, str, Finding]  # of which boot, in which words, what


class JournalLog:
    """One journal. Nothing is lost or told twice over a restart: what was handed out is said by `cursor()`."""

    lines = 0
    breath_seconds = 0.01  # of 10,000 entries a second the pipe is full after 0.013, and journalctl waits

    def __init__(
        self,
        key: str,
        directory: str,
        boot_id: str,
        cursor: dict[str, object] | None,
        takes_drills: bool,
        now: float,
    ) -> None:
        """Without a cursor (the first start ever) what this boot has said until `now`, monotonic, is history.

        Raises OSError.
        """
        self.key = key
        self._directory = directory
        self._boot_id = boot_id
        self._takes_drills = takes_drills
        # A drill's first word, by which a suspicious line is known, is kept in a field of its own.
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

    def observations(self, now: float, seen_at: datetime) -> Iterator[Observation]:
        """The faults since the last call; those of one boot that read the same are one with a count."""
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

    def _told(self, lines: Sequence[bytes], seen_at: datetime, is_history: bool = False) -> Iterator[Observation]:
        said = _words_of(lines)
        last = dict(zip(said, lines, strict=True))
        meanings, count = self._understand(last), Counter(said)
        for words, (boot_id, text, finding) in meanings.items():
            entry = parse_journal_entry(last[words])
            position = entry.cursor if entry else ""
            at = min(seen_at, _written_at(position) or seen_at) if is_history else seen_at
            yield Observation(finding, boot_id, position, text, at, count[words], is_history)

    def _is_history(self, line: bytes) -> bool:
        """Whether this boot said it before the first start ever. What does not say when it was is where it stands."""
        entry = parse_journal_entry(line)
        after = _AFTER.search(entry.cursor) if entry is not None and _is_cursor(entry) else None
        if entry is None or after is None:
            return True
        return self._boot(entry.boot_id) == self._boot_id and int(after[1], 16) / 1e6 <= (self._history_until or 0.0)

    def cursor(self) -> dict[str, object]:
        """Where to go on after a restart."""
        is_over = self._history_until is None
        return dict(self._place) if is_over else {**self._place, "history_until": self._history_until}

    def _judge_silence(self, block: bytes, now: datetime) -> None:
        """Whether there was something to say, by the age of what is said now. Once is enough to know it."""
        entry = parse_journal_entry(block.partition(b"\n")[0])
        at = _written_at(entry.cursor) if entry is not None else None
        late = (now - at).total_seconds() if at is not None else 0.0
        if late >= LATE_SECONDS and not self._has_hung:
            self._has_hung = True
            logger.warning("journalctl was silent about what the journal held", extra={"seconds": round(late)})

    def _understand(self, lines: Mapping[bytes, bytes]) -> dict[bytes, _Told]:
        """The faults among these, by their words."""
        fresh = {words: line for words, line in lines.items() if words not in self._known}
        suspicious = {line for _, line in self._lines(iter((b"\n".join(fresh.values()) + b"\n",)))}
        learnt = {words: self._meaning(line) for words, line in fresh.items() if line in suspicious}
        known = {words: self._known[words] for words in lines if words in self._known} | learnt
        if len(self._known) + len(learnt) > KNOWN_WORDS:
            self._known.clear()
        lasting = ((words, told) for words, told in known.items() if is_independent(words))
        self._known.update(islice(lasting, KNOWN_WORDS))
        return {words: told for words in lines if (told := known.get(words)) is not None}

    def _meaning(self, line: bytes) -> _Told | None:
        entry = parse_journal_entry(line)
        record = entry.record if entry is not None else None
        parse = self._messages.finding
        finding = finding_in_record(record, self._takes_drills, parse) if record is not None else None
        if entry is None or record is None or finding is None:
            return None
        return (self._boot(entry.boot_id), clip(record.text), finding)

    def _go_on_behind(self, lines: Sequence[bytes]) -> None:
        """Behind the last entry that says where it stands; what follows it is junk."""
        for line in reversed(lines):
            entry = parse_journal_entry(line)
            if entry is not None and _is_cursor(entry):
                self._place = {"cursor": entry.cursor}
                return

    def _boot(self, name: str) -> str:
        """The boot as the kernel spells it. An entry that names none is of the boot that runs."""
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
    """The command that prints all that the kernel has said in the boot that runs."""
    return _command(directory, "--boot")


def _command(directory: str, *which: str) -> list[str]:
    """--all: else what is long is left out. Not --quiet: that would hide that this user may not read it."""
    where = [f"--directory={directory}"] if directory else []
    how = ["--no-pager", "--all", "--output=json", f"--output-fields={','.join(FIELDS)}"]
    return [TOOL, *where, *how, *which, "_TRANSPORT=kernel"]


def _words_of(lines: Sequence[bytes]) -> list[bytes]:
    """What each says, without what is of the moment: two with the same words mean the same.

    In a storm whatever is done for each line is most of the work. Journalctl begins with what is of the moment, and
    ends with what an entry means: where all of that stands behind the boot, what stands before it is not looked at.
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
    except (OverflowError, ValueError, OSError):  # no time that can be reckoned with
        return None


def _place(saved: dict[str, object]) -> dict[str, object]:
    """Where the last run was. Of a shape that is not understood, the whole boot is read again."""
    cursor, since = saved.get("cursor"), saved.get("since")
    if isinstance(cursor, str) and _CURSOR.fullmatch(cursor):
        return {"cursor": cursor}
    return {"since": since} if isinstance(since, int) else {}
