"""Who ends a step decides what follows. Where nobody can, the workflow asks, as it does at its first turn."""

from dataclasses import replace
from itertools import pairwise

import pytest

from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import DecidedResult, DecideRequest, Decision
from nodeheal.contract.vocabulary import IncidentState, Step
from nodeheal.services.recovery.decide_next_step import decide_at_once
from tests.support.builders import xid
from tests.support.fake_cluster import BROKEN, FakeCluster
from tests.support.steps import result

FAULT = xid(79, node_id=BROKEN, instance_id=BROKEN)


def test_only_the_first_decision_is_asked_for() -> None:
    it = FakeCluster()

    path = it.reports(FAULT).path

    assert path[-1] == "Recovered"
    assert path.count("Decide next step") == 1
    assert ("Reboot node", "Which step?") in pairwise(path)


def test_where_nobody_can_decide_the_workflow_asks_and_nothing_else_is_done(caplog: pytest.LogCaptureFixture) -> None:
    plain, it = FakeCluster(), FakeCluster()

    def breaks(request: DecideRequest) -> Decision | None:
        raise RuntimeError("no policy")

    it._decides_at_once = breaks  # type: ignore[method-assign]
    plain.reports(FAULT)
    path = it.reports(FAULT).path

    assert path[-1] == "Recovered"
    assert ("Which step?", "Decide next step") in pairwise(path)
    assert it.commands == plain.commands
    assert "no decision yet; the workflow asks for it" in caplog.messages


def test_what_was_decided_is_decided_once() -> None:
    it = FakeCluster()
    it.reports(FAULT)
    history = it.ports.incidents.history(it.incident_id)
    asked = DecideRequest(incident_id=it.incident_id, turn=2, result=history.turns[1].result)

    again = decide_at_once(asked, it.ports, it.policy)

    assert again == history.turns[2].decision
    assert len(it.ports.incidents.history(it.incident_id).turns) == len(history.turns)


def test_nothing_is_decided_for_a_workflow_that_has_broken() -> None:
    it = FakeCluster()
    it.reports(FAULT)
    history = it.ports.incidents.history(it.incident_id)
    it.ports.incidents.finish(replace(history.incident, state=IncidentState.ESCALATED))
    told = StepResult.model_validate(result(Step.REBOOT))
    asked = DecideRequest(incident_id=it.incident_id, turn=len(history.turns), result=told)

    assert decide_at_once(asked, it.ports, it.policy) is None
    assert len(it.ports.incidents.history(it.incident_id).turns) == len(history.turns)


def test_an_execution_of_before_hands_its_result_on_with_the_decision_in_it() -> None:
    told = StepResult.model_validate(result(Step.REBOOT))
    decided = DecidedResult(**dict(told), next=Decision(step=Step.DIAGNOSE, reason="so", node_id=BROKEN))

    asked = DecideRequest.model_validate({"incident_id": "inc-1", "turn": 3, "result": decided.model_dump(mode="json")})

    assert asked.result == told
