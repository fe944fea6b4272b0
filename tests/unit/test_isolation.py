"""Isolation is exact: a crash between any two calls is made up for by a repeat, and only what we did is undone."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nodeheal.contract.vocabulary import NodeState, Outcome
from nodeheal.ports import Ports
from nodeheal.services.recovery.return_to_service import return_to_service
from tests.support.builders import ACT, scheduler_in
from tests.support.crashes import CALLS_AT_MOST, Crash, crashing
from tests.support.incident_steps import A, Incident
from tests.support.step_functions import isolate_node


def with_every_crash(make: Callable[[], Incident], step: Callable[[Incident, Ports], None]) -> list[Incident]:
    """The step on a fresh world each, crashed after its first call, its second, and so on, and then repeated."""
    ended = []
    for crash_after in range(1, CALLS_AT_MOST):
        it = make()
        ports, calls = crashing(it.ports, crash_after)
        try:
            step(it, ports)
        except Crash:
            step(it, it.ports)
            ended.append(it)
            continue
        assert len(calls.names) < crash_after
        return ended
    raise AssertionError(f"more than {CALLS_AT_MOST} calls")


def isolation(it: Incident, ports: Ports) -> None:
    it.asked = getattr(it, "asked", None) or it.request()  # type: ignore[attr-defined]
    isolate_node(it.asked, ports, ACT)  # type: ignore[attr-defined]


def test_a_node_that_iam_does_not_let_us_drain_is_as_it_was_and_named_to_a_human() -> None:
    it = Incident()
    before = it.node()
    scheduler_in(it.ports).not_enrolled.add(A)

    isolate_node(it.request(), it.ports, ACT)

    assert it.resumed().outcome is Outcome.FAILED
    assert "tag" in it.resumed().reason
    assert (it.node().state, it.node().drained_by_us) == (before.state, False)
    assert list(it.ports.pools.holders("demo")) == []
    assert scheduler_in(it.ports).stopped == {}


def drained_by_an_operator() -> Incident:
    it = Incident()
    scheduler_in(it.ports).draining.add(A)
    return it


def to_be_returned() -> Incident:
    it = Incident()
    it.isolate(), it.reboot(), it.diagnose()
    it.asked = it.request()  # type: ignore[attr-defined]
    return it


def the_return(it: Incident, ports: Ports) -> None:
    it.last = return_to_service(it.asked, ports, ACT)  # type: ignore[attr-defined]


def test_an_isolation_that_crashes_anywhere_ends_as_if_it_had_not() -> None:
    worlds = with_every_crash(Incident, isolation)

    assert len(worlds) > 10
    for it in worlds:
        assert (it.node().state, it.node().drained_by_us) == (NodeState.ISOLATED, True)
        assert scheduler_in(it.ports).isolated_by == {A: it.id}
        assert list(it.ports.pools.holders("demo")) == [A]
        assert set(scheduler_in(it.ports).stopped) == {"task-llama-1-0", "task-llama-1-1"}


def test_an_operators_drain_stays_theirs_wherever_the_isolation_crashes() -> None:
    worlds = with_every_crash(drained_by_an_operator, isolation)

    assert len(worlds) > 10
    for it in worlds:
        assert (it.node().state, it.node().drained_by_us) == (NodeState.ISOLATED, False)
        assert scheduler_in(it.ports).isolated_by == {}


def test_a_return_that_crashes_anywhere_undoes_the_isolation_whole() -> None:
    worlds = with_every_crash(to_be_returned, the_return)

    assert len(worlds) > 5
    for it in worlds:
        assert scheduler_in(it.ports).draining == set()
        assert scheduler_in(it.ports).isolated_by == {}
        assert (it.node().state, it.node().drained_by_us) == (NodeState.PROBATION, False)
        assert list(it.ports.pools.holders("demo")) == []


def test_a_drain_of_our_own_from_an_earlier_incident_is_still_ours() -> None:
    it = Incident()
    scheduler_in(it.ports).draining.add(A)
    it.ports.nodes.save(replace(it.node(), drained_by_us=True))

    it.isolate(), it.reboot(), it.diagnose(), it.give_back()

    assert scheduler_in(it.ports).draining == set()


def test_an_operators_drain_that_comes_while_the_node_is_written_by_others_is_seen() -> None:
    """The save loses a race; the look is made again, and what it sees then counts."""
    it = Incident()
    save = it.ports.nodes.save

    def lose_once(node: Any) -> bool:
        if A not in scheduler_in(it.ports).draining:
            scheduler_in(it.ports).draining.add(A)
            save(it.node())
        return save(node)

    it.ports.nodes.save = lose_once  # type: ignore[method-assign]

    isolate_node(it.request(), it.ports, ACT)

    assert not it.node().drained_by_us


def test_a_stop_that_crashes_anywhere_is_resumed_when_the_gang_has_stopped() -> None:
    worlds = with_every_crash(Incident, isolation)

    for it in worlds:
        for rank in (0, 1):
            it.task_is("STOPPED", rank, exit_code=143)

        assert it.resumed().outcome is Outcome.DONE
