"""Parses kernel messages and single log lines. Pure: text in, a finding or None out, in time linear in its length.

A new driver is a module beside this one, a row in `_PARSERS` and needles in `kernel_filter`; a new spelling is a
pattern there and a row in the tests. Sub-codes, where a line has one:

- xid 74: the meaning of its registers, `signal`, `ignorable`; see nvlink4
- xid 144 to 150: the unit and its complaint, `RLW_RXPIPE/0x00000004`, `NETIR_LINK_EVT/37`; 154: the recovery action
- sxid: `fatal` or `nonfatal`
- host soft_lockup: `lasting`, from so many seconds on
- neuron HBM_UNCORRECTABLE_ERROR: `repairable` or `unrepairable`
- pcie_aer unplaced and other_device: what happened, `link_down`; see kernel_pcie
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from nodeheal.contract.names import DRILL_MARK
from nodeheal.parsers.finding import Finding
from nodeheal.parsers.kernel_header import kernel_text_of_tagged_line
from nodeheal.parsers.kernel_host import parse_host
from nodeheal.parsers.kernel_memory import parse_machine_check, parse_oom
from nodeheal.parsers.kernel_neuron import parse_neuron
from nodeheal.parsers.kernel_nic import parse_nic
from nodeheal.parsers.kernel_nvrm import parse_nvrm
from nodeheal.parsers.kernel_pcie import parse_pcie
from nodeheal.parsers.kernel_report import PART_OF_REPORT, FirmwareReports
from nodeheal.parsers.kernel_xid import parse_sxid, parse_xid

# A kernel record is at most 1 KiB, a syslog line at most 8; longer ones are cut before matching.
LINE_CHARACTERS = 8192

KERNEL_FACILITY = 0
USER_FACILITY = 1  # the facility of what user space writes to /dev/kmsg, whatever it requests

# A message begins with its driver's own words, so at most one of them matches.
_PARSERS = (
    parse_xid,
    parse_sxid,
    parse_nvrm,
    parse_neuron,
    parse_nic,
    parse_pcie,
    parse_machine_check,
    parse_oom,
    parse_host,
)
_KMSG_RECORD = re.compile(rb"(?P<prefix>\d{1,6}),(?P<sequence>\d{1,20}),\d{1,20},[^;\n]{0,64};(?P<text>[^\n]*)")
_BOOT_BANNER = re.compile(r"Linux version \d")


@dataclass(frozen=True)
class KmsgRecord:
    """One record of /dev/kmsg."""

    facility: int
    sequence: int
    text: str


def parse_message(text: str) -> Finding | None:
    """Return the fault in a kernel message (`NVRM: Xid …`, without syslog header or kernel stamp); None for other
    messages.
    """
    return _parsed(text[:LINE_CHARACTERS].strip())


def _parsed(message: str) -> Finding | None:
    for parse in _PARSERS:
        finding = parse(message)
        if finding is not None:
            return finding
    return None


class Messages:
    """Parses messages in their order, since a firmware report has several lines."""

    def __init__(self) -> None:
        self._reports = FirmwareReports()

    def finding(self, text: str, origin: str = "") -> Finding | None:
        """Return the fault that a message reports or completes. Messages of one origin are from one log."""
        message = text[:LINE_CHARACTERS].strip()
        return self._reports.finding(message, origin) if message.startswith("{") else _parsed(message)


def is_independent(line: bytes) -> bool:
    """Whether a line's meaning does not depend on the lines around it."""
    return PART_OF_REPORT not in line


Parse = Callable[[str], Finding | None]


def parse_syslog_line(line: bytes, parse: Parse = parse_message) -> Finding | None:
    """Return the fault in a line of a log file. Only kernel messages count: a program's log is not a fault."""
    text = kernel_text_of_tagged_line(line[:LINE_CHARACTERS].decode("utf-8", "replace"))
    return None if text is None else parse(text)


def is_boot_banner(line: bytes) -> bool:
    """Whether this is the first message of a booting kernel, so that a new boot starts here."""
    text = kernel_text_of_tagged_line(line[:LINE_CHARACTERS].decode("utf-8", "replace"))
    return text is not None and _BOOT_BANNER.match(text) is not None


def parse_kmsg_record(record: bytes) -> KmsgRecord | None:
    """Parse a record as one read of /dev/kmsg returns it; None for invalid text."""
    match = _KMSG_RECORD.match(record)
    if match is None:
        return None
    text = match["text"].decode("utf-8", "replace")
    # The low three bits are the severity.
    return KmsgRecord(int(match["prefix"]) >> 3, int(match["sequence"]), text)


def finding_in_record(record: KmsgRecord, takes_drills: bool = False, parse: Parse = parse_message) -> Finding | None:
    """Return the fault in a record. Facility 0 is the kernel's alone.

    User space's records count only where drills are accepted, and only with a drill's mark.
    """
    is_drill = takes_drills and record.facility == USER_FACILITY and DRILL_MARK in record.text
    return parse(record.text) if record.facility == KERNEL_FACILITY or is_drill else None
