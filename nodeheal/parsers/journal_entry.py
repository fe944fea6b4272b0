"""Parses one entry of `journalctl -o json`, with the fields for kernel messages. Pure, total.

journald gives what user space writes to /dev/kmsg the transport `kernel`, too; only the facility differs. Of such a
record it cuts off the first word and keeps it as the identifier: for `NVRM: Xid …` the message is then `Xid …`.
"""

from dataclasses import dataclass

from nodeheal.contract.json_text import read_json
from nodeheal.parsers.kernel_header import text_of_field
from nodeheal.parsers.kernel_line import KERNEL_FACILITY, KmsgRecord

FIELDS = ("MESSAGE", "_TRANSPORT", "_BOOT_ID", "SYSLOG_FACILITY", "SYSLOG_IDENTIFIER")
_FACILITIES = {str(number): number for number in range(128)}


@dataclass(frozen=True)
class JournalEntry:
    """One entry. `record` is None where it did not come from /dev/kmsg, or its message cannot be read."""

    cursor: str  # empty: it has none
    boot_id: str  # 32 hexadecimal digits, without dashes
    record: KmsgRecord | None


def parse_journal_entry(line: bytes) -> JournalEntry | None:
    """Parse an entry; None for invalid or cut-off text."""
    try:
        entry = read_json(line.decode("utf-8", "replace"))
    except ValueError:
        return None
    if not isinstance(entry, dict):
        return None
    return JournalEntry(_word(entry, "__CURSOR"), _word(entry, "_BOOT_ID"), _record(entry))


def _record(entry: dict[str, object]) -> KmsgRecord | None:
    """Build the record. journald omits the kernel's own facility, in older versions always."""
    facility = _FACILITIES.get(str(entry.get("SYSLOG_FACILITY", KERNEL_FACILITY)))
    text = text_of_field(entry.get("MESSAGE"))  # null: longer than journalctl shows
    if entry.get("_TRANSPORT") != "kernel" or facility is None or text is None:
        return None
    identifier = _word(entry, "SYSLOG_IDENTIFIER")
    if facility != KERNEL_FACILITY and identifier:
        text = f"{identifier}: {text}"
    return KmsgRecord(facility, 0, text)


def _word(entry: dict[str, object], name: str) -> str:
    value = entry.get(name)
    return value if isinstance(value, str) else ""
