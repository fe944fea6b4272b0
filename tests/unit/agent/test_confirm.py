"""The node looks for itself: in the kernel log of its boot, and with the check that reported the fault."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeheal.agent.checks.check import NodeCheck, NodeCheckResult, Problem, always
from nodeheal.agent.checks.kmsg import KmsgReader
from nodeheal.agent.evidence import confirm as module
from nodeheal.agent.evidence.confirm import Accusation, confirm
from nodeheal.agent.runtime.config import AgentConfig, KernelLog
from nodeheal.contract.names import DRILL_MARK
from nodeheal.contract.vocabulary import Confirmation, Family
from nodeheal.parsers.finding import Finding
from tests.support.agent_fakes import BANNER, CONFIG, kernel_line, xid

CONFIRMED, DENIED, UNKNOWN = Confirmation.CONFIRMED, Confirmation.DENIED, Confirmation.UNKNOWN
REMAP = Finding(Family.nvml, "REMAP_FAILED", "GPU-1", "a row could not be remapped")
SECONDS = 20.0


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "kern.log"
    path.write_text(kernel_line(BANNER) + xid(74))
    return path


def node(log: Path, kind: str = "file", **changes: Any) -> AgentConfig:
    """Its boot is that of this computer, unless a test says otherwise."""
    return replace(CONFIG, kernel_log=(KernelLog(kind, str(log)),), **changes)


def accused(config: AgentConfig, code: str = "74", **changes: Any) -> Accusation:
    known = {
        "family": "xid",
        "code": code,
        "boot_id": config.boot_id(),
        "source": "kernel_log",
        "component": "0000:b9:00.0",
    }
    return Accusation(**{**known, **changes})


def asked(config: AgentConfig, code: str = "74", **changes: Any) -> Confirmation:
    return confirm(accused(config, code, **changes), config, SECONDS).confirmation


def test_what_the_kernel_has_logged_in_this_boot_is_confirmed_with_its_words(log: Path) -> None:
    found = confirm(accused(node(log)), node(log), SECONDS)

    assert found.confirmation is CONFIRMED
    assert "something is wrong" in found.confirmed_by
    assert str(log) in found.confirmed_by


@pytest.mark.parametrize("other", [{"code": "79"}, {"family": "sxid"}, {"component": "0000:18:00.0"}, {"subcode": "x"}])
def test_another_fault_or_one_of_another_accelerator_is_denied(log: Path, other: dict[str, str]) -> None:
    assert asked(node(log), **other) is DENIED


def test_what_an_earlier_boot_has_logged_is_denied(log: Path) -> None:
    log.write_text(xid(74) + kernel_line(BANNER) + xid(79))

    assert asked(node(log)) is DENIED


def test_what_was_reported_on_another_boot_cannot_be_told(log: Path) -> None:
    assert asked(node(log), boot_id="another-boot") is UNKNOWN


@pytest.mark.parametrize("name", ["kern.log", "kern.log.1"])
@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to, lambda path, _: os.mkfifo(path)])
@pytest.mark.timeout(20)
def test_root_reads_no_log_that_its_writer_has_put_a_link_or_a_pipe_in_place_of(
    log: Path, tmp_path: Path, name: str, plant: Callable[[Path, Path], None]
) -> None:
    """S13: the folder of a log belongs to the program that writes the log, not to root."""
    (secret := tmp_path / "of-root").write_text(kernel_line(BANNER) + xid(74))
    log.write_text(xid(79))
    log.with_name(name).unlink(missing_ok=True)
    plant(log.with_name(name), secret)

    assert asked(node(log)) is UNKNOWN


def test_what_rotation_has_put_aside_is_read(log: Path) -> None:
    log.rename(log.with_name("kern.log.1"))
    log.write_text(xid(79))

    assert asked(node(log)) is CONFIRMED


def test_a_log_that_does_not_reach_back_to_the_boot_denies_nothing(log: Path) -> None:
    log.with_name("kern.log.1").write_text(xid(63))
    log.write_text(xid(79))

    assert asked(node(log)) is UNKNOWN
    assert asked(node(log), code="79") is CONFIRMED


def test_a_long_log_is_read_from_its_end(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOG_BYTES", 4_096)
    log.write_text(kernel_line(BANNER) + xid(74) + kernel_line("usb 1-1: new device") * 200 + xid(79))

    assert asked(node(log), code="79") is CONFIRMED
    assert asked(node(log)) is UNKNOWN


def test_a_log_that_cannot_be_read_denies_nothing(tmp_path: Path) -> None:
    found = confirm(accused(node(tmp_path / "none")), node(tmp_path / "none"), SECONDS)

    assert found.confirmation is UNKNOWN
    assert "No such file" in found.confirmed_by


@pytest.mark.parametrize("tag", ["python[7]", "NVRM"])
def test_what_a_program_has_logged_confirms_nothing(log: Path, tag: str) -> None:
    log.write_text(kernel_line(BANNER) + xid(74).replace("kernel:", f"{tag}:"))

    assert asked(node(log)) is DENIED


@pytest.mark.parametrize(("drills", "answer"), [(True, CONFIRMED), (False, DENIED)])
def test_a_drill_counts_where_the_node_takes_drills(log: Path, drills: bool, answer: Confirmation) -> None:
    log.write_text(kernel_line(BANNER) + xid(74).replace("something is wrong", DRILL_MARK))

    assert asked(node(log, drills=drills)) is answer


# /dev/kmsg: a file of records stands in for it


class Ring:
    """As the device is read: one record at a time."""

    def __init__(self, records: list[bytes]) -> None:
        self.records = records

    def read(self, _: int, __: int) -> bytes:
        return self.records.pop(0) if self.records else b""


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    (tmp_path / "kmsg").touch()

    def holds(*records: str) -> AgentConfig:
        said = Ring([record.encode() for record in records])
        monkeypatch.setattr(
            module, "KmsgReader", lambda path, boot_id, cursor: KmsgReader(path, boot_id, cursor, said.read)
        )
        return node(tmp_path / "kmsg", "kmsg")

    return holds


XID_74 = "NVRM: Xid (PCI:0000:b9:00): 74, pid=1, name=python, something is wrong"


def test_the_kernels_ring_is_read_from_its_beginning(ring: Any) -> None:
    assert asked(ring("6,0,10,-;Linux version 6.1", f"3,1,20,-;{XID_74}")) is CONFIRMED
    assert asked(ring("6,0,10,-;Linux version 6.1", f"3,1,20,-;{XID_74}"), code="79") is DENIED


def test_a_ring_that_was_overwritten_denies_nothing(ring: Any) -> None:
    assert asked(ring("6,700,10,-;usb 1-1: new device")) is UNKNOWN


def test_what_user_space_has_written_into_the_ring_confirms_nothing(ring: Any) -> None:
    assert asked(ring("6,0,10,-;Linux version 6.1", f"11,1,20,-;{XID_74}")) is DENIED


@pytest.mark.parametrize(
    ("code", "subcode"), [("link_down", None), ("other_device", "link_down"), ("unplaced", "link_down")]
)
def test_a_lost_link_is_confirmed_whatever_the_agent_knew_of_what_hung_on_it(
    ring: Any, code: str, subcode: str | None
) -> None:
    config = ring("6,0,10,-;Linux version 6.1", "6,1,20,-;pcieport 0000:00:1c.0: pciehp: Slot(0-1): Link Down")

    def confirmed(component: str) -> Confirmation:
        return asked(config, code, family="pcie_aer", subcode=subcode, component=component)

    assert confirmed("0000:00:1c.0") is CONFIRMED
    assert confirmed("0000:00:1d.0") is DENIED


# journald


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def says(*messages: str, script: str = "") -> AgentConfig:
        entries = [json.dumps({"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "MESSAGE": text}) for text in messages]
        (tmp_path / "entries").write_text("".join(f"{entry}\n" for entry in entries))
        tool = tmp_path / "journalctl"
        tool.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n{script or f"cat {tmp_path}/entries"}\n')
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return node(Path(), "journald")

    return says


def test_the_journal_is_asked_for_this_boot(journal: Any, tmp_path: Path) -> None:
    assert asked(journal("Linux version 6.1", XID_74)) is CONFIRMED
    assert "--boot" in (tmp_path / "asked").read_text().split()
    assert "--follow" not in (tmp_path / "asked").read_text()
    assert asked(journal("Linux version 6.1", XID_74), code="79") is DENIED


def test_a_journal_that_fails_or_is_too_long_denies_nothing(journal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(journal(script="exit 1")) is UNKNOWN
    monkeypatch.setattr(module, "LOG_BYTES", 1_000)
    assert asked(journal(*["usb 1-1: new device"] * 100)) is UNKNOWN


# The check that reported it


def check(look: NodeCheckResult, **changes: Any) -> NodeCheck:
    made = NodeCheck("gpu_count", "the GPUs", 60.0, 10.0, always, lambda place, state: look)
    return replace(made, **changes)


def looked(monkeypatch: pytest.MonkeyPatch, log: Path, one: NodeCheck, **changes: Any) -> Confirmation:
    monkeypatch.setattr(module, "named", lambda name, _: one if name == one.name else None)
    fault = {"family": "nvml", "source": "gpu_count", "component": "GPU-1", **changes}
    return asked(node(log), **{"code": "REMAP_FAILED", **fault})


def test_a_check_that_still_sees_the_fault_confirms_it(monkeypatch: pytest.MonkeyPatch, log: Path) -> None:
    assert looked(monkeypatch, log, check(NodeCheckResult((Problem(REMAP),)))) is CONFIRMED


def test_a_check_that_sees_it_no_more_denies_it(monkeypatch: pytest.MonkeyPatch, log: Path) -> None:
    assert looked(monkeypatch, log, check(NodeCheckResult())) is DENIED
    assert looked(monkeypatch, log, check(NodeCheckResult((Problem(REMAP),))), component="GPU-2") is DENIED


@pytest.mark.parametrize(
    "one",
    [
        check(NodeCheckResult(unclear="nvidia-smi does not answer")),
        check(NodeCheckResult(), why_not=lambda _: "no GPU here"),
        check(NodeCheckResult(), stream=lambda place, state: iter(())),
    ],
    ids=["unclear", "absent", "it hears of events"],
)
def test_a_check_that_cannot_tell_denies_nothing(monkeypatch: pytest.MonkeyPatch, log: Path, one: NodeCheck) -> None:
    assert looked(monkeypatch, log, one) is UNKNOWN


def test_a_check_that_the_node_does_not_have_denies_nothing(monkeypatch: pytest.MonkeyPatch, log: Path) -> None:
    assert looked(monkeypatch, log, check(NodeCheckResult()), source="another") is UNKNOWN


def test_what_a_check_reported_may_stand_in_the_kernel_log_under_another_name_of_the_gpu(
    monkeypatch: pytest.MonkeyPatch, log: Path
) -> None:
    assert looked(monkeypatch, log, check(NodeCheckResult()), family="xid", code="74", component="GPU-1") is CONFIRMED
