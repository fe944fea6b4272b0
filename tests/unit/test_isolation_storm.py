"""Many nodes are isolated at once: those whose call was throttled are switched off by the next call that is taken.

Each is held to what it would be held to by its own function, and each isolation ends its own step.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.vocabulary import IncidentState, NodeState, Outcome
from nodeheal.domain.errors import NotAccepted, NotEnrolled
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.policy.policy_models import Budget
from tests.support.builders import ACT, scheduler_in
from tests.support.crashes import Crash, crashing
from tests.support.isolation_storm import FIRST, LAST, NAMES, SECOND, STORM, Storm
from tests.support.step_functions import isolate_node


def test_a_single_node_asks_for_itself_and_reads_no_line() -> None:
    it = Storm(FIRST)

    it.isolates(FIRST)

    assert it.calls == [("placement_of", 1), ("drain_all", 1)]
    assert it.ended(FIRST) is Outcome.DONE


def test_who_was_throttled_takes_nine_others_along() -> None:
    it = Storm()
    it.is_throttled()

    it.isolates(FIRST)

    assert it.calls == [("names_in_service", 10), ("drain_all", 10)]
    assert it.draining == NAMES[:10]
    assert it.in_line == NAMES[10:]
    holders = it.ports.pools.holders("demo")
    assert sorted(holders) == NAMES[:10]
    assert all(it.node(name).state is NodeState.ISOLATED and it.node(name).drained_by_us for name in NAMES[:10])


def test_each_of_them_ends_its_own_step_and_asks_the_scheduler_nothing_more() -> None:
    it = Storm()
    it.is_throttled()
    it.isolates(FIRST)
    it.calls.clear()
    assert [it.ended(name) for name in NAMES[:10]] == [Outcome.DONE, *[None] * 9]

    for name in NAMES[1:10]:
        it.isolates(name)

    assert it.calls == []
    assert {it.ended(name) for name in NAMES[:10]} == {Outcome.DONE}
    assert scheduler_in(it.ports).isolated_by == {name: it.asked[name].incident_id for name in NAMES[:10]}


@pytest.mark.parametrize("error", [NotAccepted("TagResource: ThrottlingException"), NotEnrolled("ECS denies it")])
def test_a_node_that_cannot_be_tagged_is_isolated_all_the_same(error: Exception) -> None:
    it = Storm(FIRST)

    def refused(*_: object) -> None:
        raise error

    scheduler_in(it.ports).show_isolation = refused

    it.isolates(FIRST)

    assert (it.draining, it.ended(FIRST)) == ([FIRST], Outcome.DONE)


def test_tasks_that_were_there_when_a_node_was_drained_by_another_are_looked_at_by_its_own() -> None:
    it = Storm()
    task = UnmanagedTask("task-1", "eval:3", "cron")
    scheduler_in(it.ports).unmanaged = {"task-1": (SECOND, task)}
    it.is_throttled()
    it.isolates(FIRST)

    it.isolates(SECOND)

    assert it.calls[-1] == ("unmanaged_tasks", 1)
    assert "left to run" in it.operation(SECOND).result.reason


def test_the_last_in_line_goes_by_itself() -> None:
    it = Storm()
    it.is_throttled()

    it.isolates(LAST)

    assert it.calls == [("placement_of", 1), ("drain_all", 1)]
    assert it.draining == [LAST]


# Who is not taken along -----------------------------------------------------------------------------------------------


def ends_incident(it: Storm) -> None:
    it.writes(SECOND, open_incident=None)


def is_of_another_incident(it: Storm) -> None:
    it.writes(SECOND, open_incident="another")


def boots(it: Storm) -> None:
    it.writes(SECOND, boot_id="boot-2")


def is_retired(it: Storm) -> None:
    it.writes(SECOND, state=NodeState.RETIRED)


def has_given_up(it: Storm) -> None:
    it.ports.operations.save(it.operation(SECOND).delivered())


def has_lost_its_workflow(it: Storm) -> None:
    """It broke, and the state machine has handed the incident to people."""
    incidents = it.ports.incidents
    head = incidents.incident(it.asked[SECOND].incident_id)
    incidents.finish(replace(head, state=IncidentState.ESCALATED))


def is_past_its_deadline(it: Storm) -> None:
    assert it.ports.operations.save(replace(it.operation(SECOND), deadline_at=it.clock() - timedelta(seconds=1)))


def has_been_drained_since(it: Storm) -> None:
    it.ports.operations.save(replace(it.operation(SECOND), line=None))


@pytest.mark.parametrize(
    "what",
    [
        ends_incident,
        is_of_another_incident,
        boots,
        is_retired,
        has_given_up,
        has_lost_its_workflow,
        is_past_its_deadline,
        has_been_drained_since,
    ],
    ids=lambda what: what.__name__,
)
def test_who_is_not_to_be_isolated_any_more_is_not_taken_along(what: Callable[[Storm], None]) -> None:
    it = Storm(*NAMES[:4])
    it.is_throttled(*NAMES[:4])
    what(it)

    it.isolates(FIRST)

    assert it.draining == [FIRST, *NAMES[2:4]]
    assert SECOND not in it.ports.pools.holders("demo") and it.node(SECOND).state is not NodeState.ISOLATED
    assert it.ended(FIRST) is Outcome.DONE


def test_who_finds_no_slot_is_not_taken_along() -> None:
    it = Storm(*NAMES[:4])
    it.is_throttled(*NAMES[:4])
    full = ACT.default_pool.model_copy(update={"budget": Budget(max_nodes=2, max_percent=100)})

    isolate_node(it.asked[FIRST], it.ports, STORM.model_copy(update={"default_pool": full}))

    assert it.draining == [FIRST, SECOND] == sorted(it.ports.pools.holders("demo"))


def test_an_isolation_that_is_taken_back_while_others_are_marked_is_not_drained() -> None:
    """It was denied, say: its own function takes back what the other has recorded."""
    it = Storm(*NAMES[:3])
    it.is_throttled(*NAMES[:3])
    save = it.ports.nodes.save

    def taken_back(node: Node) -> bool:
        is_saved = save(node)
        if node.node_id == NAMES[2] and node.state is NodeState.ISOLATED:
            it.writes(SECOND, state=NodeState.SUSPECT, drained_by_us=False)
            it.ports.pools.release("demo", SECOND)
        return is_saved

    it.ports.nodes.save = taken_back  # type: ignore[method-assign]

    it.isolates(FIRST)

    assert it.draining == [FIRST, NAMES[2]]


@pytest.mark.parametrize("where", ["unknown_nodes", "not_enrolled", "draining"])
def test_one_that_cannot_be_drained_holds_up_no_other(where: str) -> None:
    """Who it is, no answer says: the node whose call it was goes by itself."""
    it = Storm(*NAMES[:3])
    it.is_throttled(*NAMES[:3])
    getattr(scheduler_in(it.ports), where).add(SECOND)

    for name in (FIRST, NAMES[2], SECOND):
        it.isolates(name)

    assert {it.ended(FIRST), it.ended(NAMES[2])} == {Outcome.DONE}
    assert it.ended(SECOND) is (Outcome.DONE if where == "draining" else Outcome.FAILED)
    assert not it.node(SECOND).drained_by_us or where == "unknown_nodes"
    held = [FIRST, NAMES[2], *([SECOND] if where == "draining" else [])]
    assert sorted(it.ports.pools.holders("demo")) == sorted(held) and it.in_line == []


def test_a_node_that_ecs_forgets_between_the_look_and_the_call_is_left_to_its_own_function() -> None:
    it = Storm(*NAMES[:3])
    it.is_throttled(*NAMES[:3])
    scheduler = scheduler_in(it.ports)
    drain_all = scheduler.drain_all

    def forgets(nodes: Any, placements: Any) -> Any:
        scheduler.unknown_nodes.add(SECOND)
        return drain_all(nodes, placements)

    scheduler.drain_all = forgets

    it.isolates(FIRST)

    assert it.draining == [FIRST, NAMES[2]]
    assert it.in_line == [SECOND]
    assert it.ended(FIRST) is Outcome.DONE


# Crashes --------------------------------------------------------------------------------------------------------------


def test_a_batch_that_crashes_anywhere_is_made_up_for_by_the_repeats() -> None:
    names = NAMES[:3]
    for crash_after in range(1, 200):
        it = Storm(*names)
        it.is_throttled(*names)
        ports, calls = crashing(it.ports, crash_after)
        try:
            it.isolates(FIRST, ports)
        except Crash:
            for name in names:
                it.isolates(name)
        else:
            assert len(calls.names) < crash_after
            break
        assert {it.ended(name) for name in names} == {Outcome.DONE}, calls.names
        assert it.draining == names == sorted(it.ports.pools.holders("demo"))
        assert all(it.node(name).drained_by_us for name in names)
        assert scheduler_in(it.ports).isolated_by == {name: it.asked[name].incident_id for name in names}
        assert it.in_line == []
    else:
        raise AssertionError("more calls than were crashed")
    assert crash_after > 40
