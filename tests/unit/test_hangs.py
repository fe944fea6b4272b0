"""A gang that hangs: whose report counts, which run it is about, and which incident it joins."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import TRAINING_HANG
from nodeheal.contract.vocabulary import Ending, Family, IncidentState
from nodeheal.domain.jobs.job import Hang
from nodeheal.ports import Ports
from nodeheal.services.intake import hangs, ingest
from nodeheal.services.intake.ingest import Ingested
from nodeheal.services.saving import node_of
from tests.support.builders import ACT, NOW, node, started_job, xid
from tests.support.incident_steps import LLAMA, A, B, C
from tests.support.observed_operations import unwanted
from tests.support.recovery_story import Story


def hang(component: str | None = "llama/1", node_id: str = A, **changes: Any) -> HealthEvent:
    known = {"event_id": f"hang-{node_id}", "family": Family.host, "code": TRAINING_HANG, "component": component}
    return xid(79, node_id=node_id, **{**known, **changes})


@pytest.mark.parametrize(
    ("component", "why"),
    [
        ("llama/1", ""),
        ("llama", ""),  # an agent that does not know the run
        ("llama/7", "of run 7 of llama, which is over"),
        (None, ""),
    ],
)
def test_a_hang_is_of_the_run_that_is_under_way(three_nodes: Ports, component: str | None, why: str) -> None:
    started_job(LLAMA, [node(A), node(B)], three_nodes)

    assert hangs.why_not_of_this_run(hang(component), node_of(A, three_nodes), three_nodes) == why


def opened(ports: Ports, **changes: Any) -> None:
    """B has opened an incident for the hang."""
    assert ingest.ingest(xid(79, node_id=B, event_id="of-b"), ports, ACT) is Ingested.OPENED
    [incident_id] = ports.workflows.started  # type: ignore[attr-defined]
    ports.job_notes.note_hang(Hang("llama/1", B, incident_id, NOW))
    if changes:
        ports.incidents.finish(replace(ports.incidents.incident(incident_id), **changes))


@pytest.mark.parametrize(
    ("changes", "seconds", "joins"),
    [
        ({}, 0, True),
        ({"state": IncidentState.CLOSED, "ending": Ending.RECOVERED}, 0, False),
        ({"state": IncidentState.CLOSED, "ending": Ending.OBSERVED_ONLY}, 0, True),
        ({"state": IncidentState.CLOSED, "ending": Ending.OBSERVED_ONLY}, 86_400, False),
    ],
    ids=["open", "recovered", "observed in this moment", "observed a day ago"],
)
def test_a_hang_joins_the_incident_of_the_gang(
    three_nodes: Ports, changes: dict[str, Any], seconds: int, joins: bool
) -> None:
    """Of a job that nodeheal did not start there is no record."""
    opened(three_nodes, **changes)

    joined = hangs.joined(hang(observed_at=NOW + timedelta(seconds=seconds)), three_nodes)

    assert (joined is True) is joins


def test_a_hang_that_a_node_outside_of_the_gang_has_reported_is_not_joined(three_nodes: Ports) -> None:
    opened(three_nodes)
    started_job(LLAMA, [node(A), node(C)], three_nodes)

    assert hangs.joined(hang(), three_nodes) is None


def test_only_a_hang_of_a_run_is_remembered_as_one(three_nodes: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(three_nodes.job_notes, "note_hang", unwanted)

    for event in (xid(79), hang("llama")):
        hangs.note_first(event, "inc-1", three_nodes)


def test_a_hang_is_seen_by_those_who_report_it() -> None:
    about_hang = Story(hang()).reports(hang(node_id=B)).reports(xid(31, node_id=C, event_id="other"))
    about_fault = Story(xid(79)).reports(hang(node_id=B))

    assert hangs.seen_hanging_by(about_hang.history) == {A, B}
    assert hangs.seen_hanging_by(about_fault.history) == frozenset()
