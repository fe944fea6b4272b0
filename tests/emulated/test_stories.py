"""The demo's stories as tests: same stacks, same agents, same judge. Nothing here measures wall time."""

from pathlib import Path
from typing import Any

import pytest

from sandbox.client import Sandbox
from sandbox.demo import DEFAULT_FAULT, script_of
from sandbox.report import judge, make_report
from sandbox.story import Script, Story

pytestmark = pytest.mark.emulated

XID_74 = (
    "NVRM: Xid (PCI:0000:b9:00): 74, pid=<unknown>, name=<unknown>, "
    "NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
)
XID_73 = "NVRM: Xid (PCI:0000:b9:00): 73, pid=<unknown>, name=<unknown>, drill"
XID_31 = "NVRM: Xid (PCI:0000:b9:00): 31, pid=4242, name=python, Ch 00000010, MMU Fault"
XID_63 = "NVRM: Xid (PCI:0000:b9:00): 63, pid=<unknown>, name=<unknown>, Row Remapper: recorded"
XID_92 = "NVRM: Xid (PCI:0000:b9:00): 92, pid=<unknown>, name=<unknown>, High single-bit ECC error rate"
XID_999 = "NVRM: Xid (PCI:0000:b9:00): 999, pid=<unknown>, name=<unknown>, never seen before"


def play(directory: Path, script: Script) -> dict[str, Any]:
    """Play the script; its report. The judge that the demo's exit code rests on must have no complaint."""
    with Sandbox(directory, boot_seconds=script.boot_seconds) as sandbox:
        sandbox.deploy()
        story = Story(sandbox, script, lambda told, text: None)
        story.play()
        report = make_report(story)
    assert judge(story, report).wrong == ()
    return report


def _steps(report: dict[str, Any]) -> list[str]:
    """The parent's states that did something, in order."""
    parent = next(run for run in report["executions"] if run["name"] == report["incident"]["id"])
    return [state for state in parent["path"] if state not in ("Open incident", "Decide next step", "Which step?")]


def test_a_gpu_off_the_bus_is_healed_by_a_reboot_and_its_job_resumes(tmp_path: Path) -> None:
    report = play(tmp_path, script_of(DEFAULT_FAULT))

    assert _steps(report) == [
        "Isolate node",
        "Reboot node",
        "Run diagnostics",
        "Return to service",
        "Restart workload",
        "End incident",
        "How did it end?",
        "Recovered",
    ]
    assert report["attempts"] == {"REBOOT": 1}
    assert report["step_at_fault"] - 20 <= report["resumed_from_step"] < report["final_step"]
    assert {run["status"] for run in report["executions"]} == {"SUCCEEDED"}


def test_a_fault_that_persists_ends_with_the_spare_at_work_and_a_human_for_the_broken_node(tmp_path: Path) -> None:
    report = play(tmp_path, script_of(DEFAULT_FAULT, persists=True))

    assert report["attempts"] == {"REBOOT": 1, "REPLACE": 1}
    assert _steps(report)[-1] == "Handed to a human"
    body = " ".join(report["emails"][0]["body"].split())
    assert "the reboot did not help (diagnostics failed: memory)" in body
    assert "nodeheal nodes retire mi-" in body


def test_a_fault_that_persists_without_a_spare_spends_no_replacement(tmp_path: Path) -> None:
    report = play(tmp_path, script_of(DEFAULT_FAULT, persists=True, nodes=2))

    assert report["attempts"] == {"REBOOT": 1}
    assert report["finished"] is False
    assert report["resumed_from_step"] is None


def test_a_broken_link_is_answered_by_a_swap(tmp_path: Path) -> None:
    report = play(tmp_path, script_of(XID_74))

    assert report["attempts"] == {"REPLACE": 1}
    assert "Reboot node" not in _steps(report)


def test_the_drill_code_reboots(tmp_path: Path) -> None:
    assert play(tmp_path, script_of(XID_73))["attempts"] == {"REBOOT": 1}


def test_an_application_fault_restarts_the_job_and_leaves_the_node_alone(tmp_path: Path) -> None:
    report = play(tmp_path, script_of(XID_31))

    assert report["attempts"] == {}
    assert _steps(report) == ["Restart workload", "End incident", "How did it end?", "Recovered"]


@pytest.mark.parametrize(("line", "last"), [(XID_999, "Handed to a human"), (XID_92, "Observed only")])
def test_what_asks_for_nothing_leaves_the_job_alone(tmp_path: Path, line: str, last: str) -> None:
    report = play(tmp_path, script_of(line))

    assert _steps(report)[-1] == last
    assert report["attempts"] == {}
    assert report["isolated_seconds"] is None
    assert report["resumed_from_step"] is None
    assert report["finished"] is True


def test_a_row_remap_lets_the_job_finish_and_then_reboots_the_node(tmp_path: Path) -> None:
    report = play(tmp_path, script_of(XID_63))

    assert _steps(report) == [
        "Wait for news",
        "Isolate node",
        "Reboot node",
        "Run diagnostics",
        "Return to service",
        "End incident",
        "How did it end?",
        "Recovered",
    ]
    assert report["attempts"] == {"REBOOT": 1}
    assert report["finished"] is True
