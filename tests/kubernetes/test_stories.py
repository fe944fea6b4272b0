"""Stories on a real Kubernetes in the embedded cloud: an EKS cluster, its nodes in Auto Scaling groups, and jobs that
training-operator runs.

Played in one cloud, each on a pool of its own. Nothing here measures wall time.
"""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from nodeheal.adapters.kubernetes.notes import AUTO_RESUME
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Ending, SchedulerKind
from sandbox.client import Sandbox
from sandbox.demo import deploy_for, story_of, ways_around
from sandbox.kubernetes_story import CLUSTER, KubernetesStory, why_missing
from sandbox.neuron_story import NEURON
from sandbox.report import judge, make_report
from sandbox.script import SUBJECTS, Expected, Script
from sandbox.stories import STORIES, fallen
from sandbox.story import Story
from tests.kubernetes.cluster import marks

pytestmark = [pytest.mark.emulated, pytest.mark.skipif(bool(why_missing()), reason=why_missing())]
RECOVERED = SUBJECTS[Ending.RECOVERED]
Played = tuple[KubernetesStory, dict[str, Any]]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("cloud"), boot_seconds=1.5) as sandbox:
        deploy_for(SchedulerKind.KUBERNETES, sandbox)
        yield sandbox


def play(cloud: Sandbox, name: str, script: Script, steps: int = 120) -> Played:
    """Play it; the judge of the demo's exit code must be content."""
    changes: dict[str, Any] = {"pool": name, "job": name, "scheduler": SchedulerKind.KUBERNETES, "boot_seconds": 1.5}
    story = story_of(cloud, replace(script, steps=steps, step_seconds=0.06, **changes), lambda told, text: None)
    assert isinstance(story, KubernetesStory)
    story.play()
    report = make_report(story)
    assert judge(story, report).wrong == ()
    return story, report


def expects(*mails: str) -> Expected:
    return Expected(Ending.RECOVERED, finishes=True, restarts=True, mails=mails)


@pytest.fixture(scope="module")
def healed(cloud: Sandbox) -> Played:
    return play(cloud, "fallen", fallen())


def test_a_gpu_falls_off_the_bus_and_the_job_goes_on_elsewhere_from_its_checkpoint(healed: Played) -> None:
    story, report = healed

    steps = [step for step, _ in report["incident"]["results"]]
    assert steps == ["ISOLATE", "FREEZE_EVIDENCE", "REBOOT", "DIAGNOSE", "RETURN"]
    assert report["attempts"] == {"REBOOT": 1}
    assert report["step_at_fault"] - 20 <= report["resumed_from_step"] < report["final_step"]
    story.wait(lambda: marks(story.nodes_of_pool()) == [(False, [])] * 3, "no node has a mark of nodeheal's")


def test_the_job_was_restarted_once_and_its_object_says_so(healed: Played) -> None:
    story, report = healed

    notes = json.loads(story.kubectl("get", "pytorchjob", "fallen", "--output=json"))["metadata"]["annotations"]
    own = {key: value for key, value in notes.items() if key.startswith("nodeheal.io/")}
    assert own == {
        "nodeheal.io/restarts": "1",
        "nodeheal.io/restarted-for": f"nodeheal: recovery {report['incident']['id']}",
    }


def test_the_node_was_diagnosed_by_a_job_of_the_agents_pod(healed: Played) -> None:
    story, _ = healed

    jobs = json.loads(story.kubectl("get", "jobs", f"--namespace={names.KUBERNETES_NAMESPACE}", "--output=json"))[
        "items"
    ]
    ran = {job["metadata"]["name"].rpartition("-")[0] for job in jobs if job["status"].get("succeeded")}
    assert {"nodeheal-diag", "nodeheal-evidence"} <= ran


def test_the_demo_says_how_to_look_at_the_cluster_that_it_keeps(cloud: Sandbox, healed: Played) -> None:
    lines = ways_around(cloud, healed[0])

    [export] = [line for line in lines if line.startswith("  export ")]
    shows = next(line for line in lines if "get nodes,pods" in line)
    done = subprocess.run(["bash", "-c", f"{export}\n{shows}"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("node/ip-127-"), done.stderr) == (0, 3, "")


def test_a_node_of_a_managed_group_that_is_replaced_comes_back_under_another_name(cloud: Sandbox) -> None:
    story, report = play(cloud, "grouped", STORIES["replaced-by-group"].script)

    assert ["REPLACE", "DONE"] in report["incident"]["results"]
    story.wait(lambda: len(story.nodes_of_pool()) == 2, "the old Node object is gone")
    assert story.victim not in {node["spec"]["providerID"].rpartition("/")[2] for node in story.nodes_of_pool()}


def test_an_error_of_a_trainium_node_is_shown_where_recovery_is_off_and_the_node_is_replaced_where_it_is_on(
    cloud: Sandbox,
) -> None:
    story, report = play(cloud, "neuron", NEURON, NEURON.steps)

    said = [text for _, kind, text in story.told.lines if kind in ("stage", "person")]
    for name in ("NeuronHasError_SRAM_UNCORRECTABLE_ERROR", "NeuronHasError_DMA_ERROR"):
        watched = f"the metric NeuronHealthCheck {name} 1, which nodeheal-{name} watches"
        assert any(f"shows nodeheal.io/Accelerator {name}, {watched}" in text for text in said)
    assert ["REPLACE", "DONE"] in report["incident"]["results"]
    story.wait(lambda: len(story.nodes_of_pool()) == 2, "the old Node object is gone")


def test_an_uncordon_by_a_person_while_the_node_is_healed_is_not_undone(cloud: Sandbox) -> None:
    def uncordons(story: Story) -> str:
        assert isinstance(story, KubernetesStory)
        if not any("reboot sent to" in text for _, _, text in story.told.lines):
            return ""
        story.kubectl("uncordon", story.name_of(story.victim))
        return "somebody uncordons the node, and leaves nodeheal's taint"

    script = fallen(moves=(uncordons,), expects=expects(RECOVERED))
    story, _ = play(cloud, "uncordoned", script)

    assert [text for _, kind, text in story.told.lines if kind == "person"] == [
        "somebody uncordons the node, and leaves nodeheal's taint"
    ]
    story.wait(lambda: marks(story.nodes_of_pool()) == [(False, [])] * 3, "no node has a mark of nodeheal's")


def test_a_new_node_takes_no_pod_before_it_has_passed_its_diagnostics(cloud: Sandbox, healed: Played) -> None:
    story, _ = healed
    [new], _ = cloud.add_kubernetes(CLUSTER, "fresh", 1, is_unchecked=True)

    taints: list[list[str]] = []

    def serves() -> bool:
        found = [node for node in story.nodes_of("fresh") if node["spec"]["providerID"].endswith(new.node_id)]
        taints.append([taint["key"] for node in found for taint in node["spec"].get("taints", [])])
        return bool(found) and not taints[-1]

    story.wait(serves, "the new node serves")
    node = story.ports.nodes.get(new.node_id)
    assert node is not None
    assert (node.passed_at is not None, ["nodeheal.io/unchecked"] in taints) == (True, True)
    assert any("nodeheal.io/isolated" in keys for keys in taints)


def test_a_gang_whose_pods_end_late_is_resumed_at_the_end_of_the_incident(cloud: Sandbox) -> None:
    def moves_in(story: Story) -> str:
        assert isinstance(story, KubernetesStory)
        story.kubectl("apply", "-f", "-", stdin=json.dumps(_stubborn(story.name_of(story.victim))))
        story.wait(lambda: story.kubectl("get", "pods", *_OF_STUBBORN).count("Running") == 1, "the other job runs")
        return "another job runs on the node, and takes no SIGTERM"

    story, report = play(cloud, "late", fallen(prepares=(moves_in,), expects=expects(RECOVERED)))

    job = json.loads(story.kubectl("get", "job", "stubborn", "--output=json"))
    told = " ".join(entry["text"] for entry in report["incident"]["timeline"])
    assert (job["spec"]["suspend"], job["metadata"]["annotations"]["nodeheal.io/restarts"]) == (False, "1")
    assert ("may still run" in told, "has stopped late, and is started again" in told) == (True, True)


_OF_STUBBORN = ("--selector=batch.kubernetes.io/job-name=stubborn", "--no-headers")


def _stubborn(node: str) -> dict[str, Any]:
    """A job on this node that consents to restarts, and does not end when it is asked to."""
    container = {"name": "main", "image": "none", "command": ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]}
    pod = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "terminationGracePeriodSeconds": 300,
        "restartPolicy": "Never",
        "containers": [container],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "stubborn", "annotations": {AUTO_RESUME: "true"}},
        "spec": {"backoffLimit": 0, "template": {"spec": pod}},
    }
