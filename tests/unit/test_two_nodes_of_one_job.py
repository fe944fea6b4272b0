"""Two nodes of one job fail: both are healed, and the last of them brings the job back."""

from dataclasses import replace

import pytest

from nodeheal.contract.results import Refused
from nodeheal.contract.vocabulary import Action, Ending, IncidentState, Outcome, Refusal, Step
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.operations.steps import launch_gang
from tests.support.builders import ACT, xid
from tests.support.incident_steps import B
from tests.support.recovery_story import Story
from tests.support.two_nodes import OTHER, healed


def test_the_job_is_left_to_the_incident_that_still_heals_one_of_its_nodes() -> None:
    it = healed()
    request = it.request()
    assert request.decision.step is Step.RESTART_WORKLOAD

    launch_gang(request, it.ports, ACT)

    assert it.resumed().outcome is Outcome.REFUSED
    assert it.resumed().facts == Refused(code=Refusal.LEFT_TO_INCIDENT, incident_id=incident_id_of(OTHER))


def test_a_restart_that_is_left_to_another_spends_no_attempt() -> None:
    it = healed()
    request = it.request()

    launch_gang(request, it.ports, ACT)

    assert it.ports.attempts.spent("job#llama", ACT.limits[Action.RESTART_WORKLOAD]) == {Action.RESTART_WORKLOAD: 0}


def test_what_leaves_the_job_to_another_has_recovered_and_says_who_brings_it_back() -> None:
    story = Story(xid(79)).isolated().rebooted().passed().then(Outcome.DONE)
    story = story.then(
        Outcome.REFUSED, "mi-b has XID 79", facts=Refused(code=Refusal.LEFT_TO_INCIDENT, incident_id="inc-7")
    )

    assert story.next().ending is Ending.RECOVERED
    assert "llama is brought back by inc-7" in story.next().reason


def test_a_node_that_has_passed_its_diagnostics_since_is_fit_for_the_gang() -> None:
    it = healed()
    it.ports.nodes.save(replace(it.node(B), healthy_since=it.clock()))

    launch_gang(it.request(), it.ports, ACT)

    assert it.is_waiting()  # for the ranks, which have been started


@pytest.mark.parametrize("ending", [None, Ending.HANDED_TO_A_HUMAN], ids=["it broke", "a human has the node"])
def test_a_recovery_that_has_broken_leaves_the_job_to_nobody(ending: Ending | None) -> None:
    it = healed()
    incident = it.ports.incidents.history(incident_id_of(OTHER)).incident
    it.ports.incidents.finish(replace(incident, state=IncidentState.ESCALATED, ending=ending))

    launch_gang(it.request(), it.ports, ACT)

    assert it.resumed().outcome is Outcome.REFUSED
    assert it.resumed().facts is None
