"""The queries of nodeheal.api: what a screen or a program reads of the fleet."""

from dataclasses import replace
from datetime import timedelta

import pytest

from nodeheal.api import queries
from nodeheal.api.views import Todo, TodoKind
from nodeheal.contract.vocabulary import ActKind, Verdict
from tests.unit.builders import xid
from tests.workflows.fake_cluster import BROKEN, FakeCluster


def todo_of(cluster: FakeCluster) -> list[Todo]:
    return list(queries.fleet(["demo"], cluster.ports, cluster.policy).todo)


def test_nothing_waits_in_a_well_fleet() -> None:
    assert todo_of(FakeCluster()) == []


def test_an_incident_that_was_handed_over_waits_to_be_closed() -> None:
    cluster = FakeCluster()
    cluster.diagnoses[BROKEN] = Verdict.FAILED
    cluster.reports(xid(79, node_id=BROKEN, instance_id=BROKEN))

    [todo] = todo_of(cluster)

    assert (todo.kind, todo.subject, todo.node) == (TodoKind.TAKE_OVER, cluster.incident_id, BROKEN)
    assert todo.acts == (ActKind.RELEASE, ActKind.RETIRE)  # either closes it
    assert todo.since == cluster.ports.incidents.incident(cluster.incident_id).opened_at


def test_an_open_breaker_waits_to_be_reset_and_says_why_it_opened() -> None:
    cluster = FakeCluster()
    opened_at = cluster.clock()
    tripped = cluster.ports.pools.get("demo").tripped("9 of 10 nodes failed within a minute", opened_at)
    cluster.ports.pools.save(tripped)

    [todo] = todo_of(cluster)

    assert (todo.kind, todo.subject, todo.node) == (TodoKind.RESET_BREAKER, "demo", None)
    assert (todo.since, todo.why, todo.acts) == (opened_at, tripped.breaker_why, (ActKind.RESET_BREAKER,))


@pytest.mark.parametrize("breaker", [True, False])
def test_a_view_is_its_own_json(breaker: bool) -> None:
    cluster = FakeCluster()
    if breaker:
        pool = replace(cluster.ports.pools.get("demo"), breaker_opened_at=cluster.clock(), breaker_why="nine failed")
        cluster.ports.pools.save(pool)
    cluster.clock.advance(timedelta(milliseconds=1_234).total_seconds())

    view = queries.fleet(["demo"], cluster.ports, cluster.policy)
    data = view.model_dump(mode="json")

    assert data["at"] == view.at.isoformat(timespec="seconds")
    assert data["pools"][0]["breaker_why"] == ("nine failed" if breaker else None)
    assert [todo["acts"] for todo in data["todo"]] == ([["RESET_BREAKER"]] if breaker else [])
