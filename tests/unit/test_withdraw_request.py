"""What was asked for by hand is taken back while it only waits."""

from dataclasses import replace

import pytest
from typer.testing import CliRunner

from nodeheal.cli import connect
from nodeheal.cli.main import app
from nodeheal.contract.names import pool_line
from nodeheal.contract.vocabulary import Action, Awaited, Ending, Escalation, IncidentState, NodeState, Outcome
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.domain.recovery.timeline import event_entry
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.operators.operator_guardrails import trip_breaker
from nodeheal.services.operators.withdraw_request import withdraw_request
from nodeheal.services.recovery.end_incident import end_incident
from nodeheal.services.recovery.wait_for_news import wait_for_news
from tests.support.acts import MemoryControlPlane, requested
from tests.support.builders import ACT, xid
from tests.support.incident_steps import A, B, C, Incident
from tests.support.queues import stands
from tests.support.step_functions import isolate_node

WHY = "ada: it was the wrong node"


class AskedFor(Incident):
    """The isolation of node C, as an operator has asked for it."""

    def __init__(self) -> None:
        super().__init__()
        event = requested(C, Action.ISOLATE, "ada: it smells", self.ports)
        ingest(event, self.ports, ACT)
        self.id = incident_id_of(event)

    def in_line(self) -> "AskedFor":
        self.ports.pools.claim("demo", A, 1)
        isolate_node(self.request(), self.ports, ACT)
        assert self.resumed().outcome is Outcome.REFUSED
        wait_for_news(self.request(), self.ports)
        assert self.is_waiting()
        return self

    @property
    def state(self) -> IncidentState:
        return self.ports.incidents.history(self.id).incident.state

    def ends(self) -> Ending | None:
        """What its workflow, woken, concludes."""
        self.resumed()
        last = self.request()
        end_incident(last, self.ports, ACT)
        return last.decision.ending


def test_a_request_that_stands_in_line_is_withdrawn_and_its_workflow_ends_at_once() -> None:
    it = AskedFor().in_line()
    before = it.node(C)

    assert withdraw_request(C, WHY, it.ports) == it.id

    assert (it.state, it.ends()) == (IncidentState.CLOSED, Ending.OBSERVED_ONLY)
    assert it.node(C) == replace(before, open_incident=None, version=it.node(C).version)
    story = it.ports.incidents.history(it.id)
    assert any(f"withdrawn by hand: {WHY}" in entry.text for entry in story.timeline)
    assert it.ports.notifier.announced[-1][1].subject.startswith("[nodeheal] withdrawn: ")  # type: ignore[attr-defined]
    assert story.incident.summary == "Isolation asked for by hand: it was withdrawn by hand before anything was touched"
    assert list(it.ports.operations.queued(pool_line("BUDGET", "demo"))) == []


def test_one_that_waits_for_the_breaker_is_withdrawn_too() -> None:
    it = AskedFor()
    trip_breaker("demo", "6 nodes fail", it.ports)
    wait_for_news(it.request(), it.ports)

    withdraw_request(C, WHY, it.ports)

    assert it.ends() is Ending.OBSERVED_ONLY


def test_a_workflow_that_was_called_a_moment_before_isolates_nothing() -> None:
    it = AskedFor()
    begun = it.request()
    it.ports.nodes.save(replace(it.node(C), open_incident=None))  # as a withdrawal does, that saw it wait
    isolate_node(begun, it.ports, ACT)

    assert it.ends() is Ending.OBSERVED_ONLY
    assert it.node(C).state is NodeState.HEALTHY


def test_a_node_that_was_isolated_and_is_given_back_by_hand_is_not_told_as_untouched() -> None:
    it = AskedFor()
    begun = it.request()
    isolate_node(begun, it.ports, ACT)
    assert it.resumed().outcome is Outcome.DONE
    assert it.node(C).state is NodeState.ISOLATED
    it.ports.nodes.save(replace(it.node(C), state=NodeState.HEALTHY, open_incident=None))  # as `nodes release` does

    last = it.request().decision

    assert last.ending is Ending.OBSERVED_ONLY
    assert "given back or retired by hand" in last.reason


def test_who_stands_behind_it_is_called_in_its_place() -> None:
    it = AskedFor().in_line()
    stands(it.ports, "inc-next", minutes=9)

    withdraw_request(C, WHY, it.ports)

    assert "token-inc-next" in it.ports.workflows.resumed  # type: ignore[attr-defined]


def test_one_that_is_at_work_is_not_withdrawn() -> None:
    it = AskedFor()
    it.request()

    assert withdraw_request(C, WHY, it.ports) is None
    assert it.node(C).open_incident == it.id


def test_a_fault_that_waits_is_not_withdrawn() -> None:
    it = Incident()
    trip_breaker("demo", "6 nodes fail", it.ports)
    assert it.request().decision.awaits is Awaited.BREAKER

    assert withdraw_request(A, WHY, it.ports) is None
    assert withdraw_request(B, WHY, it.ports) is None


def test_what_the_node_has_reported_since_is_not_withdrawn_with_it() -> None:
    it = AskedFor().in_line()
    ingest(xid(79, node_id=C, instance_id=C, event_id="real"), it.ports, ACT)

    with pytest.raises(ValueError, match="has reported XID 79"):
        withdraw_request(C, WHY, it.ports)

    assert it.node(C).open_incident == it.id


def test_what_it_reports_in_the_very_moment_goes_to_a_human() -> None:
    it = AskedFor().in_line()
    withdraw_request(C, WHY, it.ports)
    it.ports.incidents.append(it.id, event_entry(xid(79, node_id=C, instance_id=C, event_id="real")))

    it.resumed()
    last = it.request().decision

    assert last.escalation is Escalation.NOT_ISOLATED
    assert "was withdrawn, but" in last.reason


def test_the_command_says_what_it_has_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    it = AskedFor().in_line()
    monkeypatch.setattr(connect, "ports", lambda table: it.ports)
    monkeypatch.setattr(connect, "policy_copy", lambda table: ACT)
    monkeypatch.setattr(connect, "control_plane", lambda: MemoryControlPlane(it.ports, ACT))

    dry = CliRunner().invoke(app, ["nodes", "release", C, "--dry-run"]).output
    said = CliRunner().invoke(app, ["nodes", "release", C, "--why", "the wrong node"]).output

    assert f"then    {it.id}, which was asked for by hand, is withdrawn; the node is not touched\n" in dry
    assert said == f"{it.id} is withdrawn: {C} was not taken out of service yet, and is not touched\n"
    again = CliRunner().invoke(app, ["nodes", "release", C, "--why", "the wrong node"])
    assert (again.exit_code, "has not taken it out of service" in again.output) == (1, True)
