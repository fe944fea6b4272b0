"""The kernel's words as journald keeps them, of this boot and of those before: `journalctl --follow` is listened to.

The journal says of every entry which boot it is of, and after a restart or a reboot it is read on from where it was
left: what a boot has said before it died is told once, as history.
"""

import re
from collections.abc import Iterator
from datetime import datetime

from nodeheal.agent.checks.follower import Follower
from nodeheal.agent.checks.repeats import Sighting
from nodeheal.agent.event import clip
from nodeheal.contract.evidence.finding import Finding
from nodeheal.contract.evidence.journal_entry import FIELDS, JournalEntry, parse_journal_entry
from nodeheal.contract.evidence.kernel_filter import all_lines, suspicious_lines
from nodeheal.contract.evidence.kernel_line import KmsgRecord, finding_in_record

TOOL = "journalctl"
KNOWN_RECORDS = 512  # different ones that are recognised without being parsed again
# Of another shape journalctl would refuse it, at every start.
_CURSOR = re.compile(
    r"s=[0-9a-f]{32};i=[0-9a-f]{1,16};b=[0-9a-f]{32};m=[0-9a-f]{1,16};t=[0-9a-f]{1,16};x=[0-9a-f]{1,16}"
)
_BOOT_ID = re.compile(r"([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})")


class JournalLog:
    """One journal. Nothing is lost or told twice over a restart: what was handed out is said by `cursor()`."""

    lines = 0

    def __init__(
        self,
        key: str,
        directory: str,
        boot_id: str,
        cursor: dict[str, object] | None,
        takes_drills: bool,
        now: datetime,
    ) -> None:
        """Without a cursor (the first start ever) it begins with what is said from `now` on. Raises OSError."""
        self.key = key
        self._directory = directory
        self._boot_id = boot_id
        self._takes_drills = takes_drills
        # A drill's first word, by which a suspicious line is known, is kept in a field of its own.
        self._lines = all_lines if takes_drills else suspicious_lines
        self._known: dict[KmsgRecord, Finding | None] = {}
        self._place: dict[str, object] = _place(cursor) if cursor is not None else {"since": int(now.timestamp())}
        self._follower = Follower(self._command)
        self.descriptor: int | None = self._follower.descriptor
        self.close = self._follower.close

    def sightings(self, now: float, seen_at: datetime) -> Iterator[Sighting]:
        """The faults since the last call; those of one boot that read the same are one with a count."""
        block = self._follower.read(now)
        self.lines = block.count(b"\n")
        told: dict[tuple[str, KmsgRecord], tuple[Finding, int, str]] = {}  # how many so far, and the last one's cursor
        for _, line in self._lines(iter((block,))):
            entry = parse_journal_entry(line)
            finding = self._finding(entry.record) if entry is not None and entry.record is not None else None
            if entry is not None and entry.record is not None and finding is not None:
                same = (entry.boot_id, entry.record)
                told[same] = (finding, told[same][1] + 1 if same in told else 1, entry.cursor)
        for (boot, record), (finding, count, cursor) in told.items():
            yield Sighting(finding, self._boot(boot), cursor, clip(record.text), seen_at, count)
        self._go_on_behind(block)

    def cursor(self) -> dict[str, object]:
        """Where to go on after a restart."""
        return dict(self._place)

    def _finding(self, record: KmsgRecord) -> Finding | None:
        if record not in self._known:
            if len(self._known) >= KNOWN_RECORDS:
                self._known.clear()
            self._known[record] = finding_in_record(record, self._takes_drills)
        return self._known[record]

    def _go_on_behind(self, block: bytes) -> None:
        """Behind the last entry that says where it stands; what follows it is junk."""
        for line in reversed(block.splitlines()):
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
        """--all: else what is long is left out. Not --quiet: that would hide that this user may not read it."""
        where = [f"--directory={self._directory}"] if self._directory else []
        how = ["--follow", "--no-tail", "--no-pager", "--all", "--output=json", f"--output-fields={','.join(FIELDS)}"]
        return [TOOL, *where, *how, *self._since(), "_TRANSPORT=kernel"]

    def _since(self) -> list[str]:
        if "cursor" in self._place:
            return [f"--after-cursor={self._place['cursor']}"]
        return [f"--since=@{self._place['since']}"] if "since" in self._place else ["--boot"]


def _is_cursor(entry: JournalEntry) -> bool:
    return _CURSOR.fullmatch(entry.cursor) is not None


def _place(saved: dict[str, object]) -> dict[str, object]:
    """Where the last run was. Of a shape that is not understood, the whole boot is read again."""
    cursor, since = saved.get("cursor"), saved.get("since")
    if isinstance(cursor, str) and _CURSOR.fullmatch(cursor):
        return {"cursor": cursor}
    return {"since": since} if isinstance(since, int) else {}
