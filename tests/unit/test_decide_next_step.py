"""The step that follows: who decides it at once, and whom it asks about a node that is silent."""

from dataclasses import replace
from typing import Any

import pytest

from nodeheal.contract.steps import DecideRequest
from nodeheal.contract.vocabulary import IncidentState, Outcome, Step
from nodeheal.services.recovery import carry_out, decide_next_step
from tests.support.builders import ACT
from tests.support.incident_steps import Incident as Recovery
from tests.support.observed_operations import unwanted
from tests.support.steps import turn


@pytest.mark.parametrize("state", [IncidentState.OPEN, IncidentState.ESCALATED])
def test_who_ends_a_step_decides_for_a_workflow_that_lives(state: IncidentState) -> None:
    it = Recovery()
    history = it.ports.incidents.history(it.id)
    if state is IncidentState.ESCALATED:
        it.ports.incidents.finish(replace(history.incident, state=state))

    decided = decide_next_step.decide_at_once(DecideRequest(incident_id=it.id, turn=0), it.ports, ACT)

    assert (decided is not None) is (state is IncidentState.OPEN)


def test_a_decision_lets_go_of_a_replacement_node_only_where_that_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Recovery()
    monkeypatch.setattr(carry_out, "release_candidates", unwanted)

    assert it.request().decision.step is Step.ISOLATE


@pytest.mark.parametrize(
    ("step", "outcome", "is_asked"),
    [(Step.REBOOT, Outcome.DONE, False), (Step.FREEZE_EVIDENCE, Outcome.TIMED_OUT, True)],
)
def test_who_else_reports_a_node_down_is_asked_where_it_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, step: Step, outcome: Outcome, is_asked: bool
) -> None:
    """Where nobody does, the reason stays as it is."""
    it = Recovery()
    asked: list[str] = []

    def ask(one: Any) -> list[Any]:
        asked.append(one.node_id)
        return []

    monkeypatch.setattr(it.ports.liveness_probes, "ask", ask)
    monkeypatch.setattr(decide_next_step, "is_unclear", lambda *_: is_asked)
    known = turn(step, outcome)
    history = replace(it.ports.incidents.history(it.id), turns=(known,))
    assert known.result is not None

    assert decide_next_step._with_witnesses(known.result, history, it.ports) == known.result
    assert bool(asked) is is_asked
