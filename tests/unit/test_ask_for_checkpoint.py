"""A gang that is about to be stopped is asked for a checkpoint first, and nothing waits for it or fails by it."""

from typing import Any

import pytest

from nodeheal.contract.vocabulary import Outcome
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports.commands import Command
from tests.support.builders import ACT, scheduler_in
from tests.support.incident_steps import A, B, Incident
from tests.support.step_functions import isolate_node


def commands(it: Incident) -> Any:
    return it.ports.commands


def told(it: Incident) -> list[str]:
    return [entry.text for entry in it.ports.incidents.history(it.id).timeline if "checkpoint" in entry.entry_id]


def test_the_whole_gang_is_asked_in_one_command_before_its_tasks_are_stopped() -> None:
    it = Incident()
    stopped_when_asked: list[dict[str, str]] = []
    ask, scheduler = commands(it).send_to_all, scheduler_in(it.ports)

    def spy(*arguments: Any) -> Any:
        stopped_when_asked.append(dict(scheduler.stopped))
        return ask(*arguments)

    commands(it).send_to_all = spy
    it.isolate()

    assert commands(it).sent_to_all == [([A, B], Command("checkpoint-now", {"Job": "llama"}))]
    assert stopped_when_asked == [{}]
    assert told(it) == ["llama is asked for a checkpoint before it is stopped"]


def test_policy_can_forbid_it() -> None:
    it = Incident()
    never = RecoveryPolicy.model_validate({**ACT.model_dump(), "checkpoint_seconds": 0})

    isolate_node(it.request(), it.ports, never)

    assert commands(it).sent_to_all == []


def test_the_broken_node_is_not_asked_alone() -> None:
    it = Incident()
    it.task_is("STOPPED", 1, exit_code=1)

    isolate_node(it.request(), it.ports, ACT)

    assert commands(it).sent_to_all == []
    assert told(it) == []


def test_a_broken_node_that_is_gone_does_not_keep_its_peers_from_being_asked() -> None:
    it = Incident()
    commands(it).unknown_nodes.add(A)

    it.isolate()

    assert [nodes for nodes, _ in commands(it).sent_to_all] == [[B]]


@pytest.mark.parametrize("error", [TimeoutError("read timed out"), ValueError("anything")])
def test_isolation_goes_on_whatever_goes_wrong_with_the_asking(error: Exception) -> None:
    it = Incident()

    def fail(*_: object) -> Any:
        raise error

    commands(it).send_to_all = fail

    assert it.isolate().outcome is Outcome.DONE
    assert told(it) == [f"llama could not be asked for a checkpoint: {error}"]


def test_a_peer_that_is_gone_is_no_reason_not_to_isolate() -> None:
    it = Incident()
    commands(it).unknown_nodes.update({A, B})

    assert it.isolate().outcome is Outcome.DONE
    assert "could not be asked" in told(it)[0]
