"""Which effects follow from a decision, and in which order."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.names import NEW_NODE
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Ending, IncidentState, NodeState, Outcome, Step
from nodeheal.domain.faults.correlation import CommonCause
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.jobs.job import Run
from nodeheal.domain.recovery.effects import (
    EndingEffect,
    NotifyOwnerOfWait,
    NotifyTaskOwners,
    RecordEnding,
    RecordTurn,
    ReleaseNode,
    TripBreaker,
    TurnEffect,
    effects_of_ending,
    effects_of_turn,
)
from nodeheal.domain.recovery.situation import Situation
from nodeheal.domain.recovery.timeline import Payload, TaskStarted, TaskStopped, TaskToStop, TimelineEntry
from tests.support.builders import NOW, node, xid
from tests.support.recovery_story import SPARE, Story

INCIDENT_NODE = xid(79).node_id
OWNED = UnmanagedTask("arn:task/1", "eval:3", owner_email="ada@example.com")


def names_of(effects: Sequence[EndingEffect | TurnEffect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def situation_of(story: Story, **changes: Any) -> Situation:
    incident_id = story.history.incident.incident_id
    return Situation(story.history, story.policy, node=node(INCIDENT_NODE, open_incident=incident_id, **changes))


def ending(how: Ending) -> Decision:
    return Decision(step=Step.CLOSE, reason="it is over", node_id=INCIDENT_NODE, ending=how)


def turn_of(story: Story, **given: Any) -> list[TurnEffect]:
    known: dict[str, Any] = {"turn": len(story.history.turns), "result": None, "cause": None, **given}
    return effects_of_turn(situation_of(story), story.next(), now=NOW, **known)


def test_a_first_decision_is_only_recorded() -> None:
    [recorded] = turn_of(Story(xid(79)))

    assert isinstance(recorded, RecordTurn)
    assert (recorded.incident.turn, recorded.incident.step, recorded.incident.state) == (
        1,
        Step.ISOLATE,
        IncidentState.OPEN,
    )
    assert [entry.turn for entry in recorded.entries] == [0]


def test_what_a_crash_must_not_lose_comes_before_the_decision_is_recorded() -> None:
    story = Story(xid(79)).amid(is_job_broken=True).isolated()
    result = story.history.turns[-1].result
    cause = CommonCause("6 nodes fail together", "breaker/demo")

    effects = turn_of(story, result=result, cause=cause)

    assert names_of(effects) == [
        "NotifyOwnerOfStep",
        "NotifyTaskOwners",
        "TripBreaker",
        "NotifyOwnerOfWait",
        "RecordTurn",
        "PageWait",
    ]
    assert TripBreaker(cause.text) in effects
    assert NotifyOwnerOfWait(NOW + timedelta(seconds=story.next().deadline_seconds)) in effects
    [recorded] = [effect for effect in effects if isinstance(effect, RecordTurn)]
    assert [type(entry.payload).__name__ for entry in recorded.entries] == ["StepResult", "Decision"]
    assert [entry.turn for entry in recorded.entries] == [0, 1]


@pytest.mark.parametrize("by_us", [True, False])
def test_only_owners_of_tasks_that_run_again_are_notified_of_the_isolation(by_us: bool) -> None:
    story = Story(xid(79)).isolated()
    payloads: list[Payload] = [TaskToStop(OWNED), TaskStopped(OWNED.short_id, by_us)]
    payloads += [TaskStarted(OWNED.short_id, "2")] if by_us else []
    timeline = tuple(TimelineEntry(NOW, str(number), "so", payload) for number, payload in enumerate(payloads))
    story.history = replace(story.history, timeline=timeline)

    effects = turn_of(story, result=story.history.turns[-1].result)

    assert NotifyTaskOwners((OWNED,) if by_us else ()) in effects


def test_an_incident_that_a_person_has_closed_stays_closed() -> None:
    story = Story(xid(79))
    closed = replace(story.history.incident, state=IncidentState.CLOSED)
    story.history = replace(story.history, incident=closed)

    [recorded] = turn_of(story)

    assert isinstance(recorded, RecordTurn)
    assert recorded.incident.state is IncidentState.CLOSED


def test_an_ending_is_recorded_first_and_people_are_notified_last() -> None:
    story = Story(xid(74)).isolated().swapped().passed().then(Outcome.DONE, "llama runs again")
    run = Run("llama", 1, NOW, "", ())

    effects = effects_of_ending(replace(situation_of(story), run=run), ending(Ending.RECOVERED), NOW)

    assert names_of(effects) == [
        "RecordEnding",
        "ReleaseNode",
        "ReleaseCandidates",
        "ReleaseClaims",
        "ReleaseNode",
        "FreePlace",
        "WakeIncidentsOfJob",
        "ObserveJob",
        "CallNextJob",
        "AnnounceEnding",
        "NotifyOwnerOfEnding",
        "NotifyTaskOwners",
    ]
    assert [effect.node_id for effect in effects if isinstance(effect, ReleaseNode)] == [SPARE, INCIDENT_NODE]


def test_an_ending_that_is_on_record_is_not_written_again() -> None:
    story = Story(xid(79))
    over = replace(story.history.incident, ending=Ending.RECOVERED)
    story.history = replace(story.history, incident=over)

    effects = effects_of_ending(situation_of(story), ending(Ending.RECOVERED), NOW)

    assert not any(isinstance(effect, RecordEnding) for effect in effects)
    assert "ReleaseNode" in names_of(effects)


@pytest.mark.parametrize(("state", "is_woken"), [(NodeState.ISOLATED, True), (NodeState.HEALTHY, False)])
def test_the_queue_is_woken_where_the_node_stays_out_of_service(state: NodeState, is_woken: bool) -> None:
    situation = situation_of(Story(xid(79)).isolated(), state=state)

    effects = effects_of_ending(situation, ending(Ending.HANDED_TO_A_HUMAN), NOW)

    assert ("WakeForFreeSlots" in names_of(effects)) is is_woken


@pytest.mark.parametrize(("how", "is_news"), [(Ending.RECOVERED, False), (Ending.HANDED_TO_A_HUMAN, True)])
def test_a_new_node_that_passes_is_no_news(how: Ending, is_news: bool) -> None:
    root = xid(79, code=NEW_NODE, source="nodeheal.control-plane")

    effects = effects_of_ending(situation_of(Story(root, job=None)), ending(how), NOW)

    assert ("AnnounceEnding" in names_of(effects)) is is_news
    assert "ObserveJob" not in names_of(effects)


def test_a_decision_that_ends_nothing_is_refused_by_name() -> None:
    story = Story(xid(79))

    with pytest.raises(ValueError, match=f"ISOLATE of {story.history.incident.incident_id} does not say how it ends"):
        effects_of_ending(situation_of(story), story.next(), NOW)
