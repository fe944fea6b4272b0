"""What is read over the index may be old, what is read from the table is not; and no write overtakes another."""

from dataclasses import replace
from datetime import timedelta

import pytest

from nodeheal.contract.vocabulary import IncidentState, JobState, NodeState, VerbName
from nodeheal.domain.operation import Operation
from nodeheal.domain.recovery.incident import Incident, incident_id_of
from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.chance import Chance
from nodeheal.simulation.index import Index
from nodeheal.simulation.job_stores import SimJobNotes, SimJobs
from nodeheal.simulation.setting import CALM, Cloud
from nodeheal.simulation.stores import SimFleetIndex, SimIncidents, SimNodes, SimOperations
from tests.support.builders import ACT, NOW, node, xid
from tests.support.jobs import ecs_job

ALWAYS = Cloud(index_late=1.0, index_seconds=60.0)
LONG_AGO = NOW - timedelta(days=1)


@pytest.fixture
def agenda() -> Agenda:
    return Agenda()


@pytest.fixture
def index(agenda: Agenda) -> Index:
    return Index(agenda, Chance("1"), ALWAYS)


def later(agenda: Agenda, seconds: float = 61.0) -> None:
    agenda.run(agenda.now + seconds)


def test_it_shows_what_was_before_and_after_a_while_what_is(agenda: Agenda, index: Index) -> None:
    index.wrote(("node", "a"), "before")

    assert index.shown(("node", "a"), "now") == "before"
    later(agenda)
    assert index.shown(("node", "a"), "now") == "now"


def test_of_two_writes_it_shows_neither_before_the_first_is_due(agenda: Agenda, index: Index) -> None:
    index.wrote(("node", "a"), "first")
    index.wrote(("node", "a"), "second")

    assert index.shown(("node", "a"), "third") == "first"


def test_another_item_is_not_held_up(index: Index) -> None:
    index.wrote(("node", "a"), "before")

    assert index.shown(("node", "b"), "now") == "now"


def test_what_it_shows_by_now_is_forgotten_although_nobody_reads_it(agenda: Agenda, index: Index) -> None:
    for number in range(10_000):
        index.wrote(("node", str(number)), "before")
        later(agenda, 1.0)

    assert len(index._hidden) < 2_000
    assert len(index.behind("node")) <= 60
    assert index.shown(("node", "9999"), "now") == "before"


def test_a_calm_cloud_shows_everything_at_once(agenda: Agenda) -> None:
    calm = Index(agenda, Chance("1"), CALM)

    calm.wrote(("node", "a"), "before")

    assert calm.shown(("node", "a"), "now") == "now"


def test_a_pool_shows_its_nodes_as_they_were(agenda: Agenda, index: Index) -> None:
    nodes = SimNodes(index)
    nodes.save(node())
    later(agenda)

    nodes.save(node(state=NodeState.ISOLATED, version=1))

    assert nodes.get(node().node_id).state is NodeState.ISOLATED  # type: ignore[union-attr]
    assert [one.state for one in nodes.in_pool(node().pool)] == [NodeState.HEALTHY]
    later(agenda)
    assert [one.state for one in nodes.in_pool(node().pool)] == [NodeState.ISOLATED]


def test_a_new_node_is_not_in_its_pool_yet(agenda: Agenda, index: Index) -> None:
    nodes = SimNodes(index)

    nodes.save(node())

    assert nodes.in_pool(node().pool) == []
    later(agenda)
    assert len(nodes.in_pool(node().pool)) == 1


def test_a_nodes_own_faults_are_seen_at_once_and_its_pools_later(agenda: Agenda, index: Index) -> None:
    nodes, event = SimNodes(index), xid(79)
    nodes.record(event, None)

    def seen(who: str) -> int:
        return len(nodes.observations(who, LONG_AGO, event.pool, LONG_AGO))

    assert seen(event.node_id) == 1
    assert seen("another") == 0
    later(agenda)
    assert seen("another") == 1


def test_who_has_left_a_line_stands_in_it_a_while(agenda: Agenda, index: Index) -> None:
    operations = SimOperations(index, agenda)
    standing = Operation("incident#inc-1", "inc-1-1", VerbName.WAIT, "token", "inc-1", NOW, "", line=("pool", "0"))
    operations.save(standing)
    assert operations.queued("pool") == []
    later(agenda)
    [listed] = operations.queued("pool")

    operations.save(listed.delivered())

    assert operations.open_of(standing.owner) == []
    assert operations.queued("pool") == [listed]
    later(agenda)
    assert operations.queued("pool") == []


def test_an_open_incident_is_listed_later_than_it_is_read(agenda: Agenda, index: Index) -> None:
    nodes = SimNodes(index)
    incidents = SimIncidents(nodes, index)
    fleet_index = SimFleetIndex(nodes, incidents, index)
    root = xid(79)
    opened = Incident(incident_id_of(root), root.node_id, root.pool, root, NOW, ACT.version)
    incidents.open(opened, node(opened.node_id))

    def listed() -> int:
        bounds = opened.opened_at - timedelta(days=1), opened.opened_at + timedelta(days=1)
        return len(list(fleet_index.incidents(opened.pool, IncidentState.OPEN, *bounds)))

    assert incidents.history(opened.incident_id).incident.incident_id == opened.incident_id
    assert listed() == 0
    later(agenda)
    assert listed() == 1


def test_the_sweep_sees_nodes_as_the_index_has_them(agenda: Agenda, index: Index) -> None:
    nodes = SimNodes(index)
    fleet_index = SimFleetIndex(nodes, SimIncidents(nodes, index), index)
    nodes.save(node())

    assert fleet_index.liveness_page(node().pool, "", 10)[0] == []
    later(agenda)
    assert [one.node_id for one in fleet_index.liveness_page(node().pool, "", 10)[0]] == [node().node_id]


def test_a_job_is_listed_as_running_a_while_after_its_end(agenda: Agenda, index: Index) -> None:
    jobs = SimJobs(index)
    notes = SimJobNotes(jobs)
    begun = ecs_job("llama", "demo", "training", "trainer:1", "trainer", 2, state=JobState.RUNNING)
    jobs.save(begun)
    later(agenda)

    jobs.save(replace(begun, state=JobState.COMPLETED, version=1))

    assert jobs.get(begun.job_id).is_over  # type: ignore[union-attr]
    assert [one.job_id for one in notes.in_pool(begun.pool, live_only=True)] == [begun.job_id]
    later(agenda)
    assert notes.in_pool(begun.pool, live_only=True) == []
