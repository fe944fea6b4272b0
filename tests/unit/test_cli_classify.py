"""`nodeheal classify`: every fault of a log as a line of JSON, with what is to be done about it."""

import bz2
import gzip
import json
import lzma
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from nodeheal.cli.classify import classify
from nodeheal.contract.vocabulary import Family
from nodeheal.domain.faults.catalog import find

app = typer.Typer()
app.command()(classify)

XID_79 = "NVRM: Xid (PCI:0000:b9:00): 79, pid=1234, name=python, GPU has fallen off the bus."
ORDINARY = "[  123.400000] usb 1-1: new high-speed USB device number 5\n"
PROGRAM = "import typer; from nodeheal.cli.classify import classify; typer.run(classify)"


def answers(*arguments: str, log: bytes | None = None) -> list[dict[str, object]]:
    result = CliRunner().invoke(app, [*arguments], input=log)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == (0 if found else 1), result.output
    return found


def started(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )


def test_a_known_fault_comes_with_the_catalogs_verdict_action_and_reason() -> None:
    row = find(Family.xid, "79")
    assert row is not None

    (answer,) = answers(log=f"{ORDINARY}[  123.456789] {XID_79}\n".encode())

    assert answer == {
        "line_number": 2,
        "family": "xid",
        "code": 79,
        "subcode": None,
        "component": "0000:b9:00.0",
        "pid": 1234,
        "verdict": row.verdict.value,
        "action": row.action.value,
        "reason": row.why,
        "name": row.name,
        "message": XID_79,
    }


def test_a_fault_that_nobody_described_goes_to_a_human() -> None:
    (answer,) = answers(log=b"NVRM: Xid (PCI:0000:b9:00): 9999, pid=1\n")

    assert (answer["code"], answer["verdict"], answer["action"]) == (9999, "UNKNOWN", "ESCALATE")
    assert answer["name"] is None
    assert "human" in str(answer["reason"])


def test_only_numbered_codes_are_numbers() -> None:
    log = (
        b"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n"
        b"NEURON_HW_ERR=SRAM_UNCORRECTABLE_ERROR nd-id=3\n"
    )

    sxid, neuron = answers(log=log)

    assert (sxid["code"], sxid["subcode"]) == (20034, "fatal")
    assert (neuron["code"], neuron["component"]) == ("SRAM_UNCORRECTABLE_ERROR", "neuron3")


def test_a_file_is_read_in_the_form_that_is_asked_for(tmp_path: Path) -> None:
    log = tmp_path / "messages"
    log.write_text(f"Nov 21 05:50:31 gpu-7 kernel: {XID_79}\n")

    assert [answer["line_number"] for answer in answers(str(log), "--format", "syslog")] == [1]
    assert answers(str(log), "--format", "kmsg") == []


def test_an_ordinary_log_says_nothing() -> None:
    assert answers("-", log=ORDINARY.encode() * 3) == []
    assert answers(log=b"") == []


@pytest.mark.parametrize("name", ["no-such-file", "."])
def test_a_file_that_cannot_be_read_is_named(name: str) -> None:
    result = CliRunner().invoke(app, [name])

    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"{name}: ")


def test_an_unknown_form_is_refused() -> None:
    assert CliRunner().invoke(app, ["--format", "windows"], input=b"").exit_code == 2


def test_a_fault_is_printed_while_the_log_is_still_open() -> None:
    program = started("--format", "dmesg")
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write(f"[  123.456789] {XID_79}\n".encode())
    program.stdin.flush()

    answer = json.loads(program.stdout.readline())

    assert answer["code"] == 79
    assert program.communicate()[0] == b""
    assert program.returncode == 0


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_reader_who_has_seen_enough_gets_no_complaint(tmp_path: Path, is_compressed: bool) -> None:
    log = tmp_path / "storm"
    log.write_bytes(zstd(LOG) if is_compressed else f"[  123.456789] {XID_79}\n".encode() * 5000)
    program = started(str(log))
    assert program.stdout is not None
    assert program.stderr is not None
    program.stdout.readline()

    program.stdout.close()

    assert program.stderr.read() == b""
    assert program.wait(timeout=30) == 0
    program.stderr.close()


# What was read, and what was not believed ---------------------------------------------------------------------------


def told(*arguments: str, log: str) -> list[str]:
    """What stands on stderr."""
    return CliRunner().invoke(app, [*arguments], input=log.encode()).stderr.splitlines()


def test_what_was_read_is_told() -> None:
    log = f"{ORDINARY}[  123.456789] {XID_79}\n[  124.1] NVRM: loading NVIDIA UNIX Open Kernel Module\n{ORDINARY}"

    assert told(log=log) == [
        "4 lines read; 2 of them may report a fault: 1 fault, 1 ordinary, 0 not believed to be the kernel's"
    ]
    assert told(log="") == [
        "0 lines read; 0 of them may report a fault: 0 faults, 0 ordinary, 0 not believed to be the kernel's"
    ]
    assert told(log="no end of the line")[0].startswith("1 line read;")


def test_a_line_that_is_not_believed_is_counted_and_the_first_is_named() -> None:
    log = f"{ORDINARY}/var/log/kern.log:Nov 21 05:50:31 gpu-7 kernel: {XID_79}\n" * 2

    assert told(log=log) == [
        "4 lines read; 2 of them may report a fault: 0 faults, 0 ordinary, 2 not believed to be the kernel's",
        "the first that is not believed is line 2; for lines of several forms try --format any",
    ]
    assert CliRunner().invoke(app, [], input=log.encode()).exit_code == 1
    assert told("--format", "any", log=log)[1:] == []


@pytest.mark.parametrize(
    "log",
    [
        f"[  123.456789] {XID_79}\n".encode("utf-16"),
        gzip.compress(gzip.compress(f"[  123.456789] {XID_79}\n".encode())),
        b"PK\x03\x04\x14\x00\x00\x00\x08\x00",
    ],
    ids=["UTF-16", "gzip twice", "zip"],
)
def test_a_log_that_is_no_text_is_not_passed_over_in_silence(log: bytes) -> None:
    result = CliRunner().invoke(app, [], input=log)

    assert result.exit_code == 1
    assert "with zero bytes, which no text has: UTF-16, an archive, or a damaged log" in result.stderr.splitlines()[-1]


def test_colours_and_tabs_are_text() -> None:
    assert len(told(log=f"\x1b[32m[  123.4] \x1b[0musb\t1-1:\r\n{ORDINARY}")) == 1


def test_exit_codes_are_greps() -> None:
    log = f"[  123.456789] {XID_79}\n".encode()

    codes = [CliRunner().invoke(app, [name], input=text).exit_code for name, text in (("-", log), ("-", b""))]

    assert (*codes, CliRunner().invoke(app, ["no-such-file"]).exit_code) == (0, 1, 2)


# Compressed logs ----------------------------------------------------------------------------------------------------

LOG = f"{ORDINARY}[  123.456789] {XID_79}\n".encode() * 5000


def zstd(text: bytes) -> bytes:
    if shutil.which("zstd") is None:
        pytest.skip("there is no tool zstd")
    return subprocess.run(["zstd", "-c", "-q"], input=text, capture_output=True, check=True, timeout=30).stdout


COMPRESSED = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress, "zst": zstd}


@pytest.mark.parametrize("compress", COMPRESSED.values(), ids=COMPRESSED)
def test_a_compressed_log_is_read_as_it_was(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    file = tmp_path / "kern.log"  # its name says nothing
    file.write_bytes(compress(LOG))

    found = answers(str(file))

    assert (len(found), found[0]["line_number"], found[-1]["line_number"]) == (5000, 2, 10_000)
    assert answers(log=compress(LOG)) == found


@pytest.mark.parametrize("compress", COMPRESSED.values(), ids=COMPRESSED)
def test_a_compressed_log_that_is_cut_off_is_an_error_behind_what_it_shows(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    file = tmp_path / "kern.log"
    file.write_bytes(compress(LOG)[:-20])

    result = CliRunner().invoke(app, [str(file)])

    assert result.exit_code == 2
    assert result.stderr.startswith(f"{file}: ")


def test_where_the_tool_is_missing_a_log_of_zstd_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    log = zstd(LOG)
    monkeypatch.setenv("PATH", "/nowhere")

    result = CliRunner().invoke(app, [], input=log)

    assert (result.exit_code, "install the tool `zstd`" in result.stderr) == (2, True)
