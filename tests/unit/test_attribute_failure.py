"""Why a run has failed: which incident accounts for it, and what is said where none does."""

from dataclasses import replace
from typing import Any

import pytest

from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.vocabulary import Ending, IncidentState, JobState, JobStep, Next, NodeState, Outcome, Trouble
from nodeheal.domain.recovery.incident import Incident, fingerprint
from nodeheal.ports import Ports
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.jobs.attribute_failure import attribute_failure
from nodeheal.services.steps import save_node
from tests.support.builders import ACT, NOW, stored_run, xid
from tests.support.incident_steps import LLAMA, A, B, C
from tests.support.job_steps import becomes, launched, ports, request, stored
from tests.support.observed_operations import ended, saved
from tests.support.three_nodes import started_run

__all__ = ["ports"]  # a fixture


def failed(ports: Ports) -> None:
    """The program of rank 1 ends with 1, and the other rank hangs."""
    launched(ports)
    becomes(ports, 1, "STOPPED", 1)


def attributed(ports: Ports) -> Any:
    return attribute_failure(request(looks=1), ports, ACT)


def incident_of(ports: Ports, incident_id: str) -> Incident:
    return ports.incidents.history(incident_id).incident


def test_what_is_found_says_which_run_it_is_about_and_on_which_nodes(ports: Ports) -> None:
    launched(ports)
    for rank in (0, 1):
        becomes(ports, rank, "STOPPED", 0)

    found = attributed(ports)

    assert (found.then, found.ending) == (Next.END, JobState.COMPLETED)
    assert (found.run, found.nodes) == (1, (A, B))


def test_where_it_ends_the_nodes_of_a_launch_that_died_are_named_too(ports: Ports) -> None:
    launched(ports)
    for rank in (0, 1):
        becomes(ports, rank, "STOPPED", 0)

    found = attribute_failure(request(looks=1, nodes=(B, "mi-chosen")), ports, ACT)

    assert found.nodes == (A, B, "mi-chosen")


def test_a_recovery_that_has_ended_when_it_is_looked_for_has_brought_it_back(ports: Ports) -> None:
    failed(ports)
    start = ports.workflows.start

    def is_quick(incident_id: str, node_id: str) -> None:
        start(incident_id, node_id)
        save_node(ports, stored(ports, node_id), open_incident=None)

    ports.workflows.start = is_quick  # type: ignore[method-assign]

    assert attributed(ports).then is Next.WATCH


def test_a_failure_that_has_joined_the_incident_of_another_job_is_found_there_again(ports: Ports) -> None:
    """The call that opens it is repeated: what it says is no news to the incident then."""
    failed(ports)
    save_node(ports, stored(ports, B), job_id=None)
    ingest(xid(79, node_id=B, instance_id=B, observed_at=ports.clock()), ports, ACT)
    save_node(ports, stored(ports, B), job_id="llama")

    first, second = attributed(ports), attributed(ports)

    assert first.then is second.then is Next.WATCH
    assert first.incident_id == second.incident_id == stored(ports, B).open_incident


def test_a_failure_on_a_node_that_is_given_up_meanwhile_is_a_humans(ports: Ports) -> None:
    failed(ports)
    save_node(ports, stored(ports, B), state=NodeState.RETIRED)

    found = attributed(ports)

    assert (found.then, found.trouble, found.incident_id) == (Next.STOP, Trouble.RECOVERY_ENDED, None)
    assert found.reason.endswith("no incident was opened for it")


@pytest.mark.parametrize(
    ("ending", "trouble"),
    [(Ending.OBSERVED_ONLY, Trouble.ONLY_OBSERVED), (Ending.RECOVERED, Trouble.RECOVERY_ENDED)],
)
def test_a_failure_whose_incident_is_over_is_left_to_its_owner_only_where_it_was_observed(
    ports: Ports,
    ending: Ending,
    trouble: Trouble,
) -> None:
    failed(ports)
    opened = incident_of(ports, attributed(ports).incident_id)
    ports.incidents.finish(replace(opened, state=IncidentState.CLOSED, ending=ending, summary="it is over"))
    settled = {fingerprint(opened.root): opened.incident_id}
    save_node(ports, stored(ports, B), open_incident=None, resolved_faults=settled)

    found = attributed(ports)

    assert (found.then, found.trouble, found.incident_id) == (Next.STOP, trouble, opened.incident_id)
    assert found.reason.endswith("so the job is left to its owner") is (ending is Ending.OBSERVED_ONLY)


def given_up(ports: Ports, incident_id: str) -> None:
    """Its recovery was handed to a human, with its node in service."""
    opened = incident_of(ports, incident_id)
    over = replace(opened, state=IncidentState.ESCALATED, ending=Ending.HANDED_TO_A_HUMAN, summary="not approved")
    ports.incidents.finish(over)
    save_node(ports, stored(ports, B), open_incident=None)


def test_a_program_whose_restart_was_refused_is_its_owners_and_not_the_nodes(ports: Ports) -> None:
    failed(ports)
    incident_id = attributed(ports).incident_id
    given_up(ports, incident_id)

    found = attributed(ports)

    assert (found.then, found.trouble, found.incident_id) == (Next.STOP, Trouble.PROGRAM_FAILS, incident_id)


def test_a_node_whose_recovery_was_given_up_is_the_operators(ports: Ports) -> None:
    launched(ports)
    ingest(xid(79, node_id=B, instance_id=B, observed_at=ports.clock()), ports, ACT)
    given_up(ports, str(stored(ports, B).open_incident))
    becomes(ports, 1, "STOPPED", 1)

    assert attributed(ports).trouble is Trouble.RECOVERY_ENDED


def test_a_workflow_that_broke_before_is_no_recovery_that_was_given_up(ports: Ports) -> None:
    """The state machine hands its incident over, and says no ending. Its node is in service, and fails anew."""
    launched(ports)
    ingest(xid(79, node_id=B, instance_id=B, observed_at=ports.clock()), ports, ACT)
    broke = incident_of(ports, str(stored(ports, B).open_incident))
    ports.incidents.finish(replace(broke, state=IncidentState.ESCALATED))
    save_node(ports, stored(ports, B), open_incident=None)
    becomes(ports, 1, "STOPPED", 1)

    assert attributed(ports).then is Next.WATCH


def told_of(ports: Ports, **changes: Any) -> JobResult:
    known: dict[str, Any] = {"step": JobStep.WATCH, "job_id": "llama", "outcome": Outcome.FAILED, "finished_at": NOW}
    last = JobResult(**known, then=Next.ATTRIBUTE, reason="so", nodes=(C,))
    request = JobRequest(job_id="llama", submission=1, round=0, last=last)
    return attribute_failure(request, ports, ACT)


def test_only_a_job_that_ends_gives_back_what_was_chosen_for_it(three_nodes: Ports) -> None:
    started_run(three_nodes, replace(LLAMA, submission=1))

    assert told_of(three_nodes).nodes == (A, B)  # it goes on
    saved(three_nodes, ended(stored_run(three_nodes, "llama", 1), exit_code=0))
    assert told_of(three_nodes).nodes == (A, B, C)


@pytest.mark.parametrize(("turn", "is_started"), [(0, True), (1, False)])
def test_an_incident_whose_workflow_was_lost_is_started(
    three_nodes: Ports, monkeypatch: pytest.MonkeyPatch, turn: int, is_started: bool
) -> None:
    started_run(three_nodes, replace(LLAMA, submission=1))
    started: list[str] = []
    root = xid(79, node_id=A)
    incident = Incident("inc-1", A, "demo", root, NOW, "1", job_id="llama", turn=turn)
    monkeypatch.setattr("nodeheal.services.jobs.attribute_failure.recovery_of", lambda *_: "inc-1")
    monkeypatch.setattr(three_nodes.incidents, "incident", lambda _: incident)
    monkeypatch.setattr(three_nodes.workflows, "start", lambda name, _: started.append(name))

    assert told_of(three_nodes).incident_id == "inc-1"
    assert bool(started) is is_started
