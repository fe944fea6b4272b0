"""Finds the faults in a kernel log of any common form, as a stream and in constant memory. Pure.

The forms: records of /dev/kmsg; dmesg with any of its stamps or none; journalctl, short or JSON; the file of a syslog
daemon.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from nodeheal.parsers.finding import Finding
from nodeheal.parsers.kernel_filter import BLOCK_BYTES, Readable, all_lines, blocks_of, suspicious_lines
from nodeheal.parsers.kernel_header import (
    kernel_text_of_dmesg_line,
    kernel_text_of_json_line,
    kernel_text_of_tagged_line,
    names_a_writer,
)
from nodeheal.parsers.kernel_line import (
    KERNEL_FACILITY,
    LINE_CHARACTERS,
    Messages,
    parse_kmsg_record,
    parse_message,
)
from nodeheal.parsers.kernel_report import is_part_of_report
from nodeheal.parsers.kernel_wrapped import origin_of, unwrapped
from nodeheal.parsers.log_format import LogFormat

_TRANSPORT = b'"_TRANSPORT"'
_NO_TEXT = b"\x00"  # in UTF-16, in archives, and where a machine died before its log was on the disk
_NEAREST = 2  # behind a stamp alone, or a stamp and a stream: a driver's first word may look like a host there
FIRST_LINES = 16  # how far it searches for the first line that shows the log's form

Read = Callable[[bytes], str | None]  # the kernel's message in a line, or None for other lines


@dataclass
class Tally:
    """What was read of a log. A suspicious line has a word of fault lines; a line that is not text contains a zero
    byte.
    """

    lines: int = 0
    suspicious: int = 0
    not_believed: int = 0
    first_not_believed: int = 0  # its number; 0: none
    no_text: int = 0


def read_findings(
    source: Readable | Iterable[bytes],
    log_format: LogFormat = LogFormat.auto,
    is_filtered: bool = True,
    tally: Tally | None = None,
) -> Iterator[tuple[int, Finding]]:
    """Yield the faults of a log with their line number from 1, each as soon as its line is read.

    `source`: a binary file, or lines. `is_filtered` False parses every line, with the same result. `tally` is updated
    while the log is read.
    """
    counted = Tally() if tally is None else tally
    blocks = blocks_of(_pieces(source))
    first = next(blocks, b"")
    read, messages = _reader(log_format, first), Messages()
    lines = suspicious_lines if is_filtered else all_lines
    whole = _with_first(first, blocks)
    for number, line in lines(_counted(whole, counted) if tally is not None else whole):
        text = read(line.strip(b"\x00\r\n"))
        counted.suspicious += 1
        if text is None:
            counted.not_believed += 1
            counted.first_not_believed = counted.first_not_believed or number
            continue
        origin = origin_of(_text(line.strip(b"\x00\r\n")), text) if text.startswith("{") else ""
        finding = messages.finding(text, origin)
        if finding is not None:
            yield number, finding


def _counted(blocks: Iterator[bytes], tally: Tally) -> Iterator[bytes]:
    for block in blocks:
        tally.lines += block.count(b"\n") + (bool(block) and not block.endswith(b"\n"))
        if _NO_TEXT in block:
            tally.no_text += sum(_NO_TEXT in line for line in block.split(b"\n"))
        yield block


def _pieces(source: Readable | Iterable[bytes]) -> Iterator[bytes]:
    # read1 returns what a pipe has; read would wait for a full block.
    read = getattr(source, "read1", None) or getattr(source, "read", None)
    if read is not None:
        while piece := read(BLOCK_BYTES):
            yield piece
    elif isinstance(source, Iterable):
        yield from (line if line.endswith(b"\n") else line + b"\n" for line in source)


def _with_first(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _reader(log_format: LogFormat, first: bytes) -> Read:
    if log_format is LogFormat.auto:
        return _like(first)
    return {
        LogFormat.kmsg: _kmsg,
        LogFormat.dmesg: _dmesg,
        LogFormat.journald: _journald,
        LogFormat.syslog: _syslog,
        LogFormat.any: _wrapped,
    }[log_format]


def _like(block: bytes) -> Read:
    """Return the reader for a log that begins like this."""
    lines = (line.strip(b"\x00\r") for line in block.split(b"\n", FIRST_LINES))
    # journalctl puts lines of its own between the boots: -- Boot 3f5e… --
    line = next((line for line in lines if line and not line.startswith(b"-- ")), b"")[:LINE_CHARACTERS]
    if _is_json(line):
        return _journald
    if parse_kmsg_record(line) is not None:
        return _kmsg
    return _syslog if names_a_writer(line.decode("utf-8", "replace")) else _any


def _kmsg(line: bytes) -> str | None:
    record = parse_kmsg_record(line[:LINE_CHARACTERS])
    return record.text if record is not None and record.facility == KERNEL_FACILITY else None


def _dmesg(line: bytes) -> str | None:
    return kernel_text_of_dmesg_line(_text(line))


def _syslog(line: bytes) -> str | None:
    return kernel_text_of_tagged_line(_text(line))


def _journald(line: bytes) -> str | None:
    return kernel_text_of_json_line(line) if line.startswith(b"{") else _syslog(line)


def _named(line: bytes) -> str | None:
    text = _kmsg(line)
    return _journald(line) if text is None else text


def _any(line: bytes) -> str | None:
    """Return the message of a line in a log without a fixed form. A line without a daemon's header is dmesg's: with a
    stamp, or bare. A bare line without a driver's beginning may have an unknown header, and is ignored.
    """
    text = _named(line)
    if text is not None or _is_json(line) or parse_kmsg_record(line) is not None:
        return text
    text = _dmesg(line)
    is_bare = text == _text(line)
    return None if text is None or (is_bare and _is_wrapped(text)) else text


def _is_wrapped(text: str) -> bool:
    if _tells_of_fault(text):
        return False
    inside = (text, *(inner for inner, _ in unwrapped(text)))
    return any(names_a_writer(rest) or _is_fault(rest) for rest in inside)


def _wrapped(line: bytes) -> str | None:
    """Return the kernel's message inside any wrapper; None where another writer is named."""
    if line.startswith(b"{") and _TRANSPORT in line:
        return kernel_text_of_json_line(line)  # the journal itself names the writer
    plain = _any(line)
    if plain is not None:
        return plain
    for rest, _ in unwrapped(_text(line)):
        text = _named(rest.encode())
        if text is not None:
            return text
        if _is_fault(rest):
            return kernel_text_of_dmesg_line(rest)
        if names_a_writer(rest) and not any(_is_fault(inner) for inner, _ in islice(unwrapped(rest), _NEAREST)):
            return None
    return None


def _is_fault(line: str) -> bool:
    text = _named(line.encode())
    text = kernel_text_of_dmesg_line(line) if text is None else text
    return text is not None and _tells_of_fault(text)


def _tells_of_fault(message: str) -> bool:
    return parse_message(message) is not None or is_part_of_report(message)


def _is_json(line: bytes) -> bool:
    """Whether it is JSON: a line of a firmware report begins with a brace, too."""
    return line.startswith(b"{") and not is_part_of_report(_text(line))


def _text(line: bytes) -> str:
    return line[:LINE_CHARACTERS].decode("utf-8", "replace")
