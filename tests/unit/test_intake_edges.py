"""Edges of what comes in: hangs, events, new nodes, answers and ranks, each by the case that tells it apart."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.health_event import CheckResult, DiagnosticsFinished, HealthEvent, NodeBooted
from nodeheal.contract.names import TRAINING_HANG, new_nodes_line
from nodeheal.contract.vocabulary import Check, Ending, Family, IncidentState, NodeState, Verdict
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.pause import NO_PAUSES
from nodeheal.domain.jobs.gang import ending_text
from nodeheal.domain.jobs.job import Hang
from nodeheal.operations.new_node import stand_in_line
from nodeheal.ports import Ports
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake import hangs, ingest, new_nodes, upsert_node, wakeup
from nodeheal.services.intake.ingest import Ingested
from nodeheal.services.intake.node_rates import Rate
from nodeheal.services.jobs.job_steps import save_job
from nodeheal.services.saving import node_of
from tests.support.builders import ACT, NOW, SHARED_FACTS, FrozenClock, memory_ports, node, started_job, stored_run, xid
from tests.support.incident_steps import LLAMA, A, B, C
from tests.support.observed_operations import unwanted
from tests.support.pauses import pause_of_node
from tests.support.recovery_story import Story


@pytest.fixture
def ports() -> Ports:
    made = memory_ports(FrozenClock())
    for name in (A, B, C):
        made.nodes.save(node(name))
    return made


# Hangs


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
def test_a_hang_is_of_the_run_that_is_under_way(ports: Ports, component: str | None, why: str) -> None:
    started_job(LLAMA, [node(A), node(B)], ports)

    assert hangs.why_not_of_this_run(hang(component), node_of(A, ports), ports) == why


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
    ports: Ports, changes: dict[str, Any], seconds: int, joins: bool
) -> None:
    """Of a job that nodeheal did not start there is no record."""
    opened(ports, **changes)

    joined = hangs.joined(hang(observed_at=NOW + timedelta(seconds=seconds)), ports)

    assert (joined is True) is joins


def test_a_hang_that_a_node_outside_of_the_gang_has_reported_is_not_joined(ports: Ports) -> None:
    opened(ports)
    started_job(LLAMA, [node(A), node(C)], ports)

    assert hangs.joined(hang(), ports) is None


def test_only_a_hang_of_a_run_is_remembered_as_one(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports.job_notes, "note_hang", unwanted)

    for event in (xid(79), hang("llama")):
        hangs.note_first(event, "inc-1", ports)


def test_a_hang_is_seen_by_those_who_report_it() -> None:
    about_hang = Story(hang()).reports(hang(node_id=B)).reports(xid(31, node_id=C, event_id="other"))
    about_fault = Story(xid(79)).reports(hang(node_id=B))

    assert hangs.seen_hanging_by(about_hang.history) == {A, B}
    assert hangs.seen_hanging_by(about_fault.history) == frozenset()


# Events


def test_what_aws_says_of_a_node_is_no_word_of_its_agent(ports: Ports) -> None:
    before = node_of(A, ports)

    ingest.ingest(xid(79, node_id=A, source="aws.health", agent_version="9.9.9"), ports, ACT)

    after = node_of(A, ports)
    assert (after.agent_version, after.agent_since) == (before.agent_version, before.agent_since)


@pytest.mark.parametrize(
    ("state", "became"),
    [
        (None, Ingested.UNENROLLED),
        (NodeState.UNENROLLED, Ingested.UNENROLLED),
        (NodeState.ENROLLED, Ingested.HISTORY),
    ],
)
def test_what_aws_says_of_a_node_enrolls_it_not(state: NodeState | None, became: Ingested) -> None:
    ports = memory_ports(FrozenClock())
    if state is not None:
        ports.nodes.save(node(A, state=state))

    assert ingest.ingest(xid(79, node_id=A, source="aws.health"), ports, ACT) is became
    known = ports.nodes.get(A)
    assert (known.state if known is not None else None) is state


@pytest.mark.parametrize(("is_heartbeat", "over", "is_kept"), [(False, 1, True), (False, 2, False), (True, 1, False)])
def test_of_a_flood_of_reports_the_first_that_is_not_taken_is_kept(
    ports: Ports, monkeypatch: pytest.MonkeyPatch, is_heartbeat: bool, over: int, is_kept: bool
) -> None:
    kept: list[HealthEvent] = []
    monkeypatch.setattr(ports.nodes, "record", lambda event, *_: kept.append(event))
    event = xid(79, family=Family.heartbeat, verdict=Verdict.OK, code="alive") if is_heartbeat else xid(79)
    assert event.is_heartbeat is is_heartbeat

    ingest._note_flood(event, node(A), Rate(120 + over, 120), ports)

    assert bool(kept) is is_kept


def test_a_node_that_was_asked_about_just_now_is_not_asked_about_again(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports.enrolment_tags, "pool_of", unwanted)
    known = node(A, state=NodeState.UNENROLLED, last_seen=NOW)

    assert upsert_node._enrolled_by_tag(booted(), known, ports) is None


def test_a_node_that_is_tagged_later_is_announced_before_it_is_heard(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = replace(node_of(A, ports), state=NodeState.UNENROLLED, last_seen=NOW - timedelta(days=1))
    monkeypatch.setattr(ports.enrolment_tags, "pool_of", lambda *_: "gold")
    saved: list[NodeState] = []
    save = ports.nodes.save

    def seen(one: Node) -> bool:
        saved.append(one.state)
        return save(one)

    monkeypatch.setattr(ports.nodes, "save", seen)

    found = upsert_node._enrolled_by_tag(booted(), known, ports)

    assert saved == [NodeState.ENROLLED]
    assert found is not None and (found.pool, found.state) == ("gold", NodeState.HEALTHY)


# New nodes


def booted(boot_id: str = "boot-1", **changes: Any) -> NodeBooted:
    fact = xid(79, node_id=A).model_dump(include=SHARED_FACTS | {"observed_at", "node_id", "instance_id"})
    known = {"event_id": "b", "boot_id": boot_id, "booted_at": NOW, "address": "127.0.0.1", "accelerators": 8}
    return NodeBooted(**fact, **{**known, **changes})


@pytest.mark.parametrize(
    ("event", "changes", "stands"),
    [
        (booted(), {}, True),
        (booted("boot-0"), {}, False),  # an event of an older boot, late
        (booted(booted_at=NOW - timedelta(days=30)), {}, False),
        (booted(), {"passed_at": NOW}, False),
    ],
)
def test_a_node_is_new_at_its_first_boot(
    ports: Ports, event: NodeBooted, changes: dict[str, Any], stands: bool
) -> None:
    assert ports.nodes.save(replace(node_of(A, ports), **changes))

    assert (new_nodes.note_new_node(event, ports) == "demo") is stands
    assert bool(ports.operations.queued(new_nodes_line("demo"))) is stands


@pytest.mark.parametrize(
    "changes",
    [
        {"passed_at": NOW},
        {"healthy_since": NOW},
        {"open_incident": "inc-1"},
        {"job_id": "llama"},
        {"claimed_by": "llama"},
        {"past_boots": ("boot-0",)},
        {"state": NodeState.QUARANTINED},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_node_that_anybody_has_or_has_had_is_not_new(changes: dict[str, Any]) -> None:
    assert not new_nodes._has_served(node(A))
    assert new_nodes._has_served(node(A, **changes))


def gone(ports: Ports) -> None:
    del ports.nodes.nodes[A]  # type: ignore[attr-defined]


def moved(ports: Ports) -> None:
    assert ports.nodes.save(replace(node_of(A, ports), pool="gold"))


def a_month(ports: Ports) -> None:
    ports.clock.advance(90 * 86_400)  # type: ignore[attr-defined]


@pytest.mark.parametrize("happens", [gone, moved, a_month])
def test_who_has_waited_in_vain_leaves_the_line(ports: Ports, happens: Callable[[Ports], None]) -> None:
    stand_in_line(node_of(A, ports), ports)
    happens(ports)

    assert new_nodes.diagnose_new_nodes("demo", ports, ACT) == []
    assert ports.operations.queued(new_nodes_line("demo")) == []


def test_a_node_that_is_paused_is_not_touched_yet(ports: Ports) -> None:
    paused = pause_of_node(A)

    assert new_nodes._why_not_now(node(A), paused, ports, ACT) == "it is not in service, or paused"
    assert new_nodes._why_not_now(node(A), NO_PAUSES, ports, ACT) == ""


# Answers and ranks


@pytest.mark.parametrize(("state", "is_kept"), [(NodeState.HEALTHY, True), (NodeState.ENROLLED, False)])
def test_a_diagnosis_by_hand_is_kept_with_a_node_that_has_reported(
    ports: Ports, state: NodeState, is_kept: bool
) -> None:
    assert ports.nodes.save(replace(node_of(A, ports), state=state))
    checks = [CheckResult(check=Check.dcgm, verdict=Verdict.FAILED, seconds=1.0)]
    fact = booted().model_dump(exclude={"booted_at", "address", "accelerators"})
    found = DiagnosticsFinished(**fact, request_id="by-hand", verdict=Verdict.FAILED, checks=checks)

    wakeup.on_answer(found, ports)

    assert (node_of(A, ports).last_diagnosis is not None) is is_kept


def reported(ports: Ports, status: str, run: int = 1, **changes: Any) -> None:
    found = stored_run(ports, "llama", run)
    for task in found.tasks:
        change = TaskChange("llama", run, task.task_id, task.placement, status, changes.get("exit_code"), "")
        wakeup.on_task_change(change, ports)


def jobs_of(ports: Ports) -> list[str | None]:
    return [found.job_id for found in (node_of(A, ports), node_of(B, ports))]


def test_a_job_that_is_done_gives_its_nodes_back(ports: Ports) -> None:
    started_job(LLAMA, [node_of(A, ports), node_of(B, ports)], ports)
    reported(ports, "RUNNING")
    assert jobs_of(ports) == ["llama", "llama"]
    save_job(ports, "llama", summary="its checkpoints are searched")

    reported(ports, "STOPPED", exit_code=0)

    assert jobs_of(ports) == [None, None]
    job, run = ports.jobs.get("llama"), ports.jobs.get_run("llama", 1)
    assert job is not None and run is not None and job.summary == ending_text(run)


def test_a_rank_of_an_older_run_that_is_said_to_run_frees_no_node(ports: Ports) -> None:
    started_job(LLAMA, [node_of(A, ports), node_of(B, ports)], ports)
    job = ports.jobs.get("llama")
    assert job is not None and ports.jobs.save(replace(job, current_run=2))

    reported(ports, "RUNNING")

    assert jobs_of(ports) == ["llama", "llama"]
