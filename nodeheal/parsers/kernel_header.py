"""Separates the kernel's own message from the headers of log daemons and tools. Pure, linear, one line at a time.

A parser of a header returns the message, or None where the line is not the kernel's.
"""

import re

from nodeheal.contract.json_text import read_json

_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_MONTH = r"[^\W\d_]{3,5}\.?"  # in any language of the machine: Oct, Okt, févr.
_WEEKDAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
WALL_TIMESTAMP = (
    rf"(?:\d{{4}}-\d\d-\d\d[T ]{_CLOCK}(?:Z|[+-]\d\d:?\d\d)?"  # 2026-11-21T05:50:31.123456+00:00
    rf"|(?:\d{{4}} )?{_MONTH} [ \d]\d(?: \d{{4}})? {_CLOCK}(?: \d{{4}})?"  # Nov 21 05:50:31, with or without the year
    rf"|{_WEEKDAY} \d{{4}}-\d\d-\d\d {_CLOCK} [A-Za-z0-9+:-]{{1,8}}"  # journalctl -o short-full
    r"|\d{9,12}\.\d{1,9})"  # short-unix
)
_MONOTONIC = r"\[ {0,12}\d{1,12}\.\d{1,9}\]"  # short-monotonic, and dmesg
_PRIORITY = r"(?:<(?P<priority>\d{1,3})>)?"
# RFC 3164 and journalctl: <3>Nov 21 05:50:31 gpu-7 kernel: …
_TAGGED = re.compile(
    rf"{_PRIORITY}(?:{WALL_TIMESTAMP}|{_MONOTONIC}) (?P<host>\S{{1,255}}) kernel: ?(?P<text>.*)", re.DOTALL
)
# RFC 5424: <3>1 2026-11-21T05:50:31.123Z gpu-7 kernel - - - …
_RFC5424 = re.compile(
    rf"<(?P<priority>\d{{1,3}})>1 \d{{4}}-\d\d-\d\dT{_CLOCK}(?:Z|[+-]\d\d:\d\d) "
    r"(?P<host>\S{1,255}) kernel - \S{1,32} "
    r"(?:-|(?:\[[^\]]{1,512}\]){1,8})(?: \ufeff?(?P<text>.*))?",
    re.ASCII | re.DOTALL,
)
_ANY_TAG = re.compile(
    rf"{_PRIORITY}{WALL_TIMESTAMP} \S{{1,255}} [^\s:\[]{{1,64}}(?:\[[^\]]{{1,32}}\])?:"
    rf"|<\d{{1,3}}>1 \d{{4}}-\d\d-\d\dT{_CLOCK}(?:Z|[+-]\d\d:\d\d) \S{{1,255}} \S{{1,48}} "
)
# [  123.456789][ T1234] …   [  123.456789 <    0.000012>] …   [  +0.000012] …
_STAMP = re.compile(
    r"\[ {0,12}\+?\d{1,12}\.\d{1,9}(?: < {0,12}\d{1,12}\.\d{1,9}>)?\] ?(?:\[ {0,12}[TC]\d{1,10}\] ?)?", re.ASCII
)
_BYTES_STAMP = re.compile(_STAMP.pattern.encode())
# dmesg -T, -H and --time-format iso
_READABLE_STAMP = re.compile(
    rf"(?:\[(?:{_WEEKDAY} )?{_MONTH} ?[ \d]\d {_CLOCK}(?: \d{{4}})?(?: < {{0,12}}\d{{1,12}}\.\d{{1,9}}>)?\] ?"
    rf"|\[{_MONTH} ?[ \d]\d \d\d:\d\d\] ?"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{1,9}(?:Z|[+-]\d\d:?\d\d) )(?:\[ {0,12}[TC]\d{1,10}\] ?)?",
    re.ASCII,
)
_RAW_PRIORITY = re.compile(r"<(?P<priority>\d{1,6})>", re.ASCII)
_DECODED_PRIORITY = re.compile(
    r"(?P<facility>kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|res\d|local\d) {0,6}:"
    r"(?:emerg|alert|crit|err|warn|notice|info|debug) {0,4}: ",
    re.ASCII,
)

_HEADER_BYTES = 512
_TAG = b" kernel:"
_TO_ZEROS = bytes(ord("0") if byte in b"0123456789" else byte for byte in range(256))


def timeless(line: bytes) -> tuple[bytes, bytes]:
    """Return what is equal in two lines that differ in time only: the header, with its digits set to zero, and the
    message. For two lines with equal results `parse_syslog_line` finds the same: headers differ by the positions of
    digits, not their values. A line with a leading priority is unchanged.
    """
    at = line.find(_TAG, 0, _HEADER_BYTES)
    if at < 0 or line.startswith(b"<"):
        return b"", line
    at += 9 if line.startswith(b" ", at + 8) else 8
    if line.startswith(b"[", at):
        stamp = _BYTES_STAMP.match(line, at)
        at = stamp.end() if stamp else at
    return line[:at].translate(_TO_ZEROS), line[at:]


def kernel_text_of_tagged_line(line: str) -> str | None:
    """Return the kernel's message in a line of a syslog daemon or of journalctl. Only the tag `kernel` is accepted."""
    tagged = _RFC5424.match(line) or _TAGGED.match(line)
    if tagged is None or (tagged["priority"] and int(tagged["priority"]) >> 3):
        return None
    return _without_stamp(tagged["text"] or "")


def host_of_tagged_line(line: str) -> str:
    """Return the host in such a line; empty for any other line."""
    tagged = _RFC5424.match(line) or _TAGGED.match(line)
    return tagged["host"] if tagged else ""


def names_a_writer(line: str) -> bool:
    """Whether the line has the header of a syslog daemon or of journalctl, of any writer."""
    return _ANY_TAG.match(line) is not None


def kernel_text_of_dmesg_line(line: str) -> str | None:
    """Return the message in a line of dmesg, with any of its stamps or none. dmesg shows user space's records, too, and
    marks them only with -x or -r: then these are refused.
    """
    decoded = _DECODED_PRIORITY.match(line)
    if decoded is not None:
        if decoded["facility"] != "kern":
            return None
        line = line[decoded.end() :]
    line = line.removeprefix("kernel: ")  # as a drill writes it to the device
    raw = _RAW_PRIORITY.match(line)
    if raw is not None:
        if int(raw["priority"]) >> 3:
            return None
        line = line[raw.end() :]
    readable = _READABLE_STAMP.match(line)
    return line[readable.end() :] if readable else _without_stamp(line)


def kernel_text_of_json_line(line: bytes) -> str | None:
    """Return the kernel's message in an entry of `journalctl -o json`. A program can name itself kernel, but cannot
    choose its transport.
    """
    if b'"MESSAGE"' not in line:
        return None
    try:
        entry = read_json(line.decode("utf-8", "replace"))
    except ValueError:
        return None
    if not isinstance(entry, dict) or not _is_of_kernel(entry):
        return None
    text = text_of_field(entry.get("MESSAGE"))
    return None if text is None else _without_stamp(text)


def _is_of_kernel(entry: dict[str, object]) -> bool:
    if entry.get("SYSLOG_FACILITY", "0") not in ("0", 0):
        return False
    if "_TRANSPORT" in entry:
        return entry["_TRANSPORT"] == "kernel"
    is_process = any(name in entry for name in ("_PID", "_UID", "_EXE"))
    return entry.get("SYSLOG_IDENTIFIER") == "kernel" and not is_process


def text_of_field(value: object) -> str | None:
    """Convert a field: text, a list of bytes where it is not clean text, or a list of both where it occurs twice."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        return None
    try:
        return bytes(value).decode("utf-8", "replace")
    except (TypeError, ValueError):
        return value[0] if isinstance(value[0], str) else None


def _without_stamp(text: str) -> str:
    stamp = _STAMP.match(text)
    return text[stamp.end() :] if stamp else text
