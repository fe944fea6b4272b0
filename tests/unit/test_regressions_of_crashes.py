"""What breaking every function at every side effect has found; each was wrong once."""

from dataclasses import replace
from typing import Any

import pytest

from nodeheal.contract.vocabulary import IncidentState, JobState, NodeState
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.job import Job
from nodeheal.services import wakeup
from nodeheal.services.close_incident import close_incident
from nodeheal.services.reboot_node import reboot_node
from nodeheal.services.release_node import release_node
from nodeheal.services.retire_node import retire_node
from nodeheal.services.translate.ecs_task import TaskChange
from tests.unit.builders import memory_ports, node, started_job
from tests.unit.test_regressions_of_brakes import lost_call
from tests.unit.test_steps import A, Incident


def handed_over(state: NodeState) -> Incident:
    """Its workflow broke when the node was in this state: isolated once, with its slot and our switch."""
    it = Incident()
    it.isolate()
    it.ports.incidents.finish(replace(it.ports.incidents.history(it.id).incident, state=IncidentState.ESCALATED))
    it.ports.nodes.save(replace(it.node(), state=state))
    return it


def left_of(it: Incident) -> tuple[object, ...]:
    """The slots, who takes no work, what the node names, and how the incident stands."""
    scheduler: Any = it.ports.scheduler
    node, incident = it.node(), it.ports.incidents.history(it.id).incident
    return list(it.ports.pools.holders("demo")), scheduler.draining, node.open_incident, incident.state


def sent_by(it: Incident) -> list[str]:
    """What nodes were asked to do."""
    commands: Any = it.ports.commands
    return [verb for verb, *_ in commands.sent]


NOTHING: tuple[object, ...] = ([], set(), None, IncidentState.CLOSED)


def test_a_return_that_broke_off_leaves_nothing_when_its_incident_is_closed_by_hand() -> None:
    it = handed_over(NodeState.PROBATION)  # written as in service, and died before it was switched on

    close_incident(it.id, "ada: it is fine", it.ports)

    assert left_of(it) == NOTHING
    assert not it.node().drained_by_us


def test_a_node_in_service_whose_recovery_broke_may_be_released_too() -> None:
    it = handed_over(NodeState.PROBATION)

    release_node(A, "ada: it is fine", it.ports)

    assert left_of(it) == NOTHING


@pytest.mark.parametrize("broken", ["release", "switch"])
def test_a_release_that_died_leaves_nothing_when_it_is_called_again(broken: str) -> None:
    it = handed_over(NodeState.QUARANTINED)
    port: Any = it.ports.pools if broken == "release" else it.ports.scheduler
    works = getattr(port, broken)
    setattr(port, broken, lost_call)
    with pytest.raises(ConnectionError):
        release_node(A, "ada: repaired", it.ports)
    setattr(port, broken, works)

    release_node(A, "ada: repaired", it.ports)

    assert left_of(it) == NOTHING


class NoMarks:
    """Nothing carries the mark."""

    def of(self, node: object) -> list[Any]:
        return []

    def put(self, node: object, mark: object, rack: str = "") -> None: ...

    def take(self, node: object, mark: object) -> None: ...


def test_a_retirement_that_died_leaves_no_slot_and_no_incident_when_it_is_called_again() -> None:
    it, marks = handed_over(NodeState.QUARANTINED), NoMarks()
    works, it.ports.pools.release = it.ports.pools.release, lost_call  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        retire_node(A, "ada: beyond repair", it.ports, marks)
    it.ports.pools.release = works  # type: ignore[method-assign]

    retire_node(A, "ada: beyond repair", it.ports, marks)

    slots, _, named, state = left_of(it)
    assert (it.node().state, slots, named, state) == (NodeState.RETIRED, [], None, IncidentState.CLOSED)


def test_a_node_in_service_is_not_retired_because_its_recovery_broke() -> None:
    it = handed_over(NodeState.HEALTHY)

    with pytest.raises(ValueError, match="runs llama"):
        retire_node(A, "ada: beyond repair", it.ports, NoMarks())

    assert it.node().state is NodeState.HEALTHY


def test_a_reboot_whose_id_could_not_be_kept_is_not_sent_again() -> None:
    it = Incident()
    it.isolate()
    request, save = it.request(), it.ports.waits.save

    def throttled_afterwards(wait: Any, *, renews: bool = False) -> bool:
        if sent_by(it):
            raise NotAccepted("not now")
        return save(wait, renews=renews)

    it.ports.waits.save = throttled_afterwards  # type: ignore[method-assign]
    with pytest.raises(NotAccepted):
        reboot_node(request, it.ports)
    it.ports.waits.save = save  # type: ignore[method-assign]

    reboot_node(request.model_copy(update={"task_token": "of-the-second-call"}), it.ports)

    assert sent_by(it) == ["reboot"]
    assert it.ports.waits.get("boot", A).token == "of-the-second-call"  # type: ignore[union-attr]


def test_a_reboot_that_was_throttled_is_sent_by_the_call_that_repeats_it() -> None:
    it = Incident()
    it.isolate()
    request, reboot = it.request(), it.ports.commands.reboot

    def throttled(*_: Any, **__: Any) -> str:
        raise NotAccepted("not now")

    it.ports.commands.reboot = throttled  # type: ignore[method-assign]
    with pytest.raises(NotAccepted):
        reboot_node(request, it.ports)
    it.ports.commands.reboot = reboot  # type: ignore[method-assign]

    reboot_node(request, it.ports)

    assert sent_by(it) == ["reboot"]


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_late_word_of_an_older_run_ends_no_job_that_was_submitted_again(exit_code: int) -> None:
    ports, names = memory_ports(), ("mi-1", "mi-2")
    for name in names:
        ports.nodes.save(node(name))
    run = started_job(Job("llama", "demo", "training", "trainer:1", "trainer", 2), [node(n) for n in names], ports)
    job = ports.jobs.get("llama")
    assert job is not None
    assert ports.jobs.save(replace(job, state=JobState.SUBMITTED, submission=2))

    for task in run.tasks:
        known = ports.jobs.get_run("llama", 1)
        task_id = known.tasks[task.rank].task_id if known else ""
        wakeup.on_task_change(TaskChange("llama", 1, task_id, task.placement, "STOPPED", exit_code, ""), ports)

    after = ports.jobs.get("llama")
    assert after is not None
    assert after.state is JobState.SUBMITTED
    assert [one.job_id for one in ports.nodes.in_pool("demo")] == [None, None]
