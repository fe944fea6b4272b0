"""What a reboot, a stop and start, and a replacement make of what EC2 and the node say."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodeheal.contract.results import CallAgain, StepResult
from nodeheal.contract.vocabulary import Action, NodeState, Outcome, Provider, VerbName
from nodeheal.domain.fleet.machine import STOPPED_BY_CALL, Machine, Power
from nodeheal.domain.fleet.pause import NO_PAUSES
from nodeheal.domain.operation import Operation, OperationState
from nodeheal.domain.policy.policy_models import Replacement
from nodeheal.operations import reboot, stop_start
from nodeheal.operations import replace as replacement
from nodeheal.operations.handler import NextActDue, OperationFacts, VerbContext, step_result
from nodeheal.operations.replace import ReplacementPhase as Replacing
from nodeheal.operations.stop_start import StopStartPhase
from nodeheal.ports import Ports
from nodeheal.services.saving import change_node, node_of
from tests.support.builders import ACT, NOW, FrozenClock, memory_ports, node, under_way
from tests.support.observed_operations import unwanted

A = "i-0a1b2c3d4e5f60718"
SOON = NOW + timedelta(minutes=5)


@pytest.fixture
def ports() -> Ports:
    made = memory_ports(FrozenClock())
    made.nodes.save(node(A, provider=Provider.ec2, state=NodeState.ISOLATED, open_incident="inc-1"))
    return made


def found(ports: Ports, monkeypatch: pytest.MonkeyPatch, state: str = "running", code: str = "") -> list[Power]:
    """EC2 says this of the machine; what it is asked for."""
    asked: list[Power] = []
    monkeypatch.setattr(ports.machines, "describe", lambda _: Machine(A, state, state_code=code) if state else None)
    monkeypatch.setattr(ports.machines, "power", lambda _, what: asked.append(what))
    return asked


# Stop and start


def stopping(ports: Ports, phase: StopStartPhase, **record: Any) -> Operation:
    known = stop_start._Record(phase=phase, **record).model_dump_json()
    return under_way(ports, VerbName.STOP_START, node_id=A, data_json=known)


@pytest.mark.parametrize(
    ("phase", "has_stopped", "state", "asked"),
    [
        (StopStartPhase.STOPPING, False, "running", Power.STOP),  # a call broke before EC2 had taken it
        (StopStartPhase.STOPPING, False, "stopped", Power.START),
        (StopStartPhase.STOPPING, True, "running", Power.START),  # EC2 has not caught up with its own event
        (StopStartPhase.STOPPED, False, "running", Power.START),
    ],
)
def test_a_repeated_call_asks_for_the_next_act(
    ports: Ports, monkeypatch: pytest.MonkeyPatch, phase: StopStartPhase, has_stopped: bool, state: str, asked: Power
) -> None:
    power = found(ports, monkeypatch, state)
    monkeypatch.setattr(stop_start, "reserve_for_node_or_why_not", unwanted)  # the attempt is reserved once

    stop_start.HANDLER.start(stopping(ports, phase, has_stopped=has_stopped), VerbContext(ports, ACT))

    assert power == [asked]


@pytest.mark.parametrize(("left_at", "kept"), [(None, NOW), (NOW - timedelta(minutes=1), NOW - timedelta(minutes=1))])
def test_a_start_that_is_repeated_keeps_the_time_of_the_first(
    ports: Ports, monkeypatch: pytest.MonkeyPatch, left_at: datetime | None, kept: datetime
) -> None:
    found(ports, monkeypatch, "stopped")

    started = stop_start.HANDLER.start(
        stopping(ports, StopStartPhase.STOPPED, left_at=left_at), VerbContext(ports, ACT)
    )

    assert isinstance(started, Operation)
    assert stop_start.read_record(started).left_at == kept


def test_a_machine_that_is_gone_after_its_stop_has_cost_its_attempt(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    found(ports, monkeypatch, "")
    monkeypatch.setattr(stop_start, "give_attempt_back", unwanted)

    result = stop_start.HANDLER.start(stopping(ports, StopStartPhase.STOPPED), VerbContext(ports, ACT))

    assert isinstance(result, StepResult) and result.outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("phase", "before", "state", "after"),
    [
        (StopStartPhase.STOPPING, False, "stopped", True),
        (StopStartPhase.STOPPING, True, "running", True),
        (StopStartPhase.STOPPING, False, "running", False),
        (StopStartPhase.STARTING, False, "stopped", False),
    ],
)
def test_a_machine_has_stopped_for_us_where_ec2_says_so_after_our_stop(
    ports: Ports, monkeypatch: pytest.MonkeyPatch, phase: StopStartPhase, before: bool, state: str, after: bool
) -> None:
    found(ports, monkeypatch, state)

    refreshed = stop_start.HANDLER.refresh(stopping(ports, phase, has_stopped=before), ports)

    assert stop_start.read_record(refreshed).has_stopped is after


def seen(ports: Ports, phase: StopStartPhase, *, is_final: bool = False, on: Any = None, **record: Any) -> Any:
    operation = stopping(ports, phase, **record)
    return stop_start.HANDLER.observe(operation, OperationFacts(NOW, is_final=is_final, node=on or node(A)))


@pytest.mark.parametrize(
    ("phase", "record", "is_next_act"),
    [
        (StopStartPhase.STOPPED, {}, True),
        (StopStartPhase.STOPPING, {"has_stopped": True}, True),
        (StopStartPhase.STOPPING, {"machine_state": "running"}, True),
        (StopStartPhase.STOPPING, {"machine_state": "stopping"}, False),
        (StopStartPhase.STOPPING, {"machine_state": "running", "is_stop_taken": True}, False),
        (StopStartPhase.STARTING, {"machine_state": "stopped"}, True),
        (StopStartPhase.STARTING, {"machine_state": "stopped", "is_start_taken": True}, False),
        (
            StopStartPhase.STARTING,
            {"machine_state": "stopped", "is_start_taken": True, "state_code": STOPPED_BY_CALL},
            False,
        ),
    ],
)
def test_when_the_next_act_is_due(
    ports: Ports, phase: StopStartPhase, record: dict[str, Any], is_next_act: bool
) -> None:
    assert seen(ports, phase, **record) == (NextActDue() if is_next_act else None)


def test_a_machine_that_was_terminated_is_not_waited_for(ports: Ports) -> None:
    operation = replace(stopping(ports, StopStartPhase.STARTING), is_machine_gone=True)

    result = stop_start.HANDLER.observe(operation, OperationFacts(NOW, node=node(A)))

    assert isinstance(result, StepResult) and result.outcome is Outcome.FAILED


LEFT = {"left_boot_id": "boot-1", "left_at": NOW}


@pytest.mark.parametrize(
    ("phase", "boot_id", "state", "is_final", "is_back"),
    [
        (StopStartPhase.STARTING, "boot-2", "", False, True),
        (StopStartPhase.STARTING, "boot-1", "", False, False),  # the old boot, reported late
        (StopStartPhase.STOPPED, "boot-2", "running", False, True),
        (StopStartPhase.STOPPED, "boot-2", "stopped", False, False),
        (StopStartPhase.STOPPING, "boot-2", "running", False, False),
        (StopStartPhase.STOPPING, "boot-2", "stopping", False, False),  # it came up before it was stopped again
        (StopStartPhase.STOPPING, "boot-2", "stopping", True, True),
    ],
)
def test_only_a_new_boot_of_a_machine_that_runs_proves_the_start(
    ports: Ports, phase: StopStartPhase, boot_id: str, state: str, is_final: bool, is_back: bool
) -> None:
    on = node(A, boot_id=boot_id, booted_at=SOON)

    result = seen(ports, phase, is_final=is_final, on=on, machine_state=state, **LEFT)

    assert (isinstance(result, StepResult) and result.outcome is Outcome.DONE) is is_back


@pytest.mark.parametrize("verb", [stop_start, reboot])
@pytest.mark.parametrize(
    ("state", "outcome", "is_given_back"),
    [
        (OperationState.PLANNED, Outcome.FAILED, True),  # nothing was asked of anybody
        (OperationState.PLANNED, Outcome.REFUSED, False),  # who refuses it has given it back
        (OperationState.STARTED, Outcome.FAILED, False),
    ],
)
def test_an_attempt_that_touched_nothing_is_given_back(
    ports: Ports,
    monkeypatch: pytest.MonkeyPatch,
    verb: Any,
    state: OperationState,
    outcome: Outcome,
    is_given_back: bool,
) -> None:
    back: list[Action] = []
    monkeypatch.setattr(verb, "give_attempt_back", lambda *given: back.append(given[0]))
    operation = under_way(ports, VerbName.REBOOT, node_id=A, state=state)

    verb.HANDLER.settle(operation, step_result(operation, NOW, outcome, "so"), ports)

    assert bool(back) is is_given_back


# Reboots


def rebooting(ports: Ports, **changes: Any) -> Operation:
    return under_way(ports, VerbName.REBOOT, node_id=A, **changes)


def test_a_node_that_is_still_on_its_boot_is_waited_for(ports: Ports) -> None:
    assert reboot.HANDLER.observe(rebooting(ports), OperationFacts(NOW, node=node(A))) is None


def test_a_reboot_that_may_not_have_been_sent_is_not_taken_for_one_that_timed_out(ports: Ports) -> None:
    late = NOW + timedelta(days=1)

    result = reboot.HANDLER.observe(rebooting(ports), OperationFacts(late, is_final=True, node=node(A)))

    assert isinstance(result, StepResult)
    assert (result.outcome, result.reason) == (
        Outcome.UNKNOWN,
        "the reboot may have been sent; the node has not rebooted",
    )


def test_a_command_whose_id_is_not_known_is_not_looked_at(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports.commands, "look", unwanted)
    operation = rebooting(ports)

    assert reboot.HANDLER.refresh(operation, ports) == operation


@pytest.mark.parametrize("is_again", [True, False])
def test_a_call_that_broke_keeps_the_deadline_of_the_first_one(ports: Ports, is_again: bool) -> None:
    operation = rebooting(ports)
    facts = CallAgain() if is_again else None

    reboot.HANDLER.settle(operation, step_result(operation, NOW, Outcome.UNKNOWN, "so", facts=facts), ports)

    kept = ports.operations.get(operation.owner, operation.operation_id)
    assert kept is not None
    assert reboot._read_record(kept).first_deadline_at == (operation.deadline_at if is_again else None)


def test_at_the_deadline_a_script_that_failed_is_told_with_what_was_waited_for(ports: Ports) -> None:
    record = reboot._Record(has_script_failed=True).model_dump_json()
    operation = rebooting(ports, reference="command-1", command_state="FAILED", data_json=record)

    at_once = reboot.HANDLER.observe(operation, OperationFacts(NOW, node=node(A)))
    late = reboot.HANDLER.observe(operation, OperationFacts(NOW, is_final=True, node=node(A)))

    assert isinstance(at_once, StepResult) and isinstance(late, StepResult)
    assert (at_once.outcome, at_once.reason) == (Outcome.FAILED, "the node refused the command or could not run it")
    assert (late.outcome, "the reboot command is FAILED" in late.reason) == (Outcome.FAILED, True)


# Replacements

NEW, OTHER = "i-0bbbbbbbbbbbbbbbb", "i-0cccccccccccccccc"


def replacing(ports: Ports, **record: Any) -> Operation:
    known = replacement._Record(**record).model_dump_json()
    return under_way(ports, VerbName.REPLACE, node_id=A, data_json=known)


def taken(operation: Operation) -> str:
    return replacement.read_record(operation).new_node_id


@pytest.mark.parametrize("phase", [Replacing.NOTHING_ASKED, Replacing.GROUP_ASKED])
def test_a_replacement_that_may_not_go_on_costs_an_attempt_where_something_was_asked(
    ports: Ports, monkeypatch: pytest.MonkeyPatch, phase: Replacing
) -> None:
    back: list[object] = []
    monkeypatch.setattr(replacement, "reserve_for_node_or_why_not", lambda *_: "the pool is paused")
    monkeypatch.setattr(replacement, "give_attempt_back", lambda *given: back.append(given))

    result = replacement.HANDLER.start(replacing(ports, phase=phase), VerbContext(ports, ACT))

    assert isinstance(result, StepResult) and result.outcome is Outcome.REFUSED
    assert bool(back) is (phase is Replacing.NOTHING_ASKED)


@pytest.mark.parametrize("phase", [Replacing.NOTHING_ASKED, Replacing.LAUNCHING])
def test_a_launch_that_is_repeated_does_not_begin_with_the_termination_again(
    ports: Ports, monkeypatch: pytest.MonkeyPatch, phase: Replacing
) -> None:
    asked: list[str] = []
    knobs = Replacement(terminate_first=True)
    monkeypatch.setattr(ports.machines, "describe", lambda _: Machine(A, launch_template="lt-1"))
    monkeypatch.setattr(ports.machines, "terminate_instance", lambda *_: asked.append("terminate"))

    def launch(*_: object) -> str:
        asked.append("launch")
        return NEW

    monkeypatch.setattr(ports.machines, "launch", launch)
    monkeypatch.setattr(replacement, "_record_machine", lambda *_: NOW)

    replacement._replace_machine(replacing(ports, phase=phase), node_of(A, ports), knobs, ports)

    assert asked == (["launch"] if phase is Replacing.LAUNCHING else ["terminate"])


def test_what_a_group_has_made_in_the_meantime_is_found_when_it_is_asked_again(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports.machines, "terminate_instance", lambda *_: None)
    monkeypatch.setattr(replacement, "_find_new_node", lambda operation, _: replacement._taken(operation, NEW))

    asked = replacement._ask_group(replacing(ports), "trainers", Machine(A), Replacement(), ports)

    assert isinstance(asked, Operation) and taken(asked) == NEW


def test_a_candidate_that_another_incident_was_quicker_to_take_is_not_the_last(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (NEW, OTHER):
        ports.nodes.save(node(name, provider=Provider.ec2))
    tried: list[str] = []

    def take(operation: Operation, new: Any, _: Ports) -> Operation:
        tried.append(new.node_id)
        return operation if len(tried) == 1 else replacement._taken(operation, new.node_id)

    monkeypatch.setattr(replacement, "take_new_node", take)
    made = Machine(NEW, group="trainers", launched_at=SOON)
    monkeypatch.setattr(ports.machines, "describe", lambda _: made)
    operation = replacing(ports, phase=Replacing.GROUP_ASKED, group="trainers", since=NOW)

    assert taken(replacement._find_new_node(operation, ports)) == tried[1]


@pytest.mark.parametrize(
    ("changes", "is_new"),
    [
        ({}, True),
        ({"open_incident": "inc-1", "state": NodeState.ISOLATED}, True),  # it has its own finding, and is ours already
        ({"open_incident": "inc-2"}, False),
        ({"past_boots": ("boot-0",)}, False),
    ],
)
def test_a_new_node_is_up_for_the_first_time_and_nobody_elses(
    ports: Ports, changes: dict[str, Any], is_new: bool
) -> None:
    assert replacement._may_be_new(node(NEW, **changes), replacing(ports), NO_PAUSES, ports) is is_new


def test_who_has_a_node_takes_no_second_one_and_who_is_over_takes_none(ports: Ports) -> None:
    assert taken(replacement._taken(replacing(ports, new_node_id=NEW), OTHER)) == NEW
    assert taken(replacement._taken(replace(replacing(memory_ports()), state=OperationState.DONE), NEW)) == ""


@pytest.mark.parametrize(
    ("record", "asked"),
    [
        ({"phase": Replacing.GROUP_ASKED, "group": "trainers"}, "launches"),
        ({"phase": Replacing.LAUNCHED, "launched": NEW}, "describe"),
        ({"phase": Replacing.TERMINATING}, ""),
        ({"phase": Replacing.GROUP_ASKED, "group": "trainers", "new_node_id": NEW}, ""),
    ],
)
def test_ec2_is_asked_for_what_is_not_known(
    ports: Ports, monkeypatch: pytest.MonkeyPatch, record: dict[str, Any], asked: str
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(ports.machines, "describe", lambda _: calls.append("describe"))

    def launches(*_: object) -> list[object]:
        calls.append("launches")
        return []

    monkeypatch.setattr(ports.machines, "launches", launches)

    refreshed = replacement.HANDLER.refresh(replacing(ports, **record), ports)

    assert calls == [asked] * bool(asked)
    assert replacement.read_record(refreshed).machine_state == ("gone" if asked == "describe" else "")


@pytest.mark.parametrize(
    ("record", "outcome", "why"),
    [
        ({"phase": Replacing.LAUNCHED, "launched": NEW, "machine_state": "gone"}, Outcome.FAILED, "is gone again"),
        ({"phase": Replacing.LAUNCHED, "launched": NEW, "machine_state": "running"}, Outcome.TIMED_OUT, "is running"),
        ({"phase": Replacing.GROUP_ASKED, "group": "g", "group_refused": "no such group"}, Outcome.FAILED, "no such"),
        ({"phase": Replacing.GROUP_ASKED, "group": "g"}, Outcome.TIMED_OUT, "has launched nothing"),
    ],
)
def test_what_is_said_of_a_replacement_that_did_not_come(
    ports: Ports, record: dict[str, Any], outcome: Outcome, why: str
) -> None:
    result = replacement.HANDLER.observe(replacing(ports, **record), replacement.ReplaceFacts(NOW, is_final=True))

    assert isinstance(result, StepResult)
    assert (result.outcome, why in result.reason) == (outcome, True)


@pytest.mark.parametrize(("launch_failed", "has_slot"), [("no capacity", True), ("", False)])
def test_what_a_replacement_leaves_that_did_not_come(
    ports: Ports, monkeypatch: pytest.MonkeyPatch, launch_failed: str, has_slot: bool
) -> None:
    done: list[str] = []
    monkeypatch.setattr(replacement, "refund_attempt", lambda *_: done.append("refund"))
    monkeypatch.setattr(ports.pools, "release", lambda *_: done.append("release"))
    record = {"phase": Replacing.GROUP_ASKED, "group": "g", "launch_failed": launch_failed, "has_slot": has_slot}
    operation = replacing(ports, **record)

    replacement.HANDLER.settle(operation, step_result(operation, NOW, Outcome.TIMED_OUT, "so"), ports)

    assert done == ["refund"] * bool(launch_failed) + ["release"] * has_slot


@pytest.mark.parametrize("state", [NodeState.RECOVERING, NodeState.RETIRED])
def test_a_broken_node_that_is_retired_stays_so(
    ports: Ports, monkeypatch: pytest.MonkeyPatch, state: NodeState
) -> None:
    monkeypatch.setattr(replacement, "add_timeline_entry", lambda *_: None)
    change_node(A, ports, lambda one: replace(one, state=state))
    operation = replacing(ports, new_node_id=NEW)

    replacement.HANDLER.settle(operation, step_result(operation, NOW, Outcome.DONE, "swapped"), ports)

    assert node_of(A, ports).state is (NodeState.RETIRED if state is NodeState.RETIRED else NodeState.QUARANTINED)
