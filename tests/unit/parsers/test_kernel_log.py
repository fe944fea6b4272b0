"""Whole kernel logs in every form: each fault by its line, the kernel's only, nothing lost to speed."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.parsers.finding import Finding
from nodeheal.parsers.kernel_filter import BLOCK_BYTES, LINE_BYTES
from nodeheal.parsers.kernel_line import parse_message
from nodeheal.parsers.kernel_log import Tally, read_findings
from nodeheal.parsers.log_format import LogFormat
from tests.support.goldens import pcie, report

GOLDEN = Path(__file__).parents[2] / "golden" / "kernel_logs"
XID_48 = "NVRM: Xid (PCI:0000:b9:00): 48, pid=1, name=python, DBE"
XID_79 = "NVRM: Xid (PCI:0000:b9:00): 79, pid=1, name=python, GPU has fallen off the bus."
ORDINARY = "Nov 21 05:50:31 gpu-7 kernel: [  123.456789] usb 1-1: new high-speed USB device number 5\n"


def codes(log: bytes | str, log_format: LogFormat = LogFormat.auto) -> list[tuple[int, str]]:
    source = io.BytesIO(log.encode() if isinstance(log, str) else log)
    return [(number, finding.code) for number, finding in read_findings(source, log_format)]


def as_expected(number: int, finding: Finding) -> str:
    optional = (finding.subcode or "-", finding.component or "-", finding.pid or "-")
    return " ".join(map(str, (number, finding.family, finding.code, *optional)))


@pytest.mark.parametrize("log", sorted(GOLDEN.glob("*.log")), ids=lambda log: log.stem)
@pytest.mark.parametrize("is_filtered", [True, False], ids=["filtered", "every line"])
def test_a_recorded_log_gives_the_expected_findings(log: Path, is_filtered: bool) -> None:
    with log.open("rb") as source:
        found = list(read_findings(source, is_filtered=is_filtered))

    assert [as_expected(number, finding) for number, finding in found] == log.with_suffix(
        ".expected"
    ).read_text().splitlines()


@pytest.mark.parametrize(
    "header",
    [
        "[  123.456789] ",
        "[  123.456789][ T1234] ",
        "[  123.456789] [ T1234] ",
        "[  123.456789 <    0.000012>] ",
        "[Sat Nov 21 05:50:31 2026] ",
        "[Sat Nov  1 05:50:31 2026][ T1234] ",
        "[Nov21 05:50] ",
        "[Nov 1 05:50] ",
        "[  +0.000012] ",
        "2026-11-21T05:50:31,123456+00:00 ",
        "kern  :err   : [  123.456789] ",
        "kern  :err   : [Sat Nov 21 05:50:31 2026] ",
        "kern  :crit  : 2026-11-21T05:50:31,123456+00:00 ",
        "<3>[  123.456789] ",
        "<3>",
        "",
    ],
)
@pytest.mark.parametrize("log_format", [LogFormat.auto, LogFormat.dmesg])
def test_dmesg_is_understood_with_any_of_its_stamps(header: str, log_format: LogFormat) -> None:
    assert codes(f"{header}{XID_79}\n", log_format) == [(1, "79")]


@pytest.mark.parametrize("header", ["user  :err   : [  1.0] ", "daemon:err   : [  1.0] ", "<11>[  1.0] ", "<30>"])
@pytest.mark.parametrize("log_format", [LogFormat.auto, LogFormat.dmesg])
def test_dmesg_is_not_believed_where_it_names_user_space(header: str, log_format: LogFormat) -> None:
    assert codes(f"{header}{XID_79}\n", log_format) == []


@pytest.mark.parametrize(
    "header",
    [
        "Nov 21 05:50:31 gpu-7 kernel: ",
        "Nov 21 05:50:31.123456 gpu-7 kernel: [  123.456789] ",
        "2026-11-21T05:50:31+0000 gpu-7 kernel: ",
        "2026-11-21T05:50:31.123456+01:00 gpu-7 kernel: ",
        "2026-11-21 05:50:31 gpu-7 kernel: ",
        "Sat 2026-11-21 05:50:31 UTC gpu-7 kernel: ",
        "Sat 2026-11-21 05:50:31.123456 CEST gpu-7 kernel: ",
        "1700000000.123456 gpu-7 kernel: ",
        "[  123.456789] gpu-7 kernel: ",
        "<3>Nov 21 05:50:31 gpu-7 kernel: [  123.456789] ",
        "2026 Nov 21 05:50:31 gpu-7 kernel: ",
        "Nov 21 05:50:31 2026 gpu-7 kernel: ",
    ],
)
@pytest.mark.parametrize("log_format", [LogFormat.auto, LogFormat.journald, LogFormat.syslog])
def test_a_log_that_names_its_writers_is_understood(header: str, log_format: LogFormat) -> None:
    assert codes(f"{header}{XID_79}\n", log_format) == [(1, "79")]
    assert codes(f"{header.replace('kernel:', 'trainer[4711]:')}{XID_79}\n", log_format) == []


@pytest.mark.parametrize("unnamed", [XID_79, f"[  123.456789] {XID_79}", f"                 {XID_79}"])
def test_a_line_without_a_writer_is_not_believed_in_a_log_that_names_them(unnamed: str) -> None:
    assert codes(f"{ORDINARY}{unnamed}\n") == []
    assert codes(f"-- Boot 3f5e1c2a --\n{ORDINARY}{unnamed}\n") == []


def test_a_torn_first_line_does_not_hide_the_rest() -> None:
    assert codes(f"gh-speed USB device number 5\n{ORDINARY}{ORDINARY[:30]}{XID_79}\n") == [(3, "79")]


def test_the_kernels_records_are_believed_and_user_spaces_are_not() -> None:
    log = f"3,1,99,-;{XID_48}\n SUBSYSTEM=pci\n11,2,99,-;{XID_79}\n27,3,99,-;{XID_79}\n4,4,99,c,caller=T12;{XID_79}\n"

    assert codes(log, LogFormat.kmsg) == codes(log) == [(1, "48"), (5, "79")]


def entry(message: object = XID_79, **fields: object) -> str:
    return json.dumps({"MESSAGE": message, **fields}) + "\n"


@pytest.mark.parametrize(
    "line",
    [
        entry(_TRANSPORT="kernel", SYSLOG_FACILITY="0", PRIORITY="3"),
        entry(_TRANSPORT="kernel"),
        entry(SYSLOG_IDENTIFIER="kernel"),
        entry(list(XID_79.encode()), _TRANSPORT="kernel"),
        entry(list(b"\x1b\xff".join([XID_79.encode(), b"\xfe"])), _TRANSPORT="kernel"),
        entry([XID_79, "another"], _TRANSPORT="kernel"),
        entry(_TRANSPORT="kernel").replace("NVRM", "\\u004eVRM"),
        entry(_TRANSPORT="kernel").replace(": [", ":["),
        entry(f"[  123.456789] {XID_79}", _TRANSPORT="kernel"),
    ],
)
@pytest.mark.parametrize("log_format", [LogFormat.auto, LogFormat.journald])
def test_an_entry_of_the_journal_is_understood(line: str, log_format: LogFormat) -> None:
    assert codes(line, log_format) == [(1, "79")]


@pytest.mark.parametrize(
    "line",
    [
        entry(_TRANSPORT="syslog", SYSLOG_IDENTIFIER="kernel"),
        entry(_TRANSPORT="stdout", SYSLOG_FACILITY="0"),
        entry(_TRANSPORT="kernel", SYSLOG_FACILITY="1"),
        entry(SYSLOG_IDENTIFIER="kernel", _PID="1"),
        entry(SYSLOG_IDENTIFIER="kernel", _UID="0"),
        entry(SYSLOG_IDENTIFIER="kernel", _EXE="/usr/bin/logger"),
        entry(SYSLOG_IDENTIFIER="trainer"),
        entry(),
        entry(None, _TRANSPORT="kernel"),
        entry([999], _TRANSPORT="kernel"),
        entry([], _TRANSPORT="kernel"),
        entry([[XID_79]], _TRANSPORT="kernel"),
        entry(_TRANSPORT="kernel")[:-3] + "\n",
        "{" * 20_000 + '"MESSAGE"\n',
        '["MESSAGE"]\n',
    ],
)
def test_an_entry_that_is_not_the_kernels_or_no_entry_is_no_finding(line: str) -> None:
    assert codes(line) == []


def test_zeros_and_carriage_returns_do_not_hide_a_fault() -> None:
    log = f"{ORDINARY}\0\0\0\0Nov 21 05:50:31 gpu-7 kernel: {XID_79}\r\n\0\n"

    assert codes(log) == [(2, "79")]


def test_a_last_line_without_a_newline_counts() -> None:
    assert codes(f"{ORDINARY}Nov 21 05:50:31 gpu-7 kernel: {XID_79}") == [(2, "79")]


def test_line_numbers_hold_across_blocks() -> None:
    count = 2 * BLOCK_BYTES // len(ORDINARY)
    fault = f"Nov 21 05:50:31 gpu-7 kernel: {XID_79}\n"

    found = codes((ORDINARY * count + fault) * 3 + fault)

    assert found == [(count + 1, "79"), (2 * count + 2, "79"), (3 * count + 3, "79"), (3 * count + 4, "79")]


def test_an_endless_line_takes_no_memory_and_hides_nothing_behind_it() -> None:
    def pieces() -> Iterator[bytes]:
        yield b"x" * (LINE_BYTES + 1)
        for _ in range(20):
            yield f"\0 NVRM: Xid {XID_79}".encode() * 1000
        yield f"\nNov 21 05:50:31 gpu-7 kernel: {XID_79}\n".encode()

    class Endless(io.RawIOBase):
        def __init__(self) -> None:
            self.pieces = pieces()

        def read(self, size: int = -1, /) -> bytes:
            return next(self.pieces, b"")

    found = [(number, finding.code) for number, finding in read_findings(Endless())]

    assert found == [(2, "79")]


def test_lines_may_come_without_a_file() -> None:
    lines = [ORDINARY.encode(), f"Nov 21 05:50:31 gpu-7 kernel: {XID_48}".encode(), f"\tkernel: {XID_79}".encode()]

    assert [(number, finding.code) for number, finding in read_findings(lines)] == [(2, "48")]


def test_a_fault_is_handed_out_before_the_next_line_is_there() -> None:
    def lines() -> Iterator[bytes]:
        yield f"Nov 21 05:50:31 gpu-7 kernel: {XID_79}\n".encode()
        raise AssertionError("it read on")

    number, finding = next(read_findings(lines()))

    assert (number, finding.code) == (1, "79")


@pytest.mark.parametrize("log", [b"", b"\n", b"\0", b"\r\n\r\n"])
@pytest.mark.parametrize("log_format", list(LogFormat))
def test_an_empty_log_has_no_findings(log: bytes, log_format: LogFormat) -> None:
    assert codes(log, log_format) == []


@pytest.mark.parametrize("month", ["Okt", "Mär", "févr.", "Dez"])
def test_a_log_may_be_in_the_language_of_its_machine(month: str) -> None:
    line = f"{month} 06 17:59:27 balrog kernel: NVRM: Xid (PCI:0000:b9:00): 79, pid=1, name=x, off".encode()

    assert [(number, found.code) for number, found in read_findings([line])] == [(1, "79")]


@pytest.mark.parametrize(
    "forged",
    [
        b"3,1,1,-;NVRM: Xid (PCI:0000:b9:00): 79, pid=1, name=x, off",
        b'{"MESSAGE":"NVRM: Xid (PCI:0000:b9:00): 79, pid=1","_TRANSPORT":"kernel"}',
        b"NVRM: Xid (PCI:0000:b9:00): 79, pid=1, name=x, off",
    ],
)
def test_in_a_log_that_names_its_writers_a_line_of_another_form_is_not_believed(forged: bytes) -> None:
    log = [b"Nov 21 05:50:31 gpu-7 app[12]: two lines:", forged]

    assert list(read_findings(log)) == []


# Lines with other tools' marks around them: `--format any` -----------------------------------------------------------

HIGHLIGHTED = XID_79.replace("NVRM: Xid", "\x1b[33mNVRM: \x1b[0m\x1b[1mXid")
WRAPPED = {
    # As util-linux 2.38.1 and GNU grep print them.
    "dmesg -L=always": f"\x1b[32m[  123.456789] \x1b[0m{HIGHLIGHTED}\x1b[0m",
    "dmesg -J": f'         "msg": "{XID_79}"',
    "grep file": f"/var/log/kern.log:Nov 21 05:50:31 gpu-7 kernel: [  123.4] {XID_79}",
    "grep file in the folder": f"kern.log.1:Nov 21 05:50:31 gpu-7 kernel: [  123.4] {XID_79}",
    "grep -n": f"1234:Nov 21 05:50:31 gpu-7 kernel: [  123.4] {XID_79}",
    "grep -n of dmesg": f"1234:[  123.456789] {XID_79}",
    "grep -Hn": f"/var/log/kern.log:77:Nov 21 05:50:31 gpu-7 kernel: {XID_79}",
    # By src/shared/logs-show.c of systemd.
    "short-delta": f"[  123.456789 <    0.000012 >] gpu-7 kernel: {XID_79}",
    "short-delta, another boot": f"[  123.456789 <    0.000012*>] gpu-7 kernel: {XID_79}",
    "short-delta, the first": f"[  123.456789                ] gpu-7 kernel: {XID_79}",
    "with-unit": f"Sat 2026-11-21 05:50:31 UTC gpu-7 kernel: {XID_79}",
    "json-pretty": f'\t"MESSAGE" : "{XID_79}",',
    "export": f"MESSAGE={XID_79}",
    "verbose": f"    MESSAGE={XID_79}",
    # By the guides of the tools.
    "pdsh": f"gpu-7: [  123.456789] {XID_79}",
    "pdsh of a file": f"gpu-7: Nov 21 05:50:31 gpu-7 kernel: {XID_79}",
    "pdsh of /dev/kmsg": f"gpu-7: 3,4711,99,-;{XID_79}",
    "pdsh of dmesg -t": f"gpu-7: {XID_79}",
    "pdsh of grep": f"gpu-7: /var/log/kern.log:Nov 21 05:50:31 gpu-7 kernel: {XID_79}",
    "CloudWatch, exported to S3": f"2026-11-21T05:50:31.123Z Nov 21 05:50:31 gpu-7 kernel: {XID_79}",
    "aws logs tail": f"2026-11-21T05:50:31.123000+00:00 i-0abc/kern.log Nov 21 05:50:31 gpu-7 kernel: {XID_79}",
    "aws logs tail of dmesg": f"2026-11-21T05:50:31.123000+00:00 i-0abc [  123.4] {XID_79}",
    "aws logs filter-log-events": f'            "message": "Nov 21 05:50:31 gpu-7 kernel: {XID_79}",',
    "fluent-bit tail": f'{{"log":"Nov 21 05:50:31 gpu-7 kernel: {XID_79}\\n","stream":"stderr"}}',
    "fluent-bit kmsg": f'{{"priority":4,"sequence":12,"sec":1,"usec":2,"msg":"{XID_79}"}}',
    "busybox": f"Nov 21 05:50:31 gpu-7 kern.warn kernel: {XID_79}",
    "talosctl dmesg": f"10.5.0.2: kern: warning: [2026-11-21T05:50:31.123456789Z]: {XID_79}",
    "two stamps": f"2026-11-21T05:50:31Z [  123.456789] {XID_79}",
    "a quote": f"> [  123.456789] {XID_79}",
    "indented": f"    [  123.456789] {XID_79}",
}


def tallied(line: str, log_format: LogFormat) -> tuple[list[str], int]:
    """The codes found, and how many lines are not believed."""
    tally = Tally()
    found = [finding.code for _, finding in read_findings([line.encode()], log_format, tally=tally)]
    assert (tally.lines, tally.suspicious) == (1, 1)
    return found, tally.not_believed


FAMILIES = (
    XID_79,
    "nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    "NVRM: GPU 0000:b9:00.0: RmInitAdapter failed! (0x62:0x40:1884)",
    "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (page:0x11 offset:0x0 grain:32)",
    "mlx5_core 0000:9a:00.0 ens3np0: TX timeout detected",
    "nvme nvme4: controller is down; will reset: CSTS=0x3, PCI_STATUS=0x10",
    "watchdog: BUG: soft lockup - CPU#3 stuck for 3102s! [ksoftirqd/3:31]",
    "Out of memory: Killed process 4711 (python3) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB",
    "pcieport 0000:15:01.0: AER: Uncorrected (Fatal) error received: 0000:17:00.0",
)
PREFIXES = (
    "[pod/llama-1/trainer] ",
    "[pod/llama-1/trainer] 2026-04-02T10:11:12.123456789Z ",
    "trainer-1  | ",
    "llama-1 trainer ",
    "2026-04-02T10:11:12.123456789Z stdout F ",
    'time="2026-04-02T10:11:12Z" level=info msg="',
    "Apr 02 10:11:12 kernel: ",
    "2026-04-02T10:11:12+00:00 kernel: ",
    "trainer-1  | [ 3301.100000] ",
    "[rank 3 of 8] ",
    "E0402 10:11:12.123456       1 dmesg.go:41] ",
    "[2026-04-02 10:11:12] ",
    "[pod/a/b] Apr 02 10:11:12 gpu-7 kernel: ",
)


@pytest.mark.parametrize("message", FAMILIES)
@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_line_of_any_family_behind_a_prefix_is_read_when_asked_and_counted_else(prefix: str, message: str) -> None:
    code = parse_message(message)

    assert code is not None
    assert tallied(prefix + message, LogFormat.any) == ([code.code], 0)
    assert tallied(prefix + message, LogFormat.auto) == ([], 1)


@pytest.mark.parametrize(
    "header", ["[pod/a/b] Apr 02 10:11:12 gpu-7 sshd[31]: ", "Apr 02 10:11:12 python3[4711]: ", "11,2,99,-;"]
)
def test_a_line_of_a_named_program_is_read_behind_no_prefix(header: str) -> None:
    assert tallied(header + XID_79, LogFormat.any) == ([], 1)


@pytest.mark.parametrize("line", WRAPPED.values(), ids=WRAPPED)
def test_a_line_is_read_whatever_a_tool_has_put_around_it(line: str) -> None:
    assert tallied(line, LogFormat.any) == (["79"], 0)


@pytest.mark.parametrize("name", [name for name in WRAPPED if name != "with-unit"])
def test_unasked_no_such_line_is_believed_and_none_is_passed_over_in_silence(name: str) -> None:
    assert tallied(WRAPPED[name], LogFormat.auto) == ([], 1)


# Reports of firmware are several lines ------------------------------------------------------------------------------

FATAL, CORRECTED = report("fatal", pcie("0000:c9:02.0")), report("corrected", pcie("0000:5e:00.0"))
# What stands around each line, with the second at which it was written.
AROUND = {
    **{
        name: line.replace(XID_79, "%s").replace("05:50:31", "05:50:{second:02}").replace("i-0abc", "gpu-7")
        for name, line in WRAPPED.items()
    },
    "dmesg -L=always": "\x1b[32m[  123.4567{second:02}] \x1b[0m\x1b[33m%s\x1b[0m",
    "grep -Hn": f"/var/log/kern.log:{{second}}:{ORDINARY.partition('usb')[0]}%s",
    "grep of two files": "gpu-7/dmesg:{second}:[  123.4567{second:02}] %s",
    "aws logs tail of dmesg -t": "2026-11-21T05:50:{second:02}+00:00 gpu-7 %s",
    "CloudWatch's stamp and dmesg's": "2026-11-21T05:50:{second:02}Z [123.4567{second:02}] %s",
    "dmesg": "[  123.4567{second:02}] %s",
    "dmesg -t": "%s",
    "journalctl -o json of pdsh": 'gpu-7: {"__CURSOR":"s=1;i={second}","_TRANSPORT":"kernel","MESSAGE":"%s","_PID":""}',
    "journalctl -o json": '{"__CURSOR":"i={second}","_TRANSPORT":"kernel","_HOSTNAME":"gpu-7","MESSAGE":"%s"}',
    "JSON in CloudWatch": '2026-11-21T05:50:{second:02}Z {"_TRANSPORT":"kernel","host":"gpu-7","MESSAGE":"%s"}',
    "/dev/kmsg": "3,{second},99,-;%s",
}
NAMING_A_NODE = [name for name, around in AROUND.items() if "gpu-7" in around]


def written(around: str, lines: list[str], node: str = "gpu-7") -> list[bytes]:
    named = around.replace("gpu-7", node)
    return [
        named.replace("{second:02}", f"{second:02}").replace("{second}", str(second)).replace("%s", line).encode()
        for second, line in enumerate(lines)
    ]


def judged(lines: list[bytes], log_format: LogFormat = LogFormat.any) -> list[tuple[str, str | None, str | None]]:
    return [(found.code, found.subcode, found.component) for _, found in read_findings(lines, log_format)]


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_a_report_of_firmware_is_judged_the_same_whatever_is_around_its_lines(around: str) -> None:
    assert judged(written(around, FATAL)) == [("unplaced", "fatal", "0000:c9:02.0")]


@pytest.mark.parametrize("name", NAMING_A_NODE)
def test_the_reports_of_two_nodes_are_told_apart_where_their_lines_are_mixed(name: str) -> None:
    first, second = written(AROUND[name], CORRECTED, "gpu-7"), written(AROUND[name], FATAL, "gpu-8")
    mixed = [line for pair in zip(first, second, strict=False) for line in pair]

    assert judged(mixed) == [("unplaced", "fatal", "0000:c9:02.0")]


@pytest.mark.parametrize("log_format", [LogFormat.auto, LogFormat.syslog])
def test_a_log_that_several_nodes_write_to_is_read_by_node(log_format: LogFormat) -> None:
    header = "Nov 21 05:50:{second:02} gpu-7 kernel: %s"
    mixed = [
        line
        for pair in zip(written(header, CORRECTED, "gpu-7"), written(header, FATAL, "gpu-8"), strict=False)
        for line in pair
    ]

    assert judged(mixed, log_format) == [("unplaced", "fatal", "0000:c9:02.0")]


def test_a_log_may_begin_with_a_bare_line_of_a_report() -> None:
    assert judged(written("%s", FATAL), LogFormat.auto) == [("unplaced", "fatal", "0000:c9:02.0")]


@pytest.mark.parametrize("name", ["pdsh", "grep file", "aws logs tail"])
def test_unasked_the_lines_of_a_wrapped_report_are_not_believed_either(name: str) -> None:
    tally = Tally()

    found = list(read_findings(written(AROUND[name], FATAL), LogFormat.auto, tally=tally))

    assert (found, tally.not_believed) == ([], len(FATAL))


def test_a_report_that_a_program_writes_is_never_believed() -> None:
    assert judged(written("gpu-7: Nov 21 05:50:31 gpu-7 trainer: %s", FATAL)) == []


# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        f"Nov 21 05:50:31 gpu-7 python[12]: {XID_79}",
        f"/var/log/messages:Nov 21 05:50:31 gpu-7 python[12]: {XID_79}",
        f"gpu-7: Nov 21 05:50:31 gpu-7 trainer: {XID_79}",
        entry(_TRANSPORT="stdout"),
        f"12,1,99,-;{XID_79}",
    ],
)
def test_what_names_another_writer_than_the_kernel_is_never_believed(line: str) -> None:
    assert tallied(line, LogFormat.any) == ([], 1)


@pytest.mark.parametrize("line", [f"we saw {XID_79} twice", "gpu-7: NVRM: loading NVIDIA UNIX Open Kernel Module"])
def test_what_only_speaks_of_a_fault_is_none(line: str) -> None:
    assert tallied(line, LogFormat.any)[0] == []


@given(st.text(alphabet=st.sampled_from(' :[]<>{}"\\,.-/|0123456789abNVRMXid\x1b\t'), max_size=200))
def test_no_wrapping_breaks_the_reader(text: str) -> None:
    list(read_findings([f"{text}{XID_79}".encode()], LogFormat.any))
