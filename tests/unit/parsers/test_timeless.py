"""What of a log line is the same at another time: lines that agree in it are parsed to the same finding."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.parsers.kernel_header import timeless
from nodeheal.parsers.kernel_line import parse_syslog_line

XID = "NVRM: Xid (PCI:0000:b9:00): 79, pid=1, name=x, GPU has fallen off the bus."
HEADERS = (
    "2026-11-21T05:50:31.123456+00:00 gpu-7 kernel: ",
    "2026-11-21T05:50:31.123456+00:00 gpu-7 kernel:",
    "Nov 21 05:50:31 gpu-7 kernel: [  123.456789] ",
    "Nov 21 05:50:31 gpu-7 kernel: [  123.456789][ T1234] ",
    "[  123.456789] gpu-7 kernel: ",
    "Nov 21 05:50:31 gpu-7 kernel: [1] ",
    "Nov 21 05:50:31 gpu-7 app[12]: x kernel: ",
    "Nov 21 05:50:31 gpu-7 app[12]: ",
    "<3>Nov 21 05:50:31 gpu-7 kernel: ",
    "<13>Nov 21 05:50:31 gpu-7 kernel: ",
    "<3>1 2026-11-21T05:50:31.123Z gpu-7 kernel - - - ",
    "<3>1 2026-11-21T05:50:31.123Z gpu-7 kernel - - - NVRM: Xid (PCI:0000:b9:00): 79, kernel: ",
    "Nov 21 05:50:31 gpu-7 kernel:NVRM: Xid (PCI:0000:b9:00): 48, pid=1 kernel: ",
    "kernel: ",
    "",
)


def times(header: str, digits: str) -> str:
    """The header, as it stands there at another time."""
    given_digits = iter(digits)
    return re.sub(r"\d", lambda _: next(given_digits, "7"), header)


@given(st.sampled_from(HEADERS), st.text("0123456789", max_size=40), st.text("0123456789", max_size=40))
def test_lines_with_the_same_words_say_the_same(header: str, one: str, other: str) -> None:
    first, second = (f"{times(header, digits)}{XID}".encode() for digits in (one, other))

    if timeless(first) == timeless(second):
        assert parse_syslog_line(first) == parse_syslog_line(second)


@pytest.mark.parametrize("header", HEADERS[:5])
def test_a_storm_from_the_kernel_is_recognised_whatever_the_time(header: str) -> None:
    now, later = f"{header}{XID}".encode(), f"{times(header, '9' * 40)}{XID}".encode()

    assert timeless(now) == timeless(later)
    assert timeless(now) != timeless(later.replace(b"b9", b"c1"))


@given(st.binary(max_size=300))
def test_nothing_of_a_line_is_lost_but_digits(line: bytes) -> None:
    head, said = timeless(line)

    assert len(head) + len(said) == len(line)
    assert line.endswith(said)
