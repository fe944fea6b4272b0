"""What breaking every function at every side effect has found; each was wrong once."""

from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import pytest

from nodeheal.contract.job_spec import Checkpoints
from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.vocabulary import IncidentState, JobState, NodeState
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.operation import Operation
from nodeheal.operations.steps import watch_gang
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake.wakeup import on_task_change
from nodeheal.services.jobs.ask_after_ranks import ask_after_ranks
from nodeheal.services.operators.close_incident import close_incident
from nodeheal.services.operators.release_node import release_node
from tests.support.builders import (
    FrozenClock,
    commands_in,
    memory_ports,
    node,
    scheduler_in,
    started_job,
    stored_job,
    waiting,
)
from tests.support.enrolment import retire
from tests.support.incident_steps import A, Incident
from tests.support.jobs import ecs_job
from tests.support.lost_writes import lost_call
from tests.support.step_functions import reboot_node


def handed_over(state: NodeState) -> Incident:
    """Its workflow broke when the node was in this state: isolated once, with its slot and our switch."""
    it = Incident()
    it.isolate()
    it.ports.incidents.finish(replace(it.ports.incidents.history(it.id).incident, state=IncidentState.ESCALATED))
    it.ports.nodes.save(replace(it.node(), state=state))
    return it


def left_of(it: Incident) -> tuple[object, ...]:
    """The slots, who takes no work, what the node names, and how the incident stands."""
    scheduler: Any = scheduler_in(it.ports)
    node, incident = it.node(), it.ports.incidents.history(it.id).incident
    return list(it.ports.pools.holders("demo")), scheduler.draining, node.open_incident, incident.state


def sent_by(it: Incident) -> list[str]:
    """What nodes were asked to do."""
    return [sent.document for sent in commands_in(it.ports).sent]


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


@pytest.mark.parametrize("broken", ["release", "undrain"])
def test_a_release_that_died_leaves_nothing_when_it_is_called_again(broken: str) -> None:
    it = handed_over(NodeState.QUARANTINED)
    port: Any = it.ports.pools if broken == "release" else scheduler_in(it.ports)
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
        retire(A, "ada: beyond repair", it.ports, marks)
    it.ports.pools.release = works  # type: ignore[method-assign]

    retire(A, "ada: beyond repair", it.ports, marks)

    slots, _, named, state = left_of(it)
    assert (it.node().state, slots, named, state) == (NodeState.RETIRED, [], None, IncidentState.CLOSED)


def test_a_node_in_service_is_not_retired_because_its_recovery_broke() -> None:
    it = handed_over(NodeState.HEALTHY)

    with pytest.raises(ValueError, match="runs llama"):
        retire(A, "ada: beyond repair", it.ports, NoMarks())

    assert it.node().state is NodeState.HEALTHY


def test_a_reboot_whose_id_could_not_be_kept_is_not_sent_again() -> None:
    it = Incident()
    it.isolate()
    request, save = it.request(), it.ports.operations.save

    def throttled_afterwards(operation: Any) -> bool:
        if sent_by(it):
            raise NotAccepted("not now")
        return save(operation)

    it.ports.operations.save = throttled_afterwards  # type: ignore[method-assign]
    with pytest.raises(NotAccepted):
        reboot_node(request, it.ports)
    it.ports.operations.save = save  # type: ignore[method-assign]

    reboot_node(request.model_copy(update={"task_token": "of-the-second-call"}), it.ports)

    assert sent_by(it) == ["reboot-node"]
    [asked] = waiting(it.ports)
    assert isinstance(asked, Operation) and asked.token == "of-the-second-call"


def test_a_reboot_that_was_throttled_is_sent_by_the_call_that_repeats_it() -> None:
    it = Incident()
    it.isolate()
    request, reboot = it.request(), it.ports.commands.send

    def throttled(*_: Any, **__: Any) -> str:
        raise NotAccepted("not now")

    it.ports.commands.send = throttled  # type: ignore[method-assign]
    with pytest.raises(NotAccepted):
        reboot_node(request, it.ports)
    it.ports.commands.send = reboot  # type: ignore[method-assign]

    reboot_node(request, it.ports)

    assert sent_by(it) == ["reboot-node"]


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_late_word_of_an_older_run_ends_no_job_that_was_submitted_again(exit_code: int) -> None:
    ports, names = memory_ports(), ("mi-1", "mi-2")
    for name in names:
        ports.nodes.save(node(name))
    run = started_job(ecs_job("llama", "demo", "training", "trainer:1", "trainer", 2), [node(n) for n in names], ports)
    job = stored_job(ports, "llama")
    assert ports.jobs.save(replace(job, state=JobState.SUBMITTED, submission=2))

    for task in run.tasks:
        known = ports.jobs.get_run("llama", 1)
        task_id = known.tasks[task.rank].task_id if known else ""
        on_task_change(TaskChange("llama", 1, task_id, task.placement, "STOPPED", exit_code, ""), ports)

    after = stored_job(ports, "llama")
    assert after.state is JobState.SUBMITTED
    assert [one.job_id for one in ports.nodes.in_pool("demo")] == [None, None]


class Dies:
    """Counts the calls that write, and is gone before the one with this number is carried out."""

    def __init__(self, dies_at: int) -> None:
        self._calls, self._dies_at = 0, dies_at

    def at(self, port: object, name: str) -> None:
        """Count the calls of this method, too."""
        carried_out = getattr(port, name)

        def call(*given: Any, **named: Any) -> Any:
            self._calls += 1
            if self._calls == self._dies_at:
                raise ConnectionError(f"{name}: gone")
            return carried_out(*given, **named)

        setattr(port, name, call)


@pytest.mark.parametrize("dies_at", range(1, 7))
def test_a_job_whose_end_was_half_told_leaves_nothing_and_tells_its_workflow(dies_at: int) -> None:
    """No queue tells it again: the sweep does, which looks after jobs that are not over."""
    clock = FrozenClock()
    ports, names = memory_ports(clock), ("mi-1", "mi-2")
    for name in names:
        ports.nodes.save(node(name))
    where = Checkpoints(directory="/fsx/llama")
    job = ecs_job("llama", "demo", "training", "trainer:1", "trainer", 2, checkpoints=where, submission=1)
    run = started_job(job, [node(name) for name in names], ports)
    ports.job_notes.hold("/fsx/llama", "llama")
    watch_gang(JobRequest(job_id="llama", submission=1, round=0, task_token="watching"), ports)
    dies, it = Dies(dies_at), cast("Any", ports)
    for port, name in (
        (it.nodes, "save"),
        (it.jobs, "save"),
        (it.job_notes, "release_directory"),
        (it.operations, "save"),
    ):
        dies.at(port, name)

    for task in run.tasks:
        known = ports.jobs.get_run("llama", 1)
        task_id = known.tasks[task.rank].task_id if known else ""
        with suppress(ConnectionError):
            on_task_change(TaskChange("llama", 1, task_id, task.placement, "STOPPED", 0, ""), ports)
    clock.advance(300)
    ask_after_ranks(["demo"], ports)

    after = stored_job(ports, "llama")
    assert after.state is JobState.COMPLETED
    assert [one.job_id for one in ports.nodes.in_pool("demo")] == [None, None]
    assert it.job_notes.leases == {}
    assert "watching" in it.workflows.resumed
