"""`nodeheal classify`: every fault of a log as a line of JSON, with what is to be done about it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from nodeheal.cli.classify import classify
from nodeheal.contract.vocabulary import Family
from nodeheal.domain.catalog import find

app = typer.Typer()
app.command()(classify)

XID_79 = "NVRM: Xid (PCI:0000:b9:00): 79, pid=1234, name=python, GPU has fallen off the bus."
ORDINARY = "[  123.400000] usb 1-1: new high-speed USB device number 5\n"
PROGRAM = "import typer; from nodeheal.cli.classify import classify; typer.run(classify)"


def answers(*arguments: str, log: bytes | None = None) -> list[dict[str, object]]:
    result = CliRunner().invoke(app, [*arguments], input=log)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


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
    assert program.communicate() == (b"", b"")
    assert program.returncode == 0


def test_a_reader_who_has_seen_enough_gets_no_complaint(tmp_path: Path) -> None:
    log = tmp_path / "storm"
    log.write_text(f"[  123.456789] {XID_79}\n" * 5000)
    program = started(str(log))
    assert program.stdout is not None
    assert program.stderr is not None
    program.stdout.readline()

    program.stdout.close()

    assert program.stderr.read() == b""
    assert program.wait() == 0
    program.stderr.close()
