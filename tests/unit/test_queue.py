"""The queue and the slots of a pool: who goes first, who is woken, and which slots are given back."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.contract.results import Refused
from nodeheal.contract.vocabulary import Action, Awaited, IncidentState, NodeState, Outcome, Refusal, Step, Verdict
from nodeheal.domain.fleet.pool import Slots
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Budget, Mode, PoolPolicy
from nodeheal.domain.recovery import incident as incidents
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.ports import Ports
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.recovery.end_incident import end_incident
from nodeheal.services.recovery.pool_size import slots_of
from nodeheal.services.recovery.queue import place_of, wake_after_reset, wake_all, wake_for_free_slots, wake_queue
from nodeheal.services.recovery.wait_for_news import wait_for_news
from nodeheal.services.sweep import sweep
from tests.support.builders import ACT, NOW, memory_ports, node, xid
from tests.support.fake_cluster import BROKEN, PEER, SPARE, FakeCluster
from tests.support.incident_steps import A, B, Incident
from tests.support.policies import with_policy
from tests.support.queues import WAITS, stands
from tests.support.step_functions import isolate_node


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
    incident = incidents.Incident("inc-1", "mi-1", "demo", xid(), NOW, "policy-1")

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


def refused(it: Incident) -> str:
    isolate_node(it.request(), it.ports, ACT)
    assert it.resumed().outcome is Outcome.REFUSED
    assert it.resumed().facts == Refused(code=Refusal.BUDGET_FULL, slots=1)
    return it.resumed().reason


def test_a_newcomer_stands_behind_those_in_line_although_a_slot_is_free() -> None:
    it = Incident()
    stands(it.ports, "inc-before")

    assert refused(it) == "1 incident stands in line for the disruption budget of pool demo"
    assert list(it.ports.pools.holders("demo")) == []


def test_the_newcomers_wait_has_the_first_in_line_called_where_a_slot_is_free() -> None:
    it = Incident()
    stands(it.ports, "inc-before", minutes=-1, job="llama")
    refused(it)

    wait_for_news(it.request(), it.ports)

    assert "token-inc-before" in it.ports.workflows.resumed  # type: ignore[attr-defined]
    assert it.is_waiting()


def test_where_it_is_itself_the_first_it_is_called_itself() -> None:
    it = Incident()
    stands(it.ports, "inc-idle")  # holds up no job
    refused(it)

    wait_for_news(it.request(), it.ports)

    assert not it.is_waiting()


def test_one_that_has_been_called_may_take_the_slot_although_others_stand_in_line() -> None:
    it = Incident()
    it.ports.pools.claim("demo", "mi-0other", 1)
    refused(it)
    wait_for_news(it.request(), it.ports)
    stands(it.ports, "inc-later")
    it.ports.pools.release("demo", "mi-0other")
    wake_queue("demo", it.ports)
    it.resumed()

    request = it.request()
    assert request.decision.step is Step.ISOLATE
    isolate_node(request, it.ports, ACT)

    assert list(it.ports.pools.holders("demo")) == [A]


def test_a_node_that_has_its_slot_already_stands_behind_nobody() -> None:
    it = Incident()
    it.ports.pools.claim("demo", A, 1)
    stands(it.ports, "inc-before")

    isolate_node(it.request(), it.ports, ACT)

    assert it.node().drained_by_us


def test_while_the_budget_is_full_nobody_is_called() -> None:
    it = Incident()
    it.ports.pools.claim("demo", "mi-0other", 1)
    refused(it)

    wait_for_news(it.request(), it.ports)

    assert it.is_waiting()


def waits_in_line(it: Incident) -> None:
    """Another incident's node has the only slot."""
    isolate_node(it.request(), it.ports, it.policy)
    assert it.resumed().outcome is Outcome.REFUSED
    wait_for_news(it.request(), it.ports)
    assert it.is_waiting()


def test_a_slot_of_a_node_that_its_broken_workflow_never_isolated_is_found_by_the_sweep() -> None:
    it = Incident()
    ingest(xid(79, node_id=B, instance_id=B, event_id="b"), it.ports, it.policy)
    it.ports.pools.claim("demo", B, 1)  # the call died right after: the workflow paged, and left it to a human
    broke = it.ports.incidents.history(str(it.node(B).open_incident)).incident
    it.ports.incidents.finish(replace(broke, state=IncidentState.ESCALATED))
    waits_in_line(it)

    sweep(it.ports, ACT)

    assert it.resumed().outcome is Outcome.DONE


def test_the_sweep_leaves_the_slot_of_a_node_that_is_just_being_isolated() -> None:
    it = Incident()
    it.ports.pools.claim("demo", B, 1)
    ingest(xid(79, node_id=B, instance_id=B, event_id="b"), it.ports, it.policy)
    waits_in_line(it)

    sweep(it.ports, ACT)

    assert it.is_waiting()
    assert list(it.ports.pools.holders("demo")) == [B]


def test_the_sweep_leaves_the_slot_of_a_node_that_is_out_of_service() -> None:
    it = Incident()
    it.ports.pools.claim("demo", B, 1)
    it.ports.nodes.save(replace(it.node(B), state=NodeState.QUARANTINED))
    waits_in_line(it)

    sweep(it.ports, ACT)

    assert it.is_waiting()


@pytest.mark.parametrize(
    ("code", "verdict", "is_waiting"),
    [(79, Verdict.FAILED, True), (63, Verdict.OK, True), (74, Verdict.FAILED, False)],
    ids=["the same fault", "good news", "another fault"],
)
def test_only_another_fault_is_news_to_an_incident_that_stands_in_line(
    code: int, verdict: Verdict, is_waiting: bool
) -> None:
    it = Incident()
    it.ports.pools.claim("demo", B, 1)
    it.ports.nodes.save(replace(it.node(B), state=NodeState.QUARANTINED))
    waits_in_line(it)

    it.clock.advance(60)
    ingest(xid(code, event_id="later", verdict=verdict, observed_at=it.clock()), it.ports, it.policy)

    assert it.is_waiting() is is_waiting


def quarantined(ports: Ports, *names: str) -> None:
    for name in names:
        ports.nodes.save(node(name, state=NodeState.QUARANTINED))
        assert ports.pools.claim("demo", name, 99)


def policy(**budget: float) -> RecoveryPolicy:
    found = Budget.model_validate({"max_nodes": 1, "max_percent": 100, **budget})
    return ACT.model_copy(update={"default_pool": PoolPolicy(mode=Mode.act, budget=found)})


def test_a_quarantined_node_does_not_keep_the_pools_next_fault_waiting() -> None:
    """With the budget as it is by default: one node. Its slot was held until a human came."""
    it = FakeCluster(policy())
    it.reports(xid(54, node_id=SPARE, instance_id=SPARE, event_id="on-the-spare"))
    assert it.node(SPARE).state is NodeState.QUARANTINED

    it.reports(xid(79))

    assert it.node(BROKEN).state is NodeState.PROBATION
    told = [turn.decision.reason for turn in it.ports.incidents.history(incident_id_of(xid(79))).turns]
    assert not [reason for reason in told if "in line" in reason]


def test_the_second_quarantined_node_holds_the_slot() -> None:
    ports = memory_ports()
    quarantined(ports, SPARE)
    assert slots_of("demo", ports, policy()) == Slots(1, extra=1)
    quarantined(ports, PEER)

    assert slots_of("demo", ports, policy()) == Slots(1, extra=1)
    assert not ports.pools.claim("demo", BROKEN, slots_of("demo", ports, policy()).total)


def test_a_slot_that_a_quarantined_node_gave_back_is_shown_beside_the_budget() -> None:
    it = FakeCluster(policy())
    for name in (SPARE, PEER):
        it.reports(xid(54, node_id=name, instance_id=name, event_id=f"on-{name}"))

    it.reports(xid(79))

    told = [t.result.reason for t in it.ports.incidents.history(incident_id_of(xid(79))).turns if t.result]
    assert told[0].startswith(
        "the disruption budget of pool demo is full: 2 of 2 slots are taken, 1 of them only while"
    )


@pytest.mark.parametrize(
    ("slots", "percent", "uncounted"),
    [
        (1, 50, [0, 1, 1, 1]),
        (2, 50, [0, 0, 1, 1]),
        (4, 50, [0, 0, 0, 1, 2, 2, 2]),
        (4, 100, [0, 0, 0, 0, 0, 0]),
        (4, 0, [0, 1, 2, 3, 4, 4]),
        (0, 50, [0, 0, 0]),
    ],
)
def test_how_many_quarantined_nodes_count_for_no_slot(slots: int, percent: float, uncounted: list[int]) -> None:
    budget = Budget(quarantine_percent=percent)

    assert [budget.uncounted(slots, quarantined) for quarantined in range(len(uncounted))] == uncounted


@given(slots=st.integers(0, 50), percent=st.floats(0, 100), quarantined=st.integers(0, 200))
def test_so_many_nodes_are_out_of_service_at_the_very_most(slots: int, percent: float, quarantined: int) -> None:
    budget = Budget(quarantine_percent=percent)
    limit = slots + budget.uncounted(slots, quarantined)

    assert slots <= limit <= budget.most_out(slots) <= 2 * slots
    assert quarantined >= slots or limit - quarantined >= slots - int(slots * percent / 100)


def test_nobody_reads_the_nodes_while_slots_are_free() -> None:
    ports = memory_ports()
    ports.nodes.get = None  # type: ignore[assignment,method-assign]

    assert slots_of("demo", ports, policy(max_nodes=2, floor_nodes=2)) == Slots(2)


def test_an_incident_that_ends_with_a_quarantined_node_wakes_the_next_in_line() -> None:
    it = Incident(54, policy=policy())
    it.isolate()
    ending = it.request()
    stands(it.ports, "next")

    end_incident(ending, it.ports, policy())

    assert it.node().state is NodeState.QUARANTINED
    assert "token-next" in it.ports.workflows.resumed  # type: ignore[attr-defined]
