"""A program's way in: what waits, what an act will do, the act, and what is on record then."""

from datetime import timedelta

import pytest

from nodeheal.api.client import Client
from nodeheal.contract.acts import (
    Act,
    Drain,
    Reconcile,
    RecoveryRequested,
    Release,
    ResetBreaker,
    StopJob,
    SubmitJob,
)
from nodeheal.contract.job_spec import JobSpec
from nodeheal.domain.errors import Conflict, NotFound
from tests.support.acts import MemoryControlPlane
from tests.support.builders import ACT, NOW, memory_ports, node
from tests.support.jobs import ecs_job

A = "mi-0a1b2c3d4e5f60718"


@pytest.fixture
def client() -> Client:
    ports = memory_ports()
    ports.nodes.save(node(A))
    return Client(ports, lambda: ACT, MemoryControlPlane(ports, ACT))


def test_a_drain_is_previewed_done_and_seen(client: Client) -> None:
    act = Drain(node=A, why="new riser")

    shown = {fact.label: fact.text for fact in client.preview(act).facts}
    done = client.do(act)

    assert shown["node"] == f"{A} (pool demo), HEALTHY"
    assert "then" in shown
    assert isinstance(done, RecoveryRequested)
    assert client.node(A).incident == done.incident
    assert client.incident(done.incident).node_id == A
    assert [row.incident for row in client.incidents(NOW - timedelta(hours=1)).rows] == [done.incident]
    assert [row.node for row in client.nodes().rows] == [A]
    assert client.jobs().rows == ()
    assert client.todo() == ()


@pytest.mark.parametrize("act", [Drain(node="mi-0unknown", why="x"), StopJob(job="llama", why="x")])
def test_a_preview_refuses_what_the_act_would(client: Client, act: Act) -> None:
    with pytest.raises(NotFound):
        client.preview(act)
    with pytest.raises(NotFound):
        client.do(act)


def test_a_release_of_a_node_in_service_is_refused_before_and_after(client: Client) -> None:
    act = Release(node=A, why="x")

    for refused in (client.preview, client.do):
        with pytest.raises(ValueError, match="nodeheal has not taken it out of service"):
            refused(act)


@pytest.mark.parametrize(
    "act", [ResetBreaker(pool="demo", why="x"), SubmitJob(spec=JobSpec(name="llama", pool="demo", nodes=1, image="a"))]
)
def test_a_preview_refuses_what_is_there_already_or_closed(client: Client, act: Act) -> None:
    client.ports.jobs.save(ecs_job("llama", "demo", "training", "trainer:1", "trainer", 1))

    for refused in (client.preview, client.do):
        with pytest.raises((Conflict, ValueError)):
            refused(act)


def test_a_pool_that_is_not_known_is_named(client: Client) -> None:
    with pytest.raises(NotFound, match="no pool nope is known; known: demo"):
        client.nodes(["nope"])


def test_every_act_has_a_preview(client: Client) -> None:
    assert [fact.label for fact in client.preview(Reconcile(why="restored")).facts] == ["then"]
