"""The line of a pool: who goes first when a slot is free, and who is woken when the breaker is reset."""

from dataclasses import replace

import pytest

from nodeheal.contract.vocabulary import Action, Awaited, NodeState
from nodeheal.domain.recovery.incident import Incident
from nodeheal.ports import Ports
from nodeheal.services.recovery.queue import place_of, wake_after_reset, wake_all, wake_for_free_slots, wake_queue
from tests.support.builders import ACT, NOW, memory_ports, node, xid
from tests.support.policies import with_policy
from tests.support.queues import WAITS, stands


def woken_in_order(ports: Ports) -> list[str]:
    found: list[str] = []
    while (incident := wake_queue("demo", ports)) is not None:
        found.append(incident)
    return found


def test_those_that_hold_up_a_job_go_first_then_the_gravest_then_the_oldest() -> None:
    ports = memory_ports()
    stands(ports, "younger", minutes=2)
    stands(ports, "older", minutes=1)
    stands(ports, "graver", WAITS.model_copy(update={"action": Action.REPLACE}), minutes=3)
    stands(ports, "holds-a-job-up", minutes=4, job="llama")

    assert woken_in_order(ports) == ["holds-a-job-up", "graver", "older", "younger"]


def test_one_free_slot_wakes_one() -> None:
    ports = memory_ports()
    stands(ports, "a")
    stands(ports, "b")

    wake_queue("demo", ports)

    assert list(ports.workflows.resumed) == ["token-a"]  # type: ignore[attr-defined]


def test_one_that_waits_no_more_does_not_keep_the_next_from_going() -> None:
    ports = memory_ports()
    stands(ports, "a")
    stands(ports, "b")
    ports.workflows.expired.add("token-a")  # type: ignore[attr-defined]

    assert wake_queue("demo", ports) == "b"
    assert list(ports.operations.queued("BUDGET/demo")) == []


def test_a_free_slot_does_not_wake_those_who_wait_for_the_breaker() -> None:
    ports = memory_ports()
    stands(ports, "tripped", WAITS.model_copy(update={"awaits": Awaited.BREAKER}))

    assert wake_queue("demo", ports) is None
    assert wake_all("demo", Awaited.BREAKER, ports) == 1


def test_a_place_names_its_incident_so_that_no_two_are_the_same() -> None:
    incident = Incident("inc-1", "mi-1", "demo", xid(), NOW, "policy-1")

    assert place_of(WAITS, incident) == "94#2026-03-01T03:00:00Z#inc-1"
    assert place_of(WAITS, replace(incident, incident_id="inc-2")) != place_of(WAITS, incident)


@pytest.mark.parametrize(
    ("state", "kept"),
    [(NodeState.PROBATION, []), (NodeState.HEALTHY, []), (NodeState.RETIRED, []), (NodeState.QUARANTINED, ["a"])],
)
def test_a_slot_that_a_crash_has_left_is_given_back_although_nobody_stands_in_line(
    state: NodeState, kept: list[str]
) -> None:
    ports = memory_ports()
    ports.nodes.save(node("a", state=state))
    ports.pools.claim("demo", "a", 1)

    wake_for_free_slots("demo", ports, ACT)

    assert ports.pools.holders("demo") == kept


def test_the_sweep_wakes_as_many_as_there_are_free_slots() -> None:
    ports = memory_ports()
    for number in range(10):
        ports.nodes.save(node(f"mi-{number:017d}", state=NodeState.ISOLATED))
    for name in ("a", "b", "c"):
        stands(ports, name)
    ports.pools.claim("demo", "mi-00000000000000000", 3)
    policy = with_policy(default_pool={"budget": {"max_nodes": 3, "max_percent": 100}})

    assert wake_for_free_slots("demo", ports, policy) == ["a", "b"]
    ports.pools.claim("demo", "mi-00000000000000001", 3)
    ports.pools.claim("demo", "mi-00000000000000002", 3)
    assert wake_for_free_slots("demo", ports, policy) == []


def test_only_who_was_woken_is_said_to_be() -> None:
    ports = memory_ports()
    for number in range(10):
        ports.nodes.save(node(f"mi-{number:017d}"))
    for name in ("a", "b"):
        stands(ports, name)
    for name in ("c", "d"):
        stands(ports, name, WAITS.model_copy(update={"awaits": Awaited.BREAKER}))
    policy = with_policy(default_pool={"budget": {"max_nodes": 3, "max_percent": 100}})
    ports.workflows.expired |= {"token-b", "token-d"}  # type: ignore[attr-defined]

    assert wake_for_free_slots("demo", ports, policy) == ["a"]
    assert wake_after_reset("demo", ports) == ["c"]
