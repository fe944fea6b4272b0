"""The isolation's small judgements: who holds a node, who stands in line, who is switched off, and when it is over."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.results import Isolated, StepResult
from nodeheal.contract.vocabulary import NodeState, Outcome, Refusal, VerbName
from nodeheal.domain.errors import NotEnrolled, NotFound
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.operation import Operation, OperationState
from nodeheal.operations import isolate
from nodeheal.operations.gang import GangFacts, GangRecord, record_of
from nodeheal.operations.handler import VerbContext
from nodeheal.ports import Ports
from nodeheal.services.steps import save_node
from tests.support.builders import (
    ACT,
    NOW,
    FrozenClock,
    memory_ports,
    node,
    scheduler_in,
    started_job,
    stored_node,
    stored_run,
    under_way,
)
from tests.support.incident_steps import A, Incident
from tests.support.isolation_storm import FIRST, NAMES, SECOND, STORM, Storm
from tests.support.jobs import ecs_job
from tests.support.step_functions import isolate_node

PLACE = f"placement-of-{A}"
DRAINED: dict[str, Any] = {"drained_at": NOW, "by_us": True, "placement": PLACE}


@pytest.fixture
def ports() -> Ports:
    made = memory_ports(FrozenClock())
    made.nodes.save(node(A, state=NodeState.SUSPECT, open_incident="inc-1"))
    return made


def isolating(ports: Ports, *, changes: dict[str, Any] | None = None, **record: Any) -> Operation:
    known = GangRecord(**record).model_dump_json()
    return under_way(ports, VerbName.ISOLATE, node_id=A, data_json=known, **changes or {})


def by(incident_id: str | None, state: NodeState = NodeState.ISOLATED) -> Node:
    return node(A, state=state, open_incident=incident_id)


@pytest.mark.parametrize(
    ("on_record", "holds"),
    [(by("inc-1"), True), (by("inc-2"), False), (by(None), False), (by("inc-1", NodeState.SUSPECT), False)],
)
def test_an_isolation_holds_a_node_that_its_own_incident_has_isolated(
    ports: Ports, on_record: Node, holds: bool
) -> None:
    assert isolate._Isolation(isolating(ports), on_record).holds_node is holds


def test_a_node_whose_isolation_was_undone_is_drained_again(ports: Ports) -> None:
    isolate.HANDLER.start(isolating(ports, **DRAINED), VerbContext(ports, ACT))

    assert scheduler_in(ports).draining == {A}
    kept = ports.nodes.get(A)
    assert kept is not None and kept.state is NodeState.ISOLATED


def test_a_node_that_an_operator_has_drained_is_not_drained_once_more() -> None:
    it = Storm(FIRST)
    scheduler_in(it.ports).draining.add(FIRST)

    it.isolates(FIRST)

    assert ("drain_all", 1) not in it.calls
    assert not record_of(it.operation(FIRST)).by_us


@pytest.mark.parametrize(
    ("record", "changes", "is_final", "outcome"),
    [
        ({}, {}, False, None),  # not drained yet
        ({}, {}, True, Outcome.FAILED),
        (DRAINED, {}, False, None),  # its ranks are still to be asked
        ({**DRAINED, "is_asked": True}, {}, False, Outcome.DONE),
        ({**DRAINED, "is_asked": True}, {"open_incident": "inc-2"}, True, Outcome.FAILED),
        ({**DRAINED, "is_asked": True}, {"state": NodeState.HEALTHY}, True, Outcome.FAILED),
    ],
)
def test_when_an_isolation_is_over(
    ports: Ports, record: dict[str, Any], changes: dict[str, Any], is_final: bool, outcome: Outcome | None
) -> None:
    facts = GangFacts(NOW, is_final=is_final, node=replace(by("inc-1"), **changes))

    result = isolate.HANDLER.observe(isolating(ports, **record), facts)

    assert (result.outcome if isinstance(result, StepResult) else None) is outcome
    if outcome is Outcome.DONE:
        assert isinstance(result, StepResult) and result.facts == Isolated(is_drained=True)


@pytest.mark.parametrize("is_of_new_node", [True, False])
@pytest.mark.parametrize("has_place", [True, False])
def test_only_a_new_node_that_has_a_place_needs_no_slot(
    ports: Ports, monkeypatch: pytest.MonkeyPatch, is_of_new_node: bool, has_place: bool
) -> None:
    monkeypatch.setattr(isolate, "has_place", lambda *_: has_place)
    operation = isolating(ports)
    decision = operation.step.decision.model_copy(update={"is_of_new_node": is_of_new_node})
    request = operation.step.model_copy(update={"decision": decision}).model_dump_json(exclude={"task_token"})
    suspect = stored_node(ports, A)

    isolate._mark(isolate._Isolation(replace(operation, request_json=request), suspect), VerbContext(ports, ACT))

    assert (A in ports.pools.holders("demo")) is not (is_of_new_node and has_place)


@pytest.mark.parametrize("is_drained", [True, False])
def test_a_denial_of_what_was_never_drained_is_no_error(ports: Ports, is_drained: bool) -> None:
    scheduler = scheduler_in(ports)
    scheduler.not_enrolled.add(A)
    scheduler.draining |= {A} if is_drained else set()

    if is_drained:
        with pytest.raises(NotEnrolled):
            isolate.switch_on(node(A), ports)
    else:
        isolate.switch_on(node(A), ports)


# Lines


@pytest.mark.parametrize(
    ("changes", "record", "stands"),
    [
        ({}, {}, True),
        ({"state": OperationState.DONE}, {}, False),
        ({}, DRAINED, False),
    ],
)
def test_a_throttled_isolation_stands_in_line_while_it_is_not_through(
    ports: Ports, changes: dict[str, Any], record: dict[str, Any], stands: bool
) -> None:
    operation = isolating(ports, changes=changes, **record)

    isolate._stand_in_line(isolate._Isolation(operation, node(A)), ports)

    kept = ports.operations.get(operation.owner, operation.operation_id)
    assert kept is not None and (kept.line is not None) is stands


def test_an_isolation_that_is_throttled_twice_keeps_its_place(ports: Ports) -> None:
    operation = isolating(ports, changes={"line": ("a line", "its place")})

    isolate._stand_in_line(isolate._Isolation(operation, node(A)), ports)

    kept = ports.operations.get(operation.owner, operation.operation_id)
    assert kept is not None and kept.line == ("a line", "its place")


@pytest.mark.parametrize(
    ("changes", "is_behind"),
    [
        ({}, True),
        ({"line": None}, False),
        ({"state": OperationState.DONE}, False),
        ({"deadline_at": NOW - timedelta(seconds=1)}, False),
    ],
)
def test_the_line_may_show_what_is_not_so_any_more(
    ports: Ports, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], is_behind: bool
) -> None:
    operation = isolating(ports, changes={"line": ("a line", "a place"), **changes})
    monkeypatch.setattr(ports.operations, "behind", lambda *_: [(operation.owner, operation.operation_id)])

    assert [one.operation for one in isolate._behind(operation, ports)] == ([operation] if is_behind else [])


def test_a_node_that_its_scheduler_did_not_drain_is_not_taken_for_one(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_in(ports), "drain_all", lambda *_: {})

    with pytest.raises(NotFound, match="could not be drained"):
        isolate._switch_off([isolate._Isolation(isolating(ports), node(A))], [PLACE], ports)


def watched(it: Storm, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """How many nodes and how many names each call is given that switches off."""
    calls: list[tuple[int, int]] = []
    drain = scheduler_in(it.ports).drain_all

    def seen(nodes: Sequence[Node], names: Sequence[str]) -> Any:
        calls.append((len(nodes), len(names)))
        return drain(nodes, names)

    monkeypatch.setattr(scheduler_in(it.ports), "drain_all", seen)
    return calls


def test_the_names_are_those_of_the_nodes_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Storm()
    calls = watched(it, monkeypatch)
    it.is_throttled()
    it.writes(SECOND, open_incident="inc-of-others")

    it.isolates(FIRST)

    assert calls == [(9, 9)]


def test_where_the_names_are_not_known_any_more_the_node_goes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Storm()
    calls = watched(it, monkeypatch)
    it.is_throttled()
    it.writes(SECOND, open_incident="inc-of-others")
    given = iter([NAMES[:10], ()])
    monkeypatch.setattr(scheduler_in(it.ports), "names_in_service", lambda _: next(given))

    it.isolates(FIRST)

    assert calls == [(1, 1)]
    assert it.draining == [FIRST]


def test_a_first_in_line_for_which_no_slot_is_left_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Storm()
    it.is_throttled()
    monkeypatch.setattr(isolate, "_why_no_slot", lambda *_: "the budget is full")

    it.isolates(FIRST)

    assert (it.ended(FIRST), it.draining) == (Outcome.REFUSED, [])
    assert STORM.default_pool.budget.max_nodes > len(NAMES)


@pytest.mark.parametrize(("ended", "outcome"), [(False, Outcome.REFUSED), (True, Outcome.DONE)])
def test_a_job_that_came_to_the_node_while_its_incident_waited_is_not_taken_down(ended: bool, outcome: Outcome) -> None:
    it = Incident()
    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=143)
    save_node(it.ports, it.node(A), job_id=None)
    started_job(ecs_job("other", "demo", "training", "trainer:1", "trainer", 1), [it.node(A)], it.ports)
    if ended:
        run = stored_run(it.ports, "other", 1)
        it.ports.jobs.save_run(run.with_task(replace(run.tasks[0], status="STOPPED")))

    isolate_node(it.request(), it.ports, it.policy)

    assert it.resumed().outcome is outcome
    assert not it.resumed().refused_for(Refusal.EXTERNAL_REMEDIATOR)
    assert (it.node(A).state is NodeState.ISOLATED) == ended
