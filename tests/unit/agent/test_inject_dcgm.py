"""`nodeheal-agent run inject-dcgm`, run as the SSM document runs it, with the sandbox's dcgmi and with worse ones."""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from nodeheal.agent.checks.check import CheckContext
from nodeheal.agent.checks.dcgm import judge_health
from nodeheal.agent.checks.dcgm_drills import HELD_SECONDS, is_drilled, note
from nodeheal.agent.checks.tools import run_tool
from nodeheal.agent.runtime.config import load
from nodeheal.contract.names import DRILL_MARK
from nodeheal.parsers.dcgm_dmon import read_rows
from sandbox.toml import toml
from tests.support.agent_documents import script_of
from tests.support.agent_fakes import NodeFolder

REPOSITORY = Path(__file__).parents[3]
XID = {"Gpu": "1", "Field": "230", "Value": "79"}
Ended = subprocess.CompletedProcess[str]


@dataclass
class DcgmNode:
    """A node of two GPUs with the sandbox's dcgmi."""

    node: NodeFolder
    tools: Path

    def takes(self, *, drills: bool = True, dcgm: str = "pass") -> None:
        """Whether it takes drills, and how its DCGM is."""
        log = {"kind": "file", "path": str(self.node.directory / "kernel.log")}
        changes = {"drills": drills, "accelerators": 2, "kernel_log": [log]}
        self.node.config_file.write_text(toml(self.node.config() | changes))
        (self.tools / "agent.toml").write_text(toml({"accelerators": 2}))
        (self.tools / "boot_id").write_text("boot-1")
        (self.tools / "faults.json").write_text(json.dumps({"dcgm": dcgm, "diag_seconds": 0}))

    def answers(self, script: str) -> None:
        """Another dcgmi."""
        (self.tools / "dcgmi").write_text(f"#!/bin/sh\n{script}\n")

    def inject(self, boot: str = "boot-1", expires_in: float = 60, **what: str) -> Ended:
        """As the SSM document does."""
        values = {**XID, **what, "BootId": boot, "ExpiresAt": str(int(time.time() + expires_in))}
        return self.run("sh", "-c", script_of("inject-dcgm", values))

    def run(self, *command: str) -> Ended:
        """A command with the node's tools on its path."""
        return subprocess.run(
            command,
            env={
                **self.node.environment(),
                "PATH": f"{self.tools}:{os.defpath}",
                "NODEHEAL_SANDBOX_NODE_DIR": str(self.tools),
            },
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )


@pytest.fixture
def dcgm_node(node: NodeFolder) -> DcgmNode:
    tools = node.directory / "tools"
    tools.mkdir()
    it = DcgmNode(node, tools)
    text = (REPOSITORY / "sandbox" / "tools" / "dcgmi").read_text()
    (tools / "dcgmi").write_text(text.replace("/usr/bin/env python3", sys.executable))
    (tools / "nodeheal-agent").write_text(f'#!/bin/sh\nexec {sys.executable} -m nodeheal.agent.main "$@"\n')
    for name in ("dcgmi", "nodeheal-agent"):
        (tools / name).chmod(0o755)
    it.takes()
    return it


def told(ended: Ended) -> Any:
    return json.loads(ended.stdout)


def shown(dcgm_node: DcgmNode, *fields: int) -> dict[int, dict[int, int]]:
    """What dmon shows of each GPU."""
    ended = dcgm_node.run("dcgmi", "dmon", "-e", ",".join(map(str, fields)), "-c", "1")
    return dict(read_rows(ended.stdout, fields))


def test_the_value_is_dcgms_and_no_other_gpus(dcgm_node: DcgmNode) -> None:
    ended = dcgm_node.inject()

    assert ended.returncode == 0, ended.stderr
    assert told(ended) == {"injected": "230=79", "gpu": 1}
    assert shown(dcgm_node, 230, 310) == {0: {230: 0, 310: 0}, 1: {230: 79, 310: 0}}


def test_the_value_is_gone_with_the_boot(dcgm_node: DcgmNode) -> None:
    dcgm_node.inject()

    (dcgm_node.tools / "boot_id").write_text("boot-2")

    assert shown(dcgm_node, 230)[1] == {230: 0}


def test_where_no_gpu_is_named_dcgmi_takes_the_second_so_the_agent_names_it(dcgm_node: DcgmNode) -> None:
    dcgm_node.inject(Gpu="0")

    assert shown(dcgm_node, 230)[0] == {230: 79}


@pytest.mark.parametrize(
    ("drills", "boot", "expires_in", "value", "why"),
    [
        (False, "boot-1", 60, "79", "set `drills = true` in its configuration"),
        (True, "boot-2", 60, "79", "meant for boot boot-2"),
        (True, "boot-1", -1, "79", "expired"),
        (True, "boot-1", 60, "7.9.1", "not a number"),
    ],
)
def test_what_is_unwanted_stale_or_no_number_is_refused_before_dcgm_is_asked(
    dcgm_node: DcgmNode, drills: bool, boot: str, expires_in: float, value: str, why: str
) -> None:
    dcgm_node.takes(drills=drills)

    ended = dcgm_node.inject(boot, expires_in, Value=value)

    assert (ended.returncode, why in told(ended)["refused"]) == (3, True), ended
    assert not (dcgm_node.tools / "dcgm_cache.json").exists()


def test_a_host_engine_that_does_not_run_is_named(dcgm_node: DcgmNode) -> None:
    dcgm_node.takes(dcgm="down")

    ended = dcgm_node.inject()

    assert (ended.returncode, "start nv-hostengine" in told(ended)["refused"]) == (1, True), ended


def test_a_node_without_dcgm_says_so(dcgm_node: DcgmNode) -> None:
    shutil.move(dcgm_node.tools / "dcgmi", dcgm_node.tools / "kept")

    ended = dcgm_node.inject()

    assert (ended.returncode, told(ended)["refused"]) == (1, "DCGM is not on this node: there is no dcgmi")


def test_a_gpu_that_is_not_there_is_dcgms_to_refuse(dcgm_node: DcgmNode) -> None:
    ended = dcgm_node.inject(Gpu="7")

    assert (ended.returncode, "Bad parameter passed to function" in told(ended)["refused"]) == (1, True), ended


def test_a_dcgmi_that_only_ends_well_has_injected_nothing(dcgm_node: DcgmNode) -> None:
    dcgm_node.answers("echo 'usage: dcgmi'; exit 0")

    ended = dcgm_node.inject()

    assert (ended.returncode, "usage: dcgmi" in told(ended)["refused"]) == (1, True), ended


# What DCGM's health then reports, and that it is a drill -------------------------------------------------------------


def seen(dcgm_node: DcgmNode) -> list[tuple[str, str | None, bool]]:
    """The findings of the agent's check: their codes and GPUs, and whether they are marked as drills."""
    health = dcgm_node.run("dcgmi", "health", "-c", "-j").stdout
    config = load(dcgm_node.node.config_file)
    findings = [problem.finding for problem in judge_health(health, CheckContext(config, run_tool)).problems]
    return [(finding.code, finding.component, DRILL_MARK in finding.message) for finding in findings]


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("311", "4", "DCGM_FR_VOLATILE_DBE_DETECTED"),
        ("84", "0", "DCGM_FR_CORRUPT_INFOROM"),
        ("230", "79", "DCGM_FR_FALLEN_OFF_BUS"),
        ("230", "94", "DCGM_FR_CONTAINED_ERROR"),
        ("230", "95", "DCGM_FR_UNCONTAINED_ERROR"),
        ("230", "119", "DCGM_FR_XID_ERROR"),
    ],
)
def test_what_dcgm_reports_of_an_injected_value_carries_the_drills_mark(
    dcgm_node: DcgmNode, field: str, value: str, code: str
) -> None:
    dcgm_node.inject(Field=field, Value=value)

    assert seen(dcgm_node) == [(code, "GPU 1", True)]


@pytest.mark.parametrize(("field", "value"), [("319", "4"), ("311", "0"), ("84", "1"), ("230", "13")])
def test_a_value_that_no_watch_reads_is_reported_by_none(dcgm_node: DcgmNode, field: str, value: str) -> None:
    dcgm_node.inject(Field=field, Value=value)

    assert seen(dcgm_node) == []


def test_only_what_was_injected_is_a_drill(dcgm_node: DcgmNode) -> None:
    dcgm_node.inject()
    config = load(dcgm_node.node.config_file)

    assert is_drilled(config, "GPU 1", "DCGM_FR_FALLEN_OFF_BUS")
    assert not is_drilled(config, "GPU 0", "DCGM_FR_FALLEN_OFF_BUS")
    assert not is_drilled(config, "GPU 1", "DCGM_FR_VOLATILE_DBE_DETECTED")
    assert not is_drilled(replace(config, drills=False), "GPU 1", "DCGM_FR_FALLEN_OFF_BUS")


def test_a_boot_forgets_the_drill(dcgm_node: DcgmNode) -> None:
    dcgm_node.inject()
    config = load(dcgm_node.node.config_file)

    Path(config.boot_id_file).write_text("boot-2")

    assert not is_drilled(config, "GPU 1", "DCGM_FR_FALLEN_OFF_BUS")


def test_a_value_that_the_driver_replaces_is_a_drill_for_ten_minutes_and_an_xid_for_the_boot(
    dcgm_node: DcgmNode,
) -> None:
    config = load(dcgm_node.node.config_file)
    note(config, 0, 311, "4", lambda: 1000.0)
    note(config, 0, 230, "79", lambda: 1000.0)

    def at(seconds: float) -> list[bool]:
        codes = ("DCGM_FR_VOLATILE_DBE_DETECTED", "DCGM_FR_FALLEN_OFF_BUS")
        return [is_drilled(config, "GPU 0", code, lambda: 1000.0 + seconds) for code in codes]

    assert (at(HELD_SECONDS - 1), at(HELD_SECONDS)) == ([True, True], [False, True])


def test_a_value_that_dcgm_has_not_taken_marks_nothing(dcgm_node: DcgmNode) -> None:
    dcgm_node.takes(dcgm="down")

    dcgm_node.inject()

    assert not is_drilled(load(dcgm_node.node.config_file), "GPU 1", "DCGM_FR_FALLEN_OFF_BUS")


def test_a_drill_that_cannot_be_noted_is_not_injected(dcgm_node: DcgmNode) -> None:
    config = load(dcgm_node.node.config_file)
    folder = Path(config.dcgm_drills_file).parent
    folder.rmdir() if folder.exists() else None
    folder.write_text("a file where the folder should be")

    ended = dcgm_node.inject()

    assert (ended.returncode, "cannot be written" in told(ended)["refused"]) == (1, True)
    assert not (dcgm_node.tools / "dcgm_cache.json").exists()


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"boot_id": "boot-1"}', '{"boot_id": "boot-1", "notes": [1]}', "\x00"]
)
def test_a_note_that_nobody_can_read_marks_nothing(dcgm_node: DcgmNode, text: str) -> None:
    config = load(dcgm_node.node.config_file)
    Path(config.dcgm_drills_file).parent.mkdir(exist_ok=True)
    Path(config.dcgm_drills_file).write_text(text)

    assert not is_drilled(config, "GPU 1", "DCGM_FR_FALLEN_OFF_BUS")
