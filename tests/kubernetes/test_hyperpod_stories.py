"""Stories on HyperPod's nodes of an EKS cluster: the agents speak as their pods, and SageMaker reboots and replaces."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from nodeheal.adapters.kubernetes.nodes import machine_of
from nodeheal.contract.vocabulary import Ending, SchedulerKind
from sandbox.client import Sandbox
from sandbox.demo import deploy_for, story_of
from sandbox.kubernetes_story import KubernetesStory, why_missing
from sandbox.report import judge, make_report
from sandbox.script import SUBJECTS, Expected, Script
from sandbox.stories import STORIES, fallen
from tests.kubernetes.cluster import marks

pytestmark = [pytest.mark.emulated, pytest.mark.skipif(bool(why_missing()), reason=why_missing())]
RECOVERED, HUMAN = SUBJECTS[Ending.RECOVERED], SUBJECTS[Ending.HANDED_TO_A_HUMAN]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("cloud"), boot_seconds=1.5) as sandbox:
        deploy_for(SchedulerKind.KUBERNETES, sandbox, "hyperpod")
        yield sandbox


def play(cloud: Sandbox, name: str, script: Script) -> tuple[KubernetesStory, dict[str, Any]]:
    """Play it; the judge of the demo's exit code must be content."""
    changes: dict[str, Any] = {"pool": name, "job": name, "scheduler": SchedulerKind.KUBERNETES, "boot_seconds": 1.5}
    played = replace(script, provider="hyperpod", steps=120, step_seconds=0.06, **changes)
    story = story_of(cloud, played, lambda told, text: None)
    assert isinstance(story, KubernetesStory)
    story.play()
    report = make_report(story)
    assert judge(story, report).wrong == ()
    return story, report


def test_a_reboot_by_hyperpod_is_proven_by_diagnostics_on_the_node(cloud: Sandbox) -> None:
    expected = Expected(Ending.RECOVERED, finishes=True, restarts=True, mails=(RECOVERED,))
    _, report = play(cloud, "rebooted", fallen(expects=expected))

    assert [step for step, _ in report["incident"]["results"]] == [
        "ISOLATE",
        "FREEZE_EVIDENCE",
        "REBOOT",
        "DIAGNOSE",
        "RETURN",
    ]


def test_a_broken_link_has_hyperpod_replace_the_node_whose_successor_speaks_as_its_own_pod(cloud: Sandbox) -> None:
    script = replace(STORIES["replaced-by-group"].script, nodes=3)
    story, report = play(cloud, "replaced", script)

    assert ["REPLACE", "DONE"] in report["incident"]["results"]
    assert any("given to HyperPod to replace, with all its volumes" in text for _, _, text in story.told.lines)
    story.wait(lambda: len(story.nodes_of_pool()) == 3, "the new node has joined")
    assert story.victim not in {machine_of(node) for node in story.nodes_of_pool()}


def test_where_hyperpod_recovers_by_itself_nodeheal_stands_back_and_tells(cloud: Sandbox) -> None:
    cloud.behave(hyperpod_recovery="Automatic")
    expected = Expected(Ending.HANDED_TO_A_HUMAN, finishes=True, restarts=False, mails=(HUMAN,))
    story, report = play(cloud, "automatic", fallen(kills=False, expects=expected))
    cloud.behave(hyperpod_recovery="")

    assert marks(story.nodes_of_pool()) == [(False, [])] * 3
    assert "NodeRecovery" in report["incident"]["summary"]
    assert not any("BatchRe" in text for _, _, text in story.told.lines)
