"""A person may take over a node that nodeheal has isolated: nothing is done to it then, and a human hears of it."""

import pytest

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Action, Ending, Escalation, Outcome, Refusal, Step
from nodeheal.domain.verbs import VERBS
from nodeheal.operations.verbs import HANDLERS, run_step
from nodeheal.services.recovery.taken_over import why_taken_over
from tests.support.builders import ACT, behave_as, behave_as_requeueing, commands_in, scheduler_in, xid
from tests.support.fake_cluster import BROKEN, FakeCluster
from tests.support.incident_steps import A, Incident

DESTRUCTIVE = [
    (Step.REBOOT, Action.RESET_GPU),
    (Step.REBOOT, Action.REBOOT),
    (Step.REBOOT, Action.STOP_START),
    (Step.REPLACE, Action.REPLACE),
]


def isolated() -> Incident:
    it = Incident()
    it.isolate()
    return it


def asked_for(it: Incident, step: Step, action: Action | None) -> StepRequest:
    asked = it.request()
    decision = asked.decision.model_copy(update={"step": step, "action": action, "component": "0000:b9:00.0"})
    return asked.model_copy(update={"decision": decision})


@pytest.mark.parametrize(("step", "action"), DESTRUCTIVE)
def test_a_node_that_a_person_has_put_back_into_service_is_left_alone(step: Step, action: Action) -> None:
    it = isolated()
    asked = asked_for(it, step, action)
    sent = list(commands_in(it.ports).sent)
    scheduler_in(it.ports).draining.discard(A)

    run_step(asked, it.ports, ACT)

    result = it.resumed()
    assert (result.outcome, result.refused_for(Refusal.TAKEN_OVER) is not None) == (Outcome.REFUSED, True)
    assert "takes new work again" in result.reason
    assert commands_in(it.ports).sent == sent
    spent = [it.ports.attempts.reserve(one.scope, "another", one.limit)[1] for one in asked.decision.reserve]
    assert set(spent) == {1}  # this very attempt is the first one
    ended = it.request().decision
    assert (ended.ending, ended.escalation) == (Ending.HANDED_TO_A_HUMAN, Escalation.TAKEN_OVER)


@pytest.mark.parametrize(("step", "action"), DESTRUCTIVE)
def test_a_node_that_a_person_holds_is_left_alone(step: Step, action: Action) -> None:
    it = isolated()
    asked = asked_for(it, step, action)
    scheduler_in(it.ports).held_by_people.add(A)

    run_step(asked, it.ports, ACT)

    assert it.resumed().reason == f"{A} is held by a person (held by ada)"


@pytest.mark.parametrize(("step", "action"), [*DESTRUCTIVE, (Step.DIAGNOSE, None)])
def test_a_node_whose_work_nodeheal_cannot_see_is_left_to_a_human(step: Step, action: Action | None) -> None:
    it = isolated()
    asked = asked_for(it, step, action)
    sent = list(commands_in(it.ports).sent)
    behave_as(it.ports, workloads=None)

    run_step(asked, it.ports, ACT)

    result = it.resumed()
    assert (result.outcome, result.refused_for(Refusal.WORK_UNKNOWN) is not None) == (Outcome.REFUSED, True)
    assert result.reason == "nodeheal cannot see what ECS runs on the node"
    assert commands_in(it.ports).sent == sent
    ended = it.request().decision
    assert (ended.ending, ended.escalation) == (Ending.HANDED_TO_A_HUMAN, Escalation.MANUAL_REVIEW_REQUIRED)


def test_every_verb_that_touches_a_node_asks_whose_it_is() -> None:
    touching = {verb.operation for verb in VERBS.values() if verb.step in (Step.REBOOT, Step.REPLACE)}

    assert {verb for verb, handler in HANDLERS.items() if handler.needs_isolation} == touching


def test_a_node_that_others_had_drained_before_is_healed_as_ever() -> None:
    it = Incident()
    scheduler_in(it.ports).draining.add(A)
    scheduler_in(it.ports).held_by_people.add(A)
    it.isolate()

    assert not it.node().drained_by_us
    assert why_taken_over(it.node(), it.ports) == ""


class HeldMeanwhile(FakeCluster):
    """While the node proves its repair, a person decides to keep it."""

    def _diagnosed(self, request: StepRequest) -> None:
        scheduler_in(self.ports).held_by_people.add(BROKEN)
        super()._diagnosed(request)


@pytest.mark.parametrize("requeues", [False, True])
def test_a_node_that_a_person_keeps_during_the_incident_is_not_put_back_at_its_end(requeues: bool) -> None:
    cluster = HeldMeanwhile(ACT)
    if requeues:
        behave_as_requeueing(cluster.ports)

    cluster.reports(xid(79))

    incident = cluster.ports.incidents.history(cluster.incident_id)
    assert BROKEN in scheduler_in(cluster.ports).draining
    assert incident.incident.ending is Ending.RECOVERED
    assert any("its scheduler still gives it no work (held by ada)" in entry.text for entry in incident.timeline)
    assert not cluster.node().drained_by_us


class PutBackMeanwhile(FakeCluster):
    """A person puts the node back into service as soon as it is isolated."""

    def _gang_stops(self, request: StepRequest) -> None:
        super()._gang_stops(request)
        scheduler_in(self.ports).draining.discard(BROKEN)


@pytest.mark.parametrize("requeues", [False, True])
def test_a_person_who_puts_a_node_back_in_the_middle_of_its_repair_is_noticed(requeues: bool) -> None:
    cluster = PutBackMeanwhile(ACT)
    if requeues:
        behave_as_requeueing(cluster.ports)

    cluster.reports(xid(79))

    incident = cluster.ports.incidents.history(cluster.incident_id).incident
    assert incident.ending is Ending.HANDED_TO_A_HUMAN
    assert "reboot-node" not in [document for document, _ in cluster.commands]
