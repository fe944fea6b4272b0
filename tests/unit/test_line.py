"""Whoever comes now does not pass those who stand in line for a slot, and nobody stands there for ever."""

from nodeheal.contract.results import Refused
from nodeheal.contract.vocabulary import Outcome, Refusal, Step
from nodeheal.services.recovery.queue import wake_queue
from nodeheal.services.recovery.wait_for_news import wait_for_news
from tests.support.builders import ACT
from tests.support.incident_steps import A, Incident
from tests.support.queues import stands
from tests.support.step_functions import isolate_node


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
