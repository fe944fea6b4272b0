"""Stories on HyperPod's nodes of an EKS cluster: the agents speak as their pods, and SageMaker reboots and replaces."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from nodeheal.contract.vocabulary import Ending, SchedulerKind
from sandbox.client import Sandbox
from sandbox.demo import deploy_for, story_of
from sandbox.kubernetes_story import KubernetesStory, why_missing
from sandbox.report import judge, make_report
from sandbox.script import SUBJECTS, Expected, Script
from sandbox.stories import fallen

pytestmark = [pytest.mark.emulated, pytest.mark.skipif(bool(why_missing()), reason=why_missing())]
RECOVERED = SUBJECTS[Ending.RECOVERED]


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
