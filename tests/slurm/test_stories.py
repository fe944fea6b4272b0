"""Stories on a real Slurm in the embedded cloud: the same stack and agents, jobs that are Slurm's own.

Played in one cloud, each on a pool and a Slurm cluster of its own. Nothing here measures wall time.
"""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from nodeheal.contract.vocabulary import Ending, NodeState, SchedulerKind
from nodeheal.services.operators.release_node import release_node
from sandbox import hyperpod, processes
from sandbox.client import Sandbox
from sandbox.demo import main, story_of, ways_around
from sandbox.report import judge, make_report
from sandbox.script import SUBJECTS, Expected, Script
from sandbox.slurm import tasks_on, why_missing
from sandbox.slurm_story import SlurmStory
from sandbox.stories import ECC, STORIES, fallen
from sandbox.story import Story
from tests.support.operators import operator

pytestmark = [pytest.mark.emulated, pytest.mark.skipif(bool(why_missing()), reason=why_missing())]
RECOVERED, HUMAN = SUBJECTS[Ending.RECOVERED], SUBJECTS[Ending.HANDED_TO_A_HUMAN]
ON_SLURM: dict[str, Any] = {
    "scheduler": SchedulerKind.SLURM,
    "boot_seconds": 1.5,
    "step_seconds": 0.06,
}


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("cloud"), boot_seconds=1.5) as sandbox:
        sandbox.deploy("-c", f"nodeheal={json.dumps({'hyperpod_clusters': [hyperpod.arn()]})}")
        yield sandbox


def play(cloud: Sandbox, name: str, script: Script) -> tuple[SlurmStory, dict[str, Any]]:
    """Play it; the judge of the demo's exit code must be content."""
    story = story_of(cloud, replace(script, pool=name, job=name, steps=120, **ON_SLURM), lambda told, text: None)
    assert isinstance(story, SlurmStory)
    story.play()
    report = make_report(story)
    assert judge(story, report).wrong == ()
    return story, report


def email_of(report: dict[str, Any]) -> str:
    """The last one, in one line: it is wrapped for a phone."""
    return " ".join(report["emails"][-1]["body"].split())


def expects(ending: Ending, *mails: str) -> Expected:
    return Expected(ending, finishes=True, restarts=True, mails=mails)


def hangs(story: Story) -> str:
    """A job that a fault does not end: it must not finish either before a busy machine has nodeheal requeue it."""
    for process in tasks_on(story.victim_handle.directory):
        processes.send(process, signal.SIGSTOP)
    return f"the job hangs on {story.victim}"


@pytest.fixture(scope="module")
def healed(cloud: Sandbox) -> tuple[SlurmStory, dict[str, Any]]:
    return play(cloud, "fallen", fallen())


def test_a_gpu_falls_off_the_bus_and_the_job_goes_on_elsewhere_from_its_checkpoint(
    healed: tuple[SlurmStory, dict[str, Any]],
) -> None:
    story, report = healed

    assert [step for step, _ in report["incident"]["results"]] == [
        *("ISOLATE", "FREEZE_EVIDENCE", "REBOOT", "DIAGNOSE"),
        *(["WAIT"] if ["WAIT", "DONE"] in report["incident"]["results"] else []),
        "RETURN",
    ]
    assert report["attempts"] == {"REBOOT": 1}
    assert report["step_at_fault"] - 20 <= report["resumed_from_step"] < report["final_step"]
    assert story.told.training is not None
    (log,) = story.told.training.directory.glob("*.log")
    assert "failed with exit code 134: requeuing job" in log.read_text()
    told = [text for _, _, text in story.told.lines]
    assert any(text.startswith("its batch script has Slurm requeue job ") for text in told)
    # Of a job of two nodes that waits, Slurm 22.05 was seen to say that it has one.
    assert re.search(r"Job: none of nodeheal's; of others: job fallen of [12] nodes? in gpu \(", email_of(report))
    assert story.slurm_states() == ["idle"] * 3  # the healed node is in service again, with no reason left
    assert story.restarts() == 1


def test_an_operator_sees_slurms_jobs_and_nodes_in_nodeheals_lists(
    cloud: Sandbox, healed: tuple[SlurmStory, dict[str, Any]]
) -> None:
    story, _ = healed
    ada, grace = operator(cloud, "ada", "OperatorPolicyArn"), operator(cloud, "grace", "OperatorJobsPolicyArn")
    name = story.name_of(story.victim)
    story.slurm("scontrol", "update", f"NodeName={name}", "State=DRAIN", "Reason=ada looks")

    [job] = json.loads(ada.does("jobs", "list", "fallen", "--json"))
    rows = {row["node"]: row["slurm"] for row in json.loads(ada.does("nodes", "list", "fallen", "--slurm", "--json"))}
    shown = json.loads(ada.does("nodes", "show", story.victim, "--json"))["slurm"]
    story.slurm("scontrol", "update", f"NodeName={name}", "State=RESUME")
    denied = grace.types("jobs", "list", "fallen", "--json")

    assert (job["name"], job["scheduler"], job["cluster"], job["state"]) == (
        "fallen",
        "SLURM",
        "slurm-fallen",
        "COMPLETED",
    )
    assert (job["restarts"], job["exit_code"], job["may_requeue"]) == (1, 0, True)
    assert [(node, seen["reason"]) for node, seen in rows.items() if seen] == [(story.victim, "ada looks")]
    assert (shown["name"], shown["state"], shown["taken_by"]) == (name, "drained", "a person")
    assert rows[story.victim] == shown
    assert (denied.returncode, [row["state"] for row in json.loads(denied.stdout)]) == (6, ["UNKNOWN"])


def test_the_demo_says_how_to_look_at_the_cluster_that_it_keeps(
    cloud: Sandbox, healed: tuple[SlurmStory, dict[str, Any]]
) -> None:
    lines = ways_around(cloud, healed[0])

    [export] = [line for line in lines if line.startswith("  export ")]
    sinfo = next(line for line in lines if "sinfo" in line)
    done = subprocess.run(["bash", "-c", f"{export}\n{sinfo}"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("node"), done.stderr) == (0, 3, "")


def test_the_demo_lists_no_stories_for_slurm_that_it_would_refuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scheduler", "slurm", "--story", "list"]) == 2

    said = capsys.readouterr()
    assert (said.out, "remove --scheduler" in said.err) == ("", True)


def test_a_node_that_does_not_heal_stays_drained_and_its_job_which_hangs_is_requeued(cloud: Sandbox) -> None:
    script = fallen(persists=True, kills=False, prepares=(hangs,), expects=expects(Ending.HANDED_TO_A_HUMAN, HUMAN))

    story, report = play(cloud, "broken", script)

    told = " ".join(entry["text"] for entry in report["incident"]["timeline"])
    assert "was requeued: its scheduler starts it again" in told
    assert any(text.startswith("nodeheal has Slurm requeue job ") for _, _, text in story.told.lines)
    assert story.restarts() == 1
    assert story.slurm_reason(story.victim) == f"nodeheal:{report['incident']['id']}"
    assert sorted(story.slurm_states()) == ["drained", "idle", "idle"]
    # A human has replaced the riser card, and gives the node back.
    release_node(story.victim, "the riser card is new", story.ports)
    story.wait(lambda: story.slurm_states() == ["idle"] * 3, "the node is in service again")
    assert story.ports.nodes.get(story.victim).state is NodeState.HEALTHY  # type: ignore[union-attr]


def test_a_node_that_an_operator_has_replaced_while_it_reboots_stays_theirs(cloud: Sandbox) -> None:
    def replaces(story: Story) -> str:
        assert isinstance(story, SlurmStory)
        if not any("reboot sent to" in text for _, _, text in story.told.lines):
            return ""
        node = f"NodeName={story.name_of(story.victim)}"
        story.slurm("scontrol", "update", node, "State=FAIL", "Reason=Action:Replace")
        return "an operator of HyperPod has the node replaced"

    script = fallen(moves=(replaces,), expects=expects(Ending.RECOVERED, RECOVERED))

    story, _ = play(cloud, "kept", script)

    assert story.slurm_reason(story.victim) == "Action:Replace"
    assert sorted(story.slurm_states()) == ["fail", "idle", "idle"]


def test_a_node_of_hyperpod_that_no_reboot_heals_is_replaced_under_the_same_name(cloud: Sandbox) -> None:
    boots: list[str] = []

    def breaks_again(story: Story) -> str:
        [victim] = [one for one in story.sandbox.nodes() if one["node_id"] == story.victim]
        boots.append(victim["boot_id"])
        if victim["boot_id"] == boots[0] or not victim["is_up"]:
            return ""
        story.sandbox.inject(story.victim_handle, story.script.fault_line, persists=True, kill_rank=False)
        return "HyperPod has rebooted the node, and its GPU is off the bus again"

    def replaced(story: Story) -> str:
        assert isinstance(story, SlurmStory)
        new = story.successor()
        if new is None:
            return ""
        story.rejoin(new)
        return "HyperPod has made another machine under the same name"

    script = fallen(
        provider="hyperpod",
        persists=True,
        moves=(breaks_again, replaced),
        expects=expects(Ending.RECOVERED, RECOVERED),
    )

    story, report = play(cloud, "hyperpod", script)

    assert ["REPLACE", "DONE"] in report["incident"]["results"]
    assert report["attempts"] == {"REBOOT": 1, "REPLACE": 1}
    assert story.ports.nodes.get(story.victim).state is NodeState.RETIRED  # type: ignore[union-attr]
    assert story.ports.pools.holders("hyperpod") == []
    story.wait(lambda: story.slurm_states() == ["idle"] * 3, "the new machine serves under the old one's name")


def test_a_double_bit_error_is_healed_on_a_node_that_a_person_has_drained_before(
    cloud: Sandbox,
) -> None:
    def drains(story: Story) -> str:
        assert isinstance(story, SlurmStory)
        story.slurm("scontrol", "update", f"NodeName={story.name_of(story.victim)}", "State=DRAIN", "Reason=ada looks")
        return "ada drains the node for herself; its job runs on"

    double_bit = {"fault_line": ECC, "code": "48"}
    script = fallen(**double_bit, prepares=(drains,), expects=expects(Ending.RECOVERED, RECOVERED))

    story, report = play(cloud, "hers", script)

    assert ["RETURN", "DONE"] in report["incident"]["results"]
    assert story.slurm_reason(story.victim) == "ada looks"
    told = " ".join(entry["text"] for entry in report["incident"]["timeline"])
    assert "was out of service before (drain" in told


def test_a_drill_of_dcgms_policies_heals_a_node_of_slurm(cloud: Sandbox) -> None:
    _, report = play(cloud, "policy", replace(STORIES["dcgm-policy"].script, prepares=(hangs,)))

    assert report["attempts"] == {"REBOOT": 1}
    assert [step for step, _ in report["incident"]["results"]][:4] == [
        "ISOLATE",
        "FREEZE_EVIDENCE",
        "REBOOT",
        "DIAGNOSE",
    ]
