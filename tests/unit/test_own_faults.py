"""What becomes of a fault that a check of the operator's own finds: a human, unless the policy has a ladder for it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from nodeheal.agent.checks.own import parse_own
from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.results import Isolated
from nodeheal.contract.vocabulary import Action, Confirmation, Ending, Escalation, Family, Outcome, Step, Verdict
from nodeheal.domain.faults.diagnosis import faults_of
from nodeheal.domain.policy.policy import RecoveryPolicy, parse_policy
from nodeheal.domain.policy.policy_lint import lint_policy
from nodeheal.domain.recovery.confirmation import accusation_of
from tests.support.builders import ACT, xid
from tests.support.recovery_story import Story

AGENT_PAGE = Path(__file__).parents[2] / "docs" / "agent.md"


def own(**changes: Any) -> HealthEvent:
    """A fault as the agent reports it of a check called `mount`."""
    said = {"family": Family.own, "code": "mount", "subcode": "stale", "source": "own/mount", "component": "/data"}
    return xid(79, **{**said, "evidence": "it does not answer", **changes})


def with_ladder(*ladder: str, fault: str = "own/mount/stale") -> RecoveryPolicy:
    rule = {"fault": fault, "ladder": ladder, "why": "our mounts come back after a reboot"}
    return RecoveryPolicy.model_validate({**ACT.model_dump(mode="json"), "overrides": [rule]})


@pytest.mark.parametrize("verdict", [Verdict.DEGRADED, Verdict.FAILED])
def test_a_human_is_told_and_the_node_is_not_touched(verdict: Verdict) -> None:
    decision = Story(own(verdict=verdict)).next()

    assert (decision.step, decision.ending) == (Step.ESCALATE, Ending.HANDED_TO_A_HUMAN)
    assert decision.escalation is Escalation.UNKNOWN_FAULT
    assert "A check of your own reports it, and the policy says nothing about it" in decision.reason


def test_that_it_is_over_asks_for_nothing() -> None:
    assert faults_of([own(verdict=Verdict.OK)], ACT, "demo") == []


@pytest.mark.parametrize("fault", ["own/mount/stale", "own/mount", "own/*"])
def test_the_policy_gives_a_ladder_to_a_code_a_check_or_all(fault: str) -> None:
    decision = Story(own(), policy=with_ladder("REBOOT", "REPLACE", fault=fault)).isolated().next()

    assert decision.step is Step.REBOOT
    assert "our mounts come back after a reboot" in decision.reason


@pytest.mark.parametrize("fault", ["own/mount/slow", "own/fans", "host/*"])
def test_a_ladder_of_another_fault_is_none_of_this_one(fault: str) -> None:
    assert Story(own(), policy=with_ladder("REBOOT", fault=fault)).next().step is Step.ESCALATE


def test_a_check_with_the_name_of_a_fault_of_the_catalog_does_not_get_its_ladder() -> None:
    assert Story(own(code="79", subcode=None)).next().step is Step.ESCALATE


def test_before_a_replacement_the_node_is_asked_by_the_check_that_reported_it() -> None:
    story = Story(own(), policy=with_ladder("REPLACE")).then(Outcome.DONE, facts=Isolated(is_drained=True))
    asked = story.next()

    assert asked.step is Step.FREEZE_EVIDENCE
    assert asked.accused is not None
    assert (asked.accused.source, asked.accused.about) == ("own/mount", "own/mount/stale on /data")
    assert asked.accused == accusation_of(faults_of([own()], with_ladder("REPLACE"), "demo")[0])


@pytest.mark.parametrize(
    ("answer", "step", "escalation"),
    [
        (Confirmation.CONFIRMED, Step.REPLACE, None),
        (Confirmation.DENIED, Step.DIAGNOSE, None),
        (Confirmation.UNKNOWN, Step.ESCALATE, Escalation.NOT_CONFIRMED),
    ],
)
def test_only_a_check_that_still_finds_it_lets_the_replacement_go_on(
    answer: Confirmation, step: Step, escalation: Escalation | None
) -> None:
    story = Story(own(), policy=with_ladder("REPLACE")).then(Outcome.DONE, facts=Isolated(is_drained=True))

    decision = story.answers(answer).next()

    assert (decision.step, decision.escalation) == (step, escalation)


def test_nobody_doubts_a_policy_that_names_a_fault_which_no_catalog_can_know() -> None:
    assert [one for one in lint_policy(with_ladder("REBOOT")) if "own/" in one] == []
    for fault in ("own/mount", "own/*"):
        assert [one for one in lint_policy(with_ladder("REBOOT", fault=fault)) if "own/" in one] == []


@pytest.mark.parametrize("fault", ["own/Mount", "own/mount/stale/data", "own/*/stale", "own/mount.sh"])
def test_a_policy_that_names_what_no_check_of_ones_own_can_report_is_doubted(fault: str) -> None:
    (doubt,) = (one for one in lint_policy(with_ladder("REBOOT", fault=fault)) if "own/" in one)

    assert doubt.startswith(f"overrides.0.fault: no check can report {fault}:")


# The page


def examples(language: str) -> list[str]:
    """What the page shows under its heading."""
    page = AGENT_PAGE.read_text().partition("\n## Checks of your own\n")[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def test_the_answer_that_the_page_shows_is_one() -> None:
    assert parse_own(examples("json")[0].encode()).verdict is Verdict.DEGRADED


def test_the_policy_that_the_page_shows_is_one() -> None:
    policy = parse_policy(examples("json")[1])

    ladders = {rule.fault: rule.ladder for rule in policy.overrides}
    assert ladders["own/file_handles/none_left"] == (Action.REBOOT, Action.REPLACE)
    assert set(json.loads(examples("json")[1])) == {"overrides"}
