"""Single lines and records of the kernel, as the agent reads them. The messages themselves: test_kernel_messages."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.contract.names import DRILL_MARK
from nodeheal.parsers.kernel_line import (
    finding_in_record,
    is_boot_banner,
    parse_kmsg_record,
    parse_message,
    parse_syslog_line,
)
from tests.support.agent_fakes import BANNER, XID_79, kernel_line


@pytest.mark.parametrize(
    "header",
    [
        "2026-11-21T05:50:31.123456+00:00 gpu-7 kernel: [  123.456789] ",
        "2026-11-21T05:50:31Z gpu-7 kernel: ",
        "Nov 21 05:50:31 gpu-7 kernel: [123456.000001] ",
        "Nov  1 05:50:31 gpu-7.example.org kernel: [  123.456789][ T4711] ",
        "Nov 21 05:50:31 gpu-7 kernel:[  123.456789] ",
        "Nov 21 05:50:31.123456 gpu-7 kernel: ",
        "Nov 21 2026 05:50:31 gpu-7 kernel: ",
        "<3>Nov 21 05:50:31 gpu-7 kernel: ",
        "<3>1 2026-11-21T05:50:31.123Z gpu-7 kernel - - - ",
        '<3>1 2026-11-21T05:50:31.123+01:00 gpu-7 kernel - - [meta sequenceId="4"] \ufeff',
    ],
)
def test_a_kernel_line_is_understood_in_every_syslog_format(header: str) -> None:
    finding = parse_syslog_line(f"{header}{XID_79}".encode())

    assert finding is not None
    assert finding.message == XID_79


@pytest.mark.parametrize(
    "line",
    [
        f"2026-11-21T05:50:31+00:00 gpu-7 trainer[4711]: {XID_79}",
        f"2026-11-21T05:50:31+00:00 gpu-7 trainer[4711]: gpu-7 kernel: {XID_79}",
        f"2026-11-21T05:50:31+00:00 gpu-7 kernel-watch: {XID_79}",
        f"kernel: {XID_79}",
        f"Nov 21 05:50:31 gpu-7 kernel[4711]: {XID_79}",
        f"<11>Nov 21 05:50:31 gpu-7 kernel: {XID_79}",
        f"<11>1 2026-11-21T05:50:31.123Z gpu-7 kernel - - - {XID_79}",
        f"<3>1 2026-11-21T05:50:31.123Z gpu-7 trainer - - - {XID_79}",
        f"<3>1 2026-11-21T05:50:31.123Z gpu-7 kernel 4711 - - {XID_79}",
        XID_79,
    ],
)
def test_what_a_program_logs_is_not_believed(line: str) -> None:
    assert parse_syslog_line(line.encode()) is None


def test_a_boot_is_recognised_by_the_kernels_banner() -> None:
    assert is_boot_banner(kernel_line(BANNER).encode())
    assert not is_boot_banner(kernel_line(BANNER, tag="trainer").encode())
    assert not is_boot_banner(kernel_line(XID_79).encode())


def test_the_kernels_own_record_is_a_finding() -> None:
    record = parse_kmsg_record(f"3,4711,123456789,-;{XID_79}\n SUBSYSTEM=pci\n".encode())

    assert record is not None
    assert record.sequence == 4711
    assert finding_in_record(record) == parse_message(XID_79)


def test_a_record_from_user_space_is_believed_only_in_a_drill_that_says_so() -> None:
    drill = parse_kmsg_record(f"11,4711,123456789,-;{XID_79} {DRILL_MARK}\n".encode())
    forged = parse_kmsg_record(f"11,4711,123456789,-;{XID_79}\n".encode())

    assert drill is not None
    assert forged is not None
    assert finding_in_record(drill) is None
    assert finding_in_record(drill, takes_drills=True) == parse_message(f"{XID_79} {DRILL_MARK}")
    assert finding_in_record(forged, takes_drills=True) is None


def test_a_daemons_record_is_not_believed_even_in_a_drill() -> None:
    record = parse_kmsg_record(f"27,4711,123456789,-;{XID_79} {DRILL_MARK}\n".encode())

    assert record is not None
    assert finding_in_record(record, takes_drills=True) is None


@given(st.binary())
def test_no_bytes_break_the_parsers(line: bytes) -> None:
    parse_syslog_line(line)
    parse_kmsg_record(line)
    is_boot_banner(line)


@given(st.text(alphabet="0123456789abcdefABCDEF:(). ,PCIXidNVRM\n", max_size=200))
def test_no_almost_xid_breaks_the_parser(text: str) -> None:
    finding = parse_message("NVRM: Xid (" + text)

    assert finding is None or finding.code.isdigit()


@pytest.mark.parametrize("filler", ["[ ", "NVRM: Xid (", "0", " ", "2026-11-21T05:50:31 ", "a kernel: "])
def test_a_hostile_line_takes_no_time(filler: str) -> None:
    line = (filler * 1_000_000).encode()
    started = time.process_time()

    parse_syslog_line(line)
    parse_syslog_line(kernel_line(filler * 1_000_000).encode())
    parse_message(filler * 1_000_000)

    assert time.process_time() - started < 0.5
