"""HyperPod's drills on an EKS cluster: the agents speak as their pods, and SageMaker reboots and replaces.

Played in one cloud, each on a pool of its own. Nothing here measures wall time.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from nodeheal.adapters.kubernetes.nodes import machine_of
from nodeheal.contract.agent_pod import AgentPod
from nodeheal.contract.names import HEARTBEATS_TABLE
from nodeheal.contract.vocabulary import SchedulerKind
from sandbox.client import Sandbox
from sandbox.demo import deploy_for, story_of
from sandbox.hyperpod_story import HYPERPOD
from sandbox.kubernetes_story import KubernetesStory, why_missing
from sandbox.report import judge, make_report
from tests.kubernetes.cluster import marks

pytestmark = [pytest.mark.emulated, pytest.mark.skipif(bool(why_missing()), reason=why_missing())]
Played = tuple[KubernetesStory, dict[str, Any]]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("cloud"), boot_seconds=1.5) as sandbox:
        deploy_for(SchedulerKind.KUBERNETES, sandbox, "hyperpod")
        yield sandbox


@pytest.fixture(scope="module")
def played(cloud: Sandbox) -> dict[str, Played]:
    """Each drill of the demo's story, by its pool; the judge of the demo's exit code must be content."""
    done: dict[str, Played] = {}
    for script in HYPERPOD:
        changed = replace(script, scheduler=SchedulerKind.KUBERNETES, boot_seconds=1.5, step_seconds=0.06)
        story = story_of(cloud, changed, lambda told, text: None)
        assert isinstance(story, KubernetesStory)
        story.play()
        report = make_report(story)
        assert judge(story, report).wrong == ()
        done[script.pool] = (story, report)
    return done


@pytest.mark.parametrize(
    ("pool", "steps"),
    [
        ("replaced", ["ISOLATE", "FREEZE_EVIDENCE", "REPLACE"]),
        ("rebooted", ["ISOLATE", "FREEZE_EVIDENCE", "REBOOT", "DIAGNOSE", "RETURN"]),
        ("ordered", ["ISOLATE", "FREEZE_EVIDENCE", "REBOOT", "DIAGNOSE", "RETURN"]),
        ("automatic", ["ISOLATE", "WAIT"]),
    ],
)
def test_a_drill_of_hyperpods_ends_as_it_should(played: dict[str, Played], pool: str, steps: list[str]) -> None:
    story, report = played[pool]

    assert [step for step, _ in report["incident"]["results"]] == steps
    story.wait(lambda: marks(story.nodes_of_pool()) == [(False, [])] * 3, "no node has a mark of nodeheal's")


def test_a_node_that_hyperpod_has_replaced_is_gone_and_its_successor_speaks_as_its_own_pod(
    cloud: Sandbox, played: dict[str, Played]
) -> None:
    story, _ = played["replaced"]
    [new] = {machine_of(node) for node in story.nodes_of_pool()} - {handle.node_id for handle in story._handles}

    story.wait(lambda: story.ports.nodes.get(new) is not None, "the new node has spoken")
    items = cloud.client("dynamodb").scan(TableName=HEARTBEATS_TABLE)["Items"]
    [placed] = [item for item in items if item["who"]["S"] == f"agent-pod:{new}"]
    assert story.victim not in {machine_of(node) for node in story.nodes_of_pool()}
    assert AgentPod.of_signer(placed["pod"]["S"]) is not None
    assert not [item for item in items if item["who"]["S"].startswith("AROA")]  # nobody speaks as a machine


def test_who_may_patch_nodes_and_is_in_no_group_of_ours_is_refused(played: dict[str, Played]) -> None:
    story, _ = played["ordered"]

    [refused] = [text for _, _, text in story.told.lines if text.startswith("grace, ")]
    assert "forbidden" in refused
    assert "only a group of people orders by node-health-status" in refused


def test_where_hyperpod_is_in_charge_it_is_asked_for_nothing(played: dict[str, Played]) -> None:
    story, report = played["automatic"]

    assert "repaired without nodeheal" in report["incident"]["summary"]
    assert any("NodeRecovery" in entry["text"] for entry in report["incident"]["timeline"])
    assert not any("BatchRe" in text for _, _, text in story.told.lines)
