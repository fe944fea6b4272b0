"""Faults that are kept, and read again by the nodes' neighbours: memory and DynamoDB over one specification."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from nodeheal.adapters.aws import stores
from nodeheal.adapters.aws.items import Table
from nodeheal.adapters.memory import stores as memory_stores
from nodeheal.contract import names
from nodeheal.contract.health_event import EVIDENCE_BYTES
from nodeheal.contract.vocabulary import Family
from nodeheal.domain.recovery.decision_context import Observation
from nodeheal.ports import Ports
from nodeheal.ports.storage import FAULTS_LOOKED_UP
from tests.support.builders import NOW, xid
from tests.support.dynamo_tables import clock, ports

__all__ = ["clock", "ports"]  # fixtures

A, B, C = xid().node_id, "mi-0bbbbbbbbbbbbbbbb", "mi-0cccccccccccccccc"
LONG_AGO = NOW - timedelta(days=30)


def report(ports: Ports, name: str, node_id: str = A, seconds: float = 0, note: str = "", **changes: Any) -> None:
    """Record a fault of a node, so many seconds after the beginning."""
    at = NOW + timedelta(seconds=seconds)
    ports.nodes.record(xid(31, **{"event_id": name, "node_id": node_id, "observed_at": at, **changes}), "llama", note)


def observations(ports: Ports, own: datetime = LONG_AGO, others: datetime = LONG_AGO, pool: str = "demo") -> list[str]:
    return [s.event_id for s in ports.nodes.observations(A, own, pool, others)]


def limit_to(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    for module in (stores, memory_stores):
        monkeypatch.setattr(module, "FAULTS_LOOKED_UP", count)


def test_a_fault_is_seen_as_it_was_reported(ports: Ports) -> None:
    report(ports, "e", B, subcode="ROW", component="0000:ba:00.0", boot_id="boot-7", labels={"rack": "r1"})

    assert list(ports.nodes.observations(A, NOW, "demo", NOW)) == [
        Observation("e", B, NOW, Family.xid, "31", "ROW", "0000:ba:00.0", "boot-7", "llama", {"rack": "r1"})
    ]


def test_a_fault_without_a_job_or_a_component_is_seen_too(ports: Ports) -> None:
    ports.nodes.record(xid(79, component=None), None)

    [seen] = ports.nodes.observations(A, NOW, "demo", NOW)

    assert (seen.job_id, seen.component, seen.subcode, seen.labels) == (None, None, None, {})


def test_recording_twice_changes_nothing_not_even_the_job(ports: Ports) -> None:
    report(ports, "e")
    ports.nodes.record(xid(31, event_id="e"), "another-job")
    ports.nodes.record(xid(31, event_id="e"), None, "too late")

    [seen] = ports.nodes.observations(A, NOW, "demo", NOW)

    assert (seen.job_id, seen.note) == ("llama", "")


def test_history_is_kept_and_left_out(ports: Ports) -> None:
    report(ports, "old-boot", note="from before the node's current boot")
    report(ports, "neighbours-old-boot", B, note="from before the node's current boot")
    report(ports, "now")

    assert observations(ports) == ["now"]


def test_what_was_history_when_it_came_first_counts_once_it_is_taken(ports: Ports) -> None:
    report(ports, "e", note="its agent has never been heard")
    report(ports, "e")

    assert observations(ports) == ["e"]


@pytest.mark.parametrize("notes", [("", "too late"), ("too late", ""), ("", "too late", "later still", "")])
def test_that_it_came_again_when_it_was_over_is_kept_beside_it(ports: Ports, notes: tuple[str, ...]) -> None:
    for note in notes:
        report(ports, "e", note=note)

    assert sorted(kept(ports)) == ["", "too late"]


def kept(ports: Ports) -> list[str]:
    """The reasons that stand beside the faults on record, one a fault."""
    table = getattr(ports.nodes, "_table", None)
    if not isinstance(table, Table):
        return [observation.note for _, observation in ports.nodes.recorded.values()]  # type: ignore[attr-defined]
    items = [*table.query(names.node_pk(A), names.FAULT_PREFIX), *table.query(names.node_pk(A), names.HISTORY_PREFIX)]
    return [item["note"]["S"] if "note" in item else "" for item in items]


def test_what_is_not_shown_to_the_pool_is_seen_by_its_own_node_alone(ports: Ports) -> None:
    for node_id in (A, B):
        ports.nodes.record(xid(31, event_id=f"of-{node_id}", node_id=node_id), "llama", in_pool=False)

    assert observations(ports) == [f"of-{A}"]


def test_a_node_sees_itself_once_although_it_is_one_of_its_pool(ports: Ports) -> None:
    report(ports, "own")

    assert observations(ports) == ["own"]


def test_two_nodes_that_spell_an_event_alike_are_two(ports: Ports) -> None:
    for name in (A, B):
        report(ports, "same", name)

    assert [s.node_id for s in ports.nodes.observations(A, LONG_AGO, "demo", LONG_AGO)] == [A, B]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_faults_are_told_oldest_first_whatever_order_they_came_in(ports: Ports, order: tuple[int, ...]) -> None:
    kept = [("a", A, 0.0), ("b", B, 0.5), ("c", C, 0.500001)]
    for number in order:
        name, node_id, seconds = kept[number]
        report(ports, name, node_id, seconds)

    assert observations(ports) == ["a", "b", "c"]


def test_each_window_begins_with_its_first_moment(ports: Ports) -> None:
    for seconds in (-1, 0, 1):
        report(ports, f"own{seconds}", A, seconds, pool="another")  # a node that has moved keeps its own past
        report(ports, f"other{seconds}", B, seconds)

    assert observations(ports, NOW, NOW + timedelta(seconds=1)) == ["own0", "other1", "own1"]


def test_times_of_other_zones_are_the_same_times(ports: Ports) -> None:
    in_tokyo = timezone(timedelta(hours=9))
    report(ports, "before", observed_at=(NOW - timedelta(seconds=1)).astimezone(in_tokyo))
    report(ports, "at", observed_at=NOW.astimezone(in_tokyo))

    assert observations(ports, NOW.astimezone(timezone(timedelta(hours=-8))), NOW.astimezone(UTC)) == ["at"]


def test_another_pool_is_another_world(ports: Ports) -> None:
    report(ports, "theirs", B, pool="elsewhere")
    report(ports, "ours", B)

    assert observations(ports) == ["ours"]
    assert observations(ports, pool="elsewhere") == ["theirs"]


def test_a_pool_whose_name_begins_another_is_not_it(ports: Ports) -> None:
    report(ports, "theirs", B, pool="demo-2")

    assert observations(ports) == []


def test_only_the_newest_are_looked_at(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_to(monkeypatch, 2)
    for seconds in (3, 1, 2):
        report(ports, f"own{seconds}", A, seconds, pool="another")
        report(ports, f"other{seconds}", B, seconds)

    assert observations(ports) == ["other2", "own2", "other3", "own3"]


def test_a_nodes_history_takes_no_place_of_its_faults(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_to(monkeypatch, 2)
    report(ports, "fault", A, 1, pool="another")
    for seconds in (2, 3):
        report(ports, f"old{seconds}", A, seconds, note="from before", pool="another")

    assert observations(ports) == ["fault"]


def test_a_pools_history_takes_no_place_of_its_faults(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_to(monkeypatch, 2)
    for seconds in (1, 2):
        report(ports, f"fault{seconds}", B, seconds)
    for seconds in (3, 4):
        report(ports, f"old{seconds}", B, seconds, note="from before")

    assert observations(ports) == ["fault1", "fault2"]


def test_long_evidence_does_not_cut_the_past_short(ports: Ports) -> None:
    count = 1_300_000 // EVIDENCE_BYTES  # more than DynamoDB gives in one answer
    for number in range(count):
        report(ports, f"e{number:03d}", A, number, evidence="x" * EVIDENCE_BYTES, pool="another")

    assert len(observations(ports)) == count
    assert count < FAULTS_LOOKED_UP


def test_a_pool_is_read_eventually_and_a_nodes_own_past_at_once(ports: Ports) -> None:
    report(ports, "own", A)
    report(ports, "other", B)
    table = getattr(ports.nodes, "_table", None)
    if not isinstance(table, Table):
        return  # a dictionary has no index that lags
    lagging = Table(_IndexLags(table.client), table.name)  # type: ignore[arg-type]

    assert [s.event_id for s in stores.DynamoNodeStore(lagging).observations(A, NOW, "demo", NOW)] == ["own"]


class _IndexLags:
    """DynamoDB whose index has not seen the newest writes."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def get_paginator(self, name: str) -> Any:
        return _Pages(self._client.get_paginator(name))


class _Pages:
    def __init__(self, pages: Any) -> None:
        self._pages = pages

    def paginate(self, **arguments: Any) -> Any:
        if arguments.get("IndexName") == names.INDEX:
            assert "ConsistentRead" not in arguments  # DynamoDB refuses it over an index
            return [{"Items": []}]
        assert arguments["ConsistentRead"] is True
        return self._pages.paginate(**arguments)
