"""What counts as a fault in a kernel log, and what does not."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.contract.evidence.kernel_line import (
    finding_in_record,
    is_boot_banner,
    parse_kmsg_record,
    parse_message,
    parse_syslog_line,
)
from tests.unit.agent.fakes import BANNER, XID_79, kernel_line


@pytest.mark.parametrize(
    ("message", "code", "component"),
    [
        (XID_79, "79", "0000:b9:00.0"),
        ("NVRM: Xid (0000:03:00): 31, Ch 00000001, engmask 00000101, intr 10000000", "31", "0000:03:00.0"),
        ("NVRM: Xid (PCI:0000:B9:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal", "74", "0000:b9:00.0"),
        ("NVRM: Xid (PCI:0000:b9:00.0): 48, pid=77, name=python3, DBE", "48", "0000:b9:00.0"),
        ("NVRM: Xid (PCI:00000000:b9:00): 63, pid=1", "63", "0000:b9:00.0"),
        ("NVRM: Xid (PCI:10000:b9:00): 63, pid=1", "63", "10000:b9:00.0"),
        ("NVRM: Xid (PCI:0000:0f:00 GPU-I:03): 45, pid=1", "45", "0000:0f:00.0"),
        ("NVRM: Xid (PCI:0000:b9:00): 154, GPU recovery action changed from 0x0 (None) to 0x2", "154", "0000:b9:00.0"),
        ("  NVRM: Xid (PCI:0000:b9:00): 8 \n", "8", "0000:b9:00.0"),
    ],
)
def test_every_spelling_of_an_xid_is_understood(message: str, code: str, component: str) -> None:
    finding = parse_message(message)

    assert finding is not None
    assert (finding.family, finding.code, finding.component) == ("xid", code, component)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "NVRM: GPU at PCI:0000:b9:00: GPU-3f5e",
        "NVRM: Xid (PCI:0000:b9:00): ",
        "NVRM: Xid (PCI:0000:b9:00): 79abc",
        "NVRM: Xid (PCI:zzzz:b9:00): 79, pid=1",
        "my program prints: NVRM: Xid (PCI:0000:b9:00): 79, pid=1",
        "Out of memory: Killed process 4711 (python3)",
    ],
)
def test_what_is_no_xid_is_no_finding(message: str) -> None:
    assert parse_message(message) is None


@pytest.mark.parametrize(
    "header",
    [
        "2026-11-21T05:50:31.123456+00:00 gpu-7 kernel: [  123.456789] ",
        "2026-11-21T05:50:31Z gpu-7 kernel: ",
        "Nov 21 05:50:31 gpu-7 kernel: [123456.000001] ",
        "Nov  1 05:50:31 gpu-7.example.org kernel: [  123.456789][ T4711] ",
        "Nov 21 05:50:31 gpu-7 kernel:[  123.456789] ",
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


def test_a_record_from_user_space_is_believed_only_in_a_drill() -> None:
    record = parse_kmsg_record(f"11,4711,123456789,-;{XID_79}\n".encode())

    assert record is not None
    assert finding_in_record(record) is None
    assert finding_in_record(record, trust_injected=True) == parse_message(XID_79)


def test_a_daemons_record_is_not_believed_even_in_a_drill() -> None:
    record = parse_kmsg_record(f"27,4711,123456789,-;{XID_79}\n".encode())

    assert record is not None
    assert finding_in_record(record, trust_injected=True) is None


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
