"""What the sweep looks over, page by page: memory and DynamoDB over one specification."""

from dataclasses import replace
from datetime import timedelta

import pytest
from moto import mock_aws

from nodeheal.adapters.aws.items import Table, to_item
from nodeheal.contract.vocabulary import Availability, Ending, IncidentState, NodeState, SchedulerKind
from nodeheal.domain.fleet.liveness import liveness_of
from nodeheal.domain.fleet.pool import Census
from nodeheal.domain.recovery.incident import Incident, incident_id_of
from nodeheal.ports import Ports
from nodeheal.ports.storage import SweepCursor
from nodeheal.services.operators.review_incidents import list_incidents
from tests.support.builders import NOW, FrozenClock, node, xid
from tests.support.dynamo_tables import clock, dynamo_ports, ports
from tests.support.jobs import ecs_job

__all__ = ["clock", "ports"]  # fixtures

LATER = NOW + timedelta(minutes=1)


def opened(ports: Ports, node_id: str, pool: str = "demo", seconds: int = 0) -> str:
    event = xid(node_id=node_id, pool=pool)
    at = NOW + timedelta(seconds=seconds)
    incident = Incident(incident_id_of(event), node_id, pool, event, at, "policy-1")
    assert ports.incidents.open(incident, node(node_id, pool=pool, open_incident=incident.incident_id))
    return incident.incident_id


def listed(ports: Ports, state: IncidentState) -> list[tuple[str, int]]:
    return [(found.incident_id, found.turn) for found in ports.fleet_index.incidents("demo", state, NOW, LATER)]


def walked(ports: Ports, limit: int) -> list[str]:
    """Every node of the pool, read in pages of this size."""
    found: list[str] = []
    after = ""
    for _ in range(20):
        page, after = ports.fleet_index.liveness_page("demo", after, limit)
        assert len(page) <= limit
        found += [node_liveness.node_id for node_liveness in page]
        if not after:
            return found
    raise AssertionError("the pages have no end")


def test_a_pool_is_known_from_its_first_node_on(ports: Ports) -> None:
    assert list(ports.fleet_index.pools()) == []
    for node_id, pool in (("mi-1", "h100"), ("mi-2", "a100"), ("mi-3", "h100")):
        ports.nodes.save(node(node_id, pool=pool))

    assert list(ports.fleet_index.pools()) == ["a100", "h100"]


def test_a_pool_is_known_of_which_an_announced_node_turns_out_to_be(ports: Ports) -> None:
    ports.nodes.save(node(state=NodeState.ENROLLED, pool="as-announced"))
    announced = ports.nodes.get(node().node_id)
    assert announced is not None

    ports.nodes.save(replace(announced, pool="as-its-agent-says"))

    assert "as-its-agent-says" in ports.fleet_index.pools()


def test_a_node_that_nobody_has_enrolled_is_in_no_pool(ports: Ports) -> None:
    ports.nodes.save(node(state=NodeState.UNENROLLED, pool="as-its-agent-says"))

    assert list(ports.fleet_index.pools()) == []
    assert list(ports.nodes.in_pool("as-its-agent-says")) == []
    assert [one.node_id for one in ports.nodes.unenrolled()] == [node().node_id]


def test_a_pool_is_known_too_whose_first_node_came_with_a_fault(ports: Ports) -> None:
    opened(ports, "mi-1", "h100")

    assert list(ports.fleet_index.pools()) == ["h100"]


def test_a_liveness_page_shows_when_the_node_was_last_heard_and_what_it_is_counted_by(ports: Ports) -> None:
    plain = node("mi-1", last_seen=NOW)
    busy = node(
        "mi-2",
        last_seen=NOW,
        state=NodeState.PROBATION,
        scheduler=SchedulerKind.SLURM,
        probation_until=LATER,
        open_incident="inc-1",
        job_id="llama",
        claimed_by="mistral",
        is_spare=True,
        accelerators=8,
    )
    ports.nodes.save(plain)
    ports.nodes.save(busy)

    assert ports.fleet_index.liveness_page("demo", "", 10) == ([liveness_of(plain), liveness_of(busy)], "")


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 7])
def test_pages_show_every_node_once(ports: Ports, limit: int) -> None:
    states = [NodeState.HEALTHY, NodeState.SUSPECT, NodeState.HEALTHY, NodeState.ISOLATED, NodeState.PROBATION]
    for number, state in enumerate(states):
        ports.nodes.save(node(f"mi-{number}", state=state))
    ports.nodes.save(node("mi-10"))  # another's name with more behind it
    ports.nodes.save(node("mi-9", pool="other"))
    opened(ports, "mi-8", "other")

    assert sorted(walked(ports, limit)) == ["mi-0", "mi-1", "mi-10", "mi-2", "mi-3", "mi-4"]


def test_a_pool_without_nodes_has_an_end_at_once(ports: Ports) -> None:
    assert ports.fleet_index.liveness_page("empty", "", 10) == ([], "")


def test_incidents_of_a_time_are_found_the_oldest_first(ports: Ports) -> None:
    second, first = opened(ports, "mi-1", seconds=30), opened(ports, "mi-2")
    opened(ports, "mi-3", seconds=60)
    opened(ports, "mi-4", "other")
    opened(ports, "mi-5", seconds=-1)

    assert listed(ports, IncidentState.OPEN) == [(first, 0), (second, 0)]


def test_an_incident_is_found_in_the_state_that_it_is_in(ports: Ports) -> None:
    begun, ended = opened(ports, "mi-1"), opened(ports, "mi-2")
    assert ports.incidents.advance(
        replace(ports.incidents.history(begun).incident, turn=1, state=IncidentState.WAITING), []
    )
    over = replace(ports.incidents.history(ended).incident, state=IncidentState.CLOSED, ending=Ending.OBSERVED_ONLY)
    ports.incidents.finish(over)

    assert listed(ports, IncidentState.OPEN) == []
    assert listed(ports, IncidentState.WAITING) == [(begun, 1)]
    assert listed(ports, IncidentState.CLOSED) == [(ended, 0)]


def test_an_incident_whose_workflow_broke_is_listed_as_a_humans(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        ports = dynamo_ports(FrozenClock())
        broken, well = opened(ports, "mi-1"), opened(ports, "mi-2")
        table: Table = ports.nodes._table  # type: ignore[attr-defined]
        # As "Mark escalated" of recover_node does: it writes the state and knows nothing of the index.
        table.client.update_item(
            TableName=table.name,
            Key=to_item({"pk": f"incident#{broken}", "sk": "incident"}),
            UpdateExpression="SET #state = :state",
            ExpressionAttributeNames={"#state": "state"},
            ExpressionAttributeValues={":state": {"S": "ESCALATED"}},
        )

        def names_in(state: IncidentState) -> list[str]:
            return [one.incident_id for one in list_incidents(ports, ["demo"], [state], NOW)]

        assert names_in(IncidentState.ESCALATED) == [broken]
        assert names_in(IncidentState.OPEN) == [well]


def test_a_listed_incident_is_whole(ports: Ports) -> None:
    incident_id = opened(ports, "mi-1")

    [found] = ports.fleet_index.incidents("demo", IncidentState.OPEN, NOW, LATER)

    assert found == ports.incidents.history(incident_id).incident


def test_a_list_longer_than_a_page_is_whole(ports: Ports) -> None:
    evidence = "x" * 8_000  # so many of these are more than the megabyte that one answer holds
    for number in range(150):
        event = xid(node_id=f"mi-{number}", evidence=evidence)
        incident = Incident(incident_id_of(event), event.node_id, "demo", event, NOW, "policy-1")
        assert ports.incidents.open(incident, node(event.node_id, open_incident=incident.incident_id))

    assert len(listed(ports, IncidentState.OPEN)) == 150


def test_nodes_are_read_on_behind_any_of_them_by_id(ports: Ports) -> None:
    for number, state in enumerate([NodeState.SUSPECT, NodeState.HEALTHY, NodeState.HEALTHY]):
        ports.nodes.save(node(f"mi-{number}", state=state))
    ports.nodes.save(node("mi-10"))
    ports.nodes.save(node("mi-11", pool="other"))
    ports.nodes.save(node("mi-12", state=NodeState.UNENROLLED))

    def names(after: str) -> list[str]:
        return [found.node_id for found in ports.fleet_index.nodes_after("demo", after, page_size=1)]

    assert names("") == ["mi-0", "mi-1", "mi-10", "mi-2"]
    assert names("mi-1") == ["mi-10", "mi-2"]
    assert names("mi-15") == ["mi-2"], "one that is gone"
    assert names("mi-2") == []


def test_incidents_are_read_back_from_the_newest(ports: Ports) -> None:
    second, first = opened(ports, "mi-1", seconds=30), opened(ports, "mi-2")
    opened(ports, "mi-3", seconds=60)
    opened(ports, "mi-4", "other")
    opened(ports, "mi-5", seconds=-1)

    found = ports.fleet_index.newest_incidents("demo", IncidentState.OPEN, NOW, LATER, page_size=1)

    assert [incident.incident_id for incident in found] == [second, first]


def test_incidents_of_one_second_stand_by_their_ids(ports: Ports) -> None:
    known = [opened(ports, f"mi-{number}", seconds=0) for number in range(3)]

    found = ports.fleet_index.newest_incidents("demo", IncidentState.OPEN, NOW, LATER)

    assert [incident.incident_id for incident in found] == sorted(known, reverse=True)


def test_who_consumes_a_few_records_has_read_no_more_than_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        ports = dynamo_ports(FrozenClock())
        for number in range(9):
            opened(ports, f"mi-{number}", seconds=number)
            ports.jobs.save(ecs_job(f"job-{number}", "demo", "training", "trainer:1", "trainer", 2))
        read: list[int] = []
        table: Table = ports.nodes._table  # type: ignore[attr-defined]
        table.client.meta.events.register("after-call.dynamodb.Query", lambda parsed, **_: read.append(parsed["Count"]))

        next(ports.fleet_index.nodes_after("demo", "", 3))
        next(ports.fleet_index.newest_incidents("demo", IncidentState.OPEN, NOW, LATER, 3))
        next(ports.jobs.after("demo", "", is_over=False, page_size=3))

    assert read == [3, 3, 3]


def test_a_look_begins_at_the_beginning_and_goes_on_where_the_last_one_ended(ports: Ports) -> None:
    assert ports.fleet_index.cursor() == SweepCursor()

    counted = Census({NodeState.HEALTHY: 2, NodeState.RETIRED: 1}, {Availability.FREE: 2, Availability.RETIRED: 1}, 1)
    for place in (SweepCursor("h100", "mi-1", counted=counted), SweepCursor("a100")):
        ports.fleet_index.save_cursor(place)

        assert ports.fleet_index.cursor() == place


def test_what_others_said_is_remembered_with_the_node(ports: Ports) -> None:
    ports.nodes.save(node(signal_versions={"ecs/instance": 14_801}))

    stored = ports.nodes.get(node().node_id)

    assert stored is not None
    assert stored.signal_versions == {"ecs/instance": 14_801}
