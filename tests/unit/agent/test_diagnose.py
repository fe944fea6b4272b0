"""`nodeheal-agent run diag`, run as the SSM document runs it, with a dcgmi that answers what the test wants."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nodeheal.agent.commands.parser import EXIT_USAGE
from nodeheal.agent.transport.spool import Spool
from sandbox.toml import toml
from tests.support.agent_fakes import IDENTITY, FakeEventBridge, NodeFolder, eventually
from tests.support.goldens import dcgm_4

REPOSITORY = Path(__file__).parents[3]


@dataclass
class Diagnostics:
    """One node with a dcgmi."""

    node: NodeFolder
    tools: Path

    def __post_init__(self) -> None:
        self.tools.mkdir()

    def dcgmi(self, script: str) -> None:
        path = self.tools / "dcgmi"
        path.write_text(f'#!/bin/sh\necho "$@" > {self.tools}/arguments\n{script}\n')
        path.chmod(0o755)

    def prints(self, output: str, exit_code: int = 0) -> None:
        (self.tools / "output").write_text(output)
        self.dcgmi(f"cat {self.tools}/output; exit {exit_code}")

    def run(self, boot_id: str = "boot-1", expires_in: float = 60, *more: str) -> "subprocess.CompletedProcess[str]":
        order = ["--level", "2", "--request-id", "inc-1/3", "--boot-id", boot_id]
        order += ["--expires-at", str(int(time.time() + expires_in)), *more]
        return subprocess.run(
            [sys.executable, "-m", "nodeheal.agent.main", "run", "diag", *order],
            env={**self.node.environment(), "PATH": f"{self.tools}:{os.defpath}"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def diagnostics(node: NodeFolder) -> Diagnostics:
    config = node.config() | {"accelerators": 2}
    node.config_file.write_text(toml(config))
    return Diagnostics(node, node.directory / "tools")


def reported(bus: FakeEventBridge) -> list[dict[str, Any]]:
    return bus.details("Diagnostics Finished")


def test_a_verdict_is_printed_and_reported(diagnostics: Diagnostics, bus: FakeEventBridge) -> None:
    diagnostics.prints(dcgm_4(pcie="Fail"), exit_code=226)

    ended = diagnostics.run()

    expected: dict[str, Any] = {
        "verdict": "FAILED",
        "failed_tests": ["pcie"],
        "reason": "failed: pcie",
        "request_id": "inc-1/3",
    }
    expected |= {"undone_tests": [], "measured": {}}
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == expected
    [event] = reported(bus)
    assert {key: event[key] for key in expected if key != "reason"} == {
        k: v for k, v in expected.items() if k != "reason"
    }
    assert (event["boot_id"], (diagnostics.tools / "arguments").read_text()) == ("boot-1", "diag -r 2 -j\n")


def test_a_healthy_node_is_reported_as_healthy(diagnostics: Diagnostics, bus: FakeEventBridge) -> None:
    diagnostics.prints(dcgm_4(pcie="Pass"))

    diagnostics.run()

    assert [event["verdict"] for event in reported(bus)] == ["OK"]


def test_a_node_without_dcgm_is_not_healthy(diagnostics: Diagnostics, bus: FakeEventBridge) -> None:
    ended = diagnostics.run()

    assert ended.returncode == 0
    [event] = reported(bus)
    assert event["verdict"] == "UNKNOWN"
    assert "dcgmi cannot be run" in event["evidence"]


def test_what_dcgm_complains_about_is_in_the_evidence(diagnostics: Diagnostics, bus: FakeEventBridge) -> None:
    diagnostics.dcgmi("echo 'Error: unable to connect to the host engine' >&2; exit 1")

    diagnostics.run()

    [event] = reported(bus)
    assert event["verdict"] == "UNKNOWN"
    assert "unable to connect" in event["evidence"]


def test_what_is_no_character_in_what_dcgm_says_keeps_no_verdict_back(
    diagnostics: Diagnostics, bus: FakeEventBridge
) -> None:
    diagnostics.prints(dcgm_4(pcie="Fail").replace('"pcie"', r'"pcie\udcff"'), exit_code=226)

    ended = diagnostics.run()

    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False)
    assert [event["failed_tests"] for event in reported(bus)] == [["pcie?"]]


def test_a_diagnostic_that_hangs_has_failed_and_is_ended(diagnostics: Diagnostics, bus: FakeEventBridge) -> None:
    diagnostics.dcgmi(f"sleep 300 & echo $! > {diagnostics.tools}/child; wait")

    ended = diagnostics.run("boot-1", 60, "--deadline-seconds", "0.5")

    assert json.loads(ended.stdout)["failed_tests"] == ["timeout"]
    assert [(event["verdict"], event["failed_tests"]) for event in reported(bus)] == [("FAILED", ["timeout"])]
    child = int((diagnostics.tools / "child").read_text())
    eventually(lambda: not _is_running(child))


def test_a_diagnostic_ends_with_an_order_that_is_killed(diagnostics: Diagnostics) -> None:
    """SSM ends a command that is cancelled, or whose time is over, by SIGKILL to its process group."""
    diagnostics.dcgmi(f"echo $$ > {diagnostics.tools}/pid; exec sleep 300")
    order = ["--level", "2", "--request-id", "inc-1/3", "--boot-id", "boot-1", "--expires-at", "9999999999"]
    running = subprocess.Popen(
        [sys.executable, "-m", "nodeheal.agent.main", "run", "diag", *order],
        env={**diagnostics.node.environment(), "PATH": f"{diagnostics.tools}:{os.defpath}"},
        process_group=0,
    )
    pid = diagnostics.tools / "pid"
    eventually(lambda: pid.exists() and pid.read_text().endswith("\n"))
    tool = int(pid.read_text())
    assert _is_running(tool)

    os.killpg(running.pid, signal.SIGKILL)
    running.wait()

    eventually(lambda: not _is_running(tool))


@pytest.mark.parametrize("seconds", ["-1", "0", "nan", "inf", "soon"])
def test_no_time_at_all_is_no_deadline(diagnostics: Diagnostics, bus: FakeEventBridge, seconds: str) -> None:
    ended = diagnostics.run("boot-1", 60, "--deadline-seconds", seconds)

    assert (ended.returncode, reported(bus)) == (EXIT_USAGE, [])
    assert f"--deadline-seconds: '{seconds}': give a number, 0.1 to 86400" in ended.stderr


def test_every_check_that_is_asked_for_must_pass_and_has_its_line(
    diagnostics: Diagnostics, bus: FakeEventBridge
) -> None:
    diagnostics.prints(dcgm_4(pcie="Pass"))

    diagnostics.run("boot-1", 60, "--checks", "dcgm,efa")

    [event] = reported(bus)
    assert [(one["check"], one["verdict"]) for one in event["checks"]] == [("dcgm", "OK"), ("efa", "UNKNOWN")]
    assert event["verdict"] == "UNKNOWN"


def test_what_failed_before_is_named_first(diagnostics: Diagnostics, bus: FakeEventBridge) -> None:
    diagnostics.prints(dcgm_4(pcie="Fail", memory="Fail"))

    diagnostics.run("boot-1", 60, "--first", "pcie")

    assert [event["failed_tests"] for event in reported(bus)] == [["pcie", "memory"]]


def test_an_unknown_check_is_refused_by_name(diagnostics: Diagnostics, bus: FakeEventBridge) -> None:
    ended = diagnostics.run("boot-1", 60, "--checks", "dcgm,tarot")

    assert ended.returncode == 64
    assert "tarot" in ended.stderr


@pytest.mark.parametrize(("boot_id", "expires_in"), [("another-boot", 60), ("boot-1", -1)])
def test_a_stale_order_is_refused_and_not_answered(
    diagnostics: Diagnostics, bus: FakeEventBridge, boot_id: str, expires_in: float
) -> None:
    diagnostics.prints(dcgm_4(pcie="Pass"))

    ended = diagnostics.run(boot_id, expires_in)

    assert ended.returncode == 3
    assert "diagnostics refused" in ended.stderr
    assert reported(bus) == []
    assert not (diagnostics.tools / "arguments").exists()


def test_a_result_that_cannot_be_delivered_waits_for_the_agent(diagnostics: Diagnostics, bus: FakeEventBridge) -> None:
    diagnostics.prints(dcgm_4(pcie="Pass"))
    bus.stop()

    ended = diagnostics.run()

    assert ended.returncode == 0
    spool = Spool(diagnostics.node.state_dir, node_id=IDENTITY.node_id)
    assert [entry.detail_type for entry in spool.oldest(10)] == ["Diagnostics Finished"]


def test_the_same_request_is_answered_under_the_same_id(diagnostics: Diagnostics, bus: FakeEventBridge) -> None:
    diagnostics.prints(dcgm_4(pcie="Pass"))

    diagnostics.run()
    diagnostics.run()

    first, second = reported(bus)
    assert first["event_id"] == second["event_id"]


def test_the_ssm_document_runs_the_agent(diagnostics: Diagnostics, bus: FakeEventBridge) -> None:
    diagnostics.prints(dcgm_4(pcie="Pass"))
    agent = diagnostics.tools / "nodeheal-agent"
    agent.write_text(f'#!/bin/sh\nexec {sys.executable} -m nodeheal.agent.main "$@"\n')
    agent.chmod(0o755)
    document = json.loads((REPOSITORY / "packaging" / "ssm" / "run-diagnostics.json").read_text())
    script = "\n".join(document["mainSteps"][0]["inputs"]["runCommand"])
    values = {"Level": "2", "RequestId": "inc-1/3", "BootId": "boot-1", "ExpiresAt": str(int(time.time()) + 60)}
    values |= {"Checks": "dcgm", "First": "memory,pcie"}
    for name, value in values.items():
        script = script.replace("{{ " + name + " }}", value)

    ended = subprocess.run(
        ["sh", "-c", script],
        env={**diagnostics.node.environment(), "PATH": f"{diagnostics.tools}:{os.defpath}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert [event["request_id"] for event in reported(bus)] == ["inc-1/3"]
    assert sorted(document["parameters"]) == sorted(values)


def _is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
