"""Reads kernel log lines. Pure: text in, a finding or None out, in time linear in the length of the line.

A new spelling or a new driver is a pattern here and a row in the tests.
"""

import re
from dataclasses import dataclass

from nodeheal.contract.evidence.finding import Finding
from nodeheal.contract.vocabulary import Family

# A kernel record is at most 1 KiB, a syslog line at most 8; what is longer is cut before any pattern sees it.
LINE_CHARACTERS = 8192

KERNEL_FACILITY = 0
USER_FACILITY = 1  # what user space gets when it writes to /dev/kmsg, whatever it asks for

_TIMESTAMP = (
    r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"  # 2026-11-21T05:50:31.123456+00:00
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)"  # Nov 21 05:50:31
)
_SYSLOG_LINE = re.compile(rf"{_TIMESTAMP} \S{{1,255}} kernel: ?(?P<text>.*)")
_KERNEL_STAMP = re.compile(r"\[ {0,12}\d{1,12}\.\d{1,9}\] ?(?:\[ {0,12}[TC]\d{1,10}\] ?)?")  # [  123.456789][ T1234]
_KMSG_RECORD = re.compile(rb"(?P<prefix>\d{1,6}),(?P<sequence>\d{1,20}),\d{1,20},[^;\n]{0,64};(?P<text>[^\n]*)")
_BOOT_BANNER = re.compile(r"Linux version \d")

# NVRM: Xid (PCI:0000:b9:00): 79, pid=…   NVRM: Xid (0000:03:00): 31, Ch …   NVRM: Xid (PCI:0000:b9:00 GPU-I:03): 45, …
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<domain>[0-9A-Fa-f]{4,8}):(?P<device>[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.[0-7])?"
    r"(?: [^()]{1,64})?\): (?P<code>\d{1,5})(?=[,\s]|$)"
)


@dataclass(frozen=True)
class KmsgRecord:
    """One record of /dev/kmsg."""

    facility: int
    sequence: int
    text: str


def parse_message(text: str) -> Finding | None:
    """The fault that a kernel message (`NVRM: Xid …`, without syslog header or kernel stamp) reports, if it is one."""
    message = text[:LINE_CHARACTERS].strip()
    xid = _XID.match(message)
    if xid is None:
        return None
    address = f"{int(xid['domain'], 16):04x}:{xid['device'].lower()}.0"
    return Finding(Family.xid, str(int(xid["code"])), address, message)


def parse_syslog_line(line: bytes) -> Finding | None:
    """The fault that a line of a log file reports. Only the kernel is believed: what a program logs is not a fault."""
    text = _kernel_text(line)
    return None if text is None else parse_message(text)


def is_boot_banner(line: bytes) -> bool:
    """Whether this is the first thing that a booting kernel says, so that a new boot starts here."""
    text = _kernel_text(line)
    return text is not None and _BOOT_BANNER.match(text) is not None


def parse_kmsg_record(record: bytes) -> KmsgRecord | None:
    """A record as one read of /dev/kmsg returns it, or None for what is not one."""
    match = _KMSG_RECORD.match(record)
    if match is None:
        return None
    text = match["text"].decode("utf-8", "replace")
    # The low three bits are the severity.
    return KmsgRecord(int(match["prefix"]) >> 3, int(match["sequence"]), text)


def finding_in_record(record: KmsgRecord, trust_injected: bool = False) -> Finding | None:
    """The fault that a record reports. Facility 0 is the kernel's alone; user space is believed only in a drill."""
    trusted = {KERNEL_FACILITY, USER_FACILITY} if trust_injected else {KERNEL_FACILITY}
    return parse_message(record.text) if record.facility in trusted else None


def _kernel_text(line: bytes) -> str | None:
    match = _SYSLOG_LINE.match(line[:LINE_CHARACTERS].decode("utf-8", "replace"))
    if match is None:
        return None
    text = match["text"]
    stamp = _KERNEL_STAMP.match(text)
    return text[stamp.end() :] if stamp else text
