"""The demo's stories as tests: same stacks, same agents, same judge. Nothing here measures wall time.

Several stories are played in one cloud, one after the other: a deploy and the first start of every function are half of
a story's work. Each has a pool and a job of its own, so what one leaves behind is nothing to the next.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import sandbox
from nodeheal.contract import names
from sandbox.client import Sandbox, free_port
from sandbox.demo import DEFAULT_FAULT, script_of
from sandbox.job_file import EXAMPLES
from sandbox.report import judge, make_report
from sandbox.script import GANG_NODES, Script
from sandbox.stories import STORIES
from sandbox.story import Story
from sandbox.training import Training
from tests.support.recover_node import TRANSITIONS_AT_MOST
from tests.support.sandbox_stories import (
    HEALED,
    PATHS,
    RESULTS,
    SIDE_BY_SIDE,
    XID_74,
    in_its_turn,
    outcomes,
    proves_itself,
)

pytestmark = pytest.mark.emulated

XID_31 = "NVRM: Xid (PCI:0000:b9:00): 31, pid=4242, name=python, Ch 00000010, MMU Fault"
XID_63 = "NVRM: Xid (PCI:0000:b9:00): 63, pid=<unknown>, name=<unknown>, Row Remapper: recorded"
XID_92 = "NVRM: Xid (PCI:0000:b9:00): 92, pid=<unknown>, name=<unknown>, High single-bit ECC error rate"
XID_999 = "NVRM: Xid (PCI:0000:b9:00): 999, pid=<unknown>, name=<unknown>, never seen before"


BOOT_SECONDS = 1.5
POLICY = json.loads((Path(sandbox.__file__).parent / "policy.json").read_text("utf-8"))
# Of those that share a pool of the sandbox's policy, each is in another cloud; who takes EC2's machines away is last.
CLOUDS = (
    (
        "fixed-by-reboot",
        "dcgm-policy",
        "gpu-reset",
        "approval-given",
        "two-faults",
        "replaced-by-group",
        "swap",
        "application",
    ),
    (
        "fixed-by-replacement",
        "approval-refused",
        "tasks-of-others",
        "stale-event",
        "paused",
        "no-capacity",
        "hung-collective",
        "loss-diverged",
    ),
    ("never-returns", "approval-ignored", "fixed-by-stop-start", "two-nodes", "unknown", "no-spare"),
    ("breaker-open", "gpu-reset-refused", "replaced-from-template", "budget-full", "early-warning", "remap"),
)


class Stage:
    """The cloud in which the stories of one group are played, and none before it is asked for."""

    def __init__(self, make_directory: pytest.TempPathFactory) -> None:
        self._make_directory = make_directory
        self._number: int | None = None
        self._cloud: Sandbox | None = None

    def play(self, name: str, script: Script) -> dict[str, Any]:
        """Play the script, quicker than for people; its report. The judge of the demo's exit code must be content."""
        pool = script.pool if script.pool in POLICY["pools"] else name
        steps = script.steps if script.dcgm_value else 120  # that fault is found some seconds later
        if not script.kills_rank:
            steps = max(
                400, script.steps
            )  # on a slow machine, too, the job still runs when it is stopped for the node's repair
        cloud = self._cloud_of(name)
        _forget_emails(cloud)
        story = Story(
            cloud,
            replace(script, pool=pool, job=name, boot_seconds=BOOT_SECONDS, steps=steps, step_seconds=0.06),
            lambda told, text: None,
        )
        story.play()
        report = make_report(story)
        assert judge(story, report).wrong == ()
        return report

    def close(self) -> None:
        """End the cloud, if there is one."""
        if self._cloud is not None:
            self._cloud.close()
            self._cloud.sweep()

    def _cloud_of(self, name: str) -> Sandbox:
        number = _cloud_number(name)
        if self._cloud is None or number != self._number:
            self.close()
            self._number, self._cloud = number, Sandbox(self._make_directory.mktemp("cloud"), boot_seconds=BOOT_SECONDS)
            self._cloud.start()
            self._cloud.deploy()
        return self._cloud


def _forget_emails(cloud: Sandbox) -> None:
    """Start the count of this minute's emails anew: what the stories before have sent is nothing to the next."""
    key = {"pk": {"S": f"emails#{datetime.now(UTC):%Y-%m-%dT%H:%M}"}, "sk": {"S": "emails"}}
    cloud.client("dynamodb").delete_item(TableName=names.TABLE, Key=key)


def _cloud_number(name: str) -> int:
    [number] = [number for number, names_of in enumerate(CLOUDS) if name in names_of]
    return number


def together(*names_of: str) -> list[str]:
    """The stories in turn, those of one cloud after one another: the stage has one cloud at a time."""
    return sorted(names_of, key=lambda name: (_cloud_number(name), CLOUDS[_cloud_number(name)].index(name)))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory)
    yield stage
    stage.close()


def _steps(report: dict[str, Any]) -> list[str]:
    """The parent's states that did something, in order. One that is waited in again after some news stands once."""
    parent = next(run for run in report["executions"] if run["name"] == report["incident"]["id"])
    return _told(parent["path"])


def _told(path: list[str]) -> list[str]:
    left_out = ("Open incident", "Decide next step", "Find checkpoint")
    kept = [state for state in path if state not in left_out]
    told = [state for state, before in zip(kept, ["", *kept], strict=False) if state != before]
    return [state for state, after in zip(told, [*told[1:], ""], strict=False) if not proves_itself(state, after)]


# What they spend, where that is not one reboot.
ATTEMPTS = {"gpu-reset": {"RESET_GPU": 1}, "gpu-reset-refused": {"RESET_GPU": 1, "REBOOT": 1}}


def test_every_named_story_is_played_here() -> None:
    assert set(PATHS) == set(STORIES)


@pytest.mark.parametrize("name", together(*STORIES))
def test_a_named_story_ends_as_it_should_by_the_path_that_it_should(stage: Stage, name: str, tmp_path: Path) -> None:
    report = stage.play(name, STORIES[name].script)

    waits = "Wait for condition" in PATHS[name]
    if PATHS[name]:
        assert [step for step in _steps(report) if waits or step != "Wait for condition"] == PATHS[name]
        assert outcomes(report["incident"]["results"], waits=waits) == RESULTS[name]
    if name == "two-nodes":
        paths = {run["name"]: in_its_turn(_told(run["path"])) for run in report["executions"]}
        each = [(paths[one["id"]], in_its_turn(outcomes(one["results"], waits=True))) for one in report["incidents"]]
        assert sorted(each) == SIDE_BY_SIDE
    if PATHS[name] == HEALED:
        assert report["attempts"] == ATTEMPTS.get(name, {"REBOOT": 1})
        whole = sum(leg["seconds"] + leg["own_seconds"] for leg in report["legs"])
        assert whole == pytest.approx(report["recovered_seconds"], abs=0.02)
        # It was asked for a checkpoint before it was stopped: nothing that it had done is lost but the last moment.
        assert report["step_at_fault"] - 20 <= report["resumed_from_step"] < report["final_step"]
        # The job's own workflow ends with the job, which may be a moment later.
        recovery = [run for run in report["executions"] if run["machine"] != names.JOB_WORKFLOW]
        assert {run["status"] for run in recovery} == {"SUCCEEDED"}
    if name == "fixed-by-stop-start":
        assert report["attempts"] == {"REBOOT": 1, "STOP_START": 1}
    if name == "fixed-by-reboot":
        # Killed in the middle and recovered, the job has come by every loss that it would have come by else. The last
        # bit is the processor's: sums are added up in another order where the numbers lie otherwise in memory.
        assert report["losses"] == pytest.approx(undisturbed(tmp_path, len(report["losses"])), rel=1e-9)
        # What tests/workflows/test_meter.py counts on paper, in the histories of the executions.
        recovery = [run for run in report["executions"] if run["machine"] != names.JOB_WORKFLOW]
        # A node that is proven quicker than the policy trusts waits a second, until the clock ends it: three more. A
        # gang that starts at once ends its launch in the launch's own function, which does not decide: two more. Where
        # a function and an event end a step in one moment, the later one brings no decision along: two more.
        assert sum(run["transitions"] for run in recovery) <= TRANSITIONS_AT_MOST + 3 + 3 * 2
        # Before its second launch a node was asked where the job goes on while the broken one was away.
        asked = [run["machine"] for run in report["executions"] if "Find checkpoint" in run["path"]]
        assert asked == [names.JOB_WORKFLOW]


def undisturbed(directory: Path, steps: int) -> list[float]:
    """The loss after each step of the same gang, where nothing happens to it."""
    gang = {"WORLD_SIZE": str(GANG_NODES), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    asked = {"NODEHEAL_JOB": "undisturbed", "NODEHEAL_RUN": "1", "NODEHEAL_CHECKPOINT_DIR": str(directory)}
    command = [
        sys.executable,
        str(EXAMPLES / "numpy-trainer" / "train.py"),
        f"--directory={directory}",
        f"--steps={steps}",
    ]
    ranks = [
        subprocess.Popen([*command, "--checkpoint-every=40"], env={**os.environ, **gang, **asked, "RANK": str(rank)})
        for rank in range(GANG_NODES)
    ]
    assert [rank.wait(60) for rank in ranks] == [0, 0]
    return Training(directory).read().losses


# From the last story's cloud back to the first one's: each is deployed once more at most.


def test_a_row_remap_lets_the_job_finish_and_then_reboots_the_node(stage: Stage) -> None:
    report = stage.play("remap", script_of(XID_63))

    assert _steps(report) == [
        "Wait for condition",
        "Isolate node",
        "Freeze evidence",
        "Reboot node",
        "Run diagnostics",
        "Return to service",
        "End incident",
        "Recovered",
    ]
    assert report["attempts"] == {"REBOOT": 1}
    assert report["finished"] is True


UNASKED = {"early-warning": (XID_92, "Observed only"), "unknown": (XID_999, "Escalated")}


@pytest.mark.parametrize("name", UNASKED)
def test_what_asks_for_nothing_leaves_the_job_alone(stage: Stage, name: str) -> None:
    line, last = UNASKED[name]

    report = stage.play(name, script_of(line))

    assert _steps(report)[-1] == last
    assert report["attempts"] == {}
    assert report["isolated_seconds"] is None
    assert report["resumed_from_step"] is None
    assert report["finished"] is True


def test_a_fault_that_persists_without_a_spare_spends_no_replacement(stage: Stage) -> None:
    report = stage.play("no-spare", script_of(DEFAULT_FAULT, persists=True, nodes=2))

    assert report["attempts"] == {"REBOOT": 1}
    assert report["finished"] is False
    assert report["resumed_from_step"] is None


def test_a_swap_tells_what_to_do_with_the_broken_node(stage: Stage) -> None:
    body = stage.play("swap", script_of(XID_74))["emails"][0]["body"]

    assert "nodeheal nodes retire mi-" in body


def test_an_application_fault_restarts_the_job_and_leaves_the_node_alone(stage: Stage) -> None:
    report = stage.play("application", script_of(XID_31))

    assert report["attempts"] == {}
    assert _steps(report) == ["Stop gang", "Launch gang", "End incident", "Recovered"]
