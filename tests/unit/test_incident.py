"""An incident's record: which boot it is about, and whose request opened it."""

from typing import Any

import pytest

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import OPERATOR_REQUEST
from nodeheal.contract.results import Isolated, StepResult
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Action, Family, Outcome, Step, Verdict
from nodeheal.domain.recovery.incident import History, Turn, is_boot_independent
from tests.support.builders import NOW, xid
from tests.support.incident_steps import A
from tests.support.observations import OTHER, later_fault, new_node
from tests.support.recovery_story import Story


def request(action: Action) -> HealthEvent:
    return xid(79, family=Family.host, code=OPERATOR_REQUEST, subcode=action.value, source="operator")


@pytest.mark.parametrize(
    ("event", "is_independent"),
    [(new_node(), True), (request(Action.REPLACE), True), (request(Action.REBOOT), False), (xid(79), False)],
)
def test_what_holds_for_later_boots_too(event: HealthEvent, is_independent: bool) -> None:
    assert is_boot_independent(event) is is_independent


def test_an_incident_that_an_operator_has_opened_is_not_one_of_a_new_node() -> None:
    assert not Story(request(Action.REPLACE)).history.incident.is_of_new_node
    assert not Story(xid(79, source="aws.health")).history.incident.is_of_new_node
    assert Story(new_node()).history.incident.is_of_new_node


def rebased(*events: HealthEvent, story: Story | None = None) -> History:
    """The history as of its newest boot, after these reports."""
    story = story or Story(xid(79))
    for event in events:
        story.reports(event)
    return story.history.rebased_on_latest_boot()


@pytest.mark.parametrize(
    "event",
    [
        later_fault(boot_id="boot-2", node_id=OTHER),
        later_fault(boot_id="boot-2", verdict=Verdict.OK),
        later_fault(boot_id="boot-1"),
        later_fault(-60, boot_id="boot-0"),
    ],
    ids=["of another node", "good news", "of the same boot", "of a boot before"],
)
def test_an_incident_stays_with_its_boot(event: HealthEvent) -> None:
    assert rebased(event).incident.root == xid(79)


def test_an_incident_goes_on_with_the_first_fault_of_the_newest_boot() -> None:
    first = later_fault(120, boot_id="boot-3")

    assert rebased(later_fault(60, boot_id="boot-2"), first, later_fault(180, boot_id="boot-3")).incident.root == first


@pytest.mark.parametrize(("outcome", "is_over"), [(Outcome.DONE, True), (Outcome.REFUSED, False)])
def test_what_a_node_reports_after_its_isolation_is_about_the_repair(outcome: Outcome, is_over: bool) -> None:
    story = Story(xid(79)).then(outcome, facts=Isolated(is_drained=True) if is_over else None)
    assert story.history.turns[0].decision.events_seen == 1

    root = rebased(later_fault(boot_id="boot-2"), story=story).incident.root

    assert (root == xid(79)) is is_over


def test_only_a_refusal_is_one() -> None:
    decision = Decision(step=Step.REBOOT, reason="so", node_id=A)
    known: dict[str, Any] = {"step": Step.REBOOT, "node_id": A, "reason": "so", "finished_at": NOW}

    assert Turn(decision, StepResult(outcome=Outcome.REFUSED, **known)).is_refused
    assert not Turn(decision, StepResult(outcome=Outcome.DONE, **known)).is_refused
