"""Which scheduler a node and a job have, and what is read of records that were stored when there was only one."""

from dataclasses import replace
from typing import Any, cast

import pytest

from nodeheal.adapters.aws.items import Table, fields_of, from_item, to_item
from nodeheal.adapters.aws.jobs import DynamoJobStore
from nodeheal.adapters.memory.marks import MemoryMarks
from nodeheal.adapters.memory.world import MemoryScheduler
from nodeheal.contract.vocabulary import EndCause, NodeState, SchedulerKind
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.enrolment import Enrolment
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.services.intake.enroll_node import enroll_node
from nodeheal.services.jobs.prepare_job import scheduler_of_pool
from tests.unit.builders import NOW, memory_ports, node, scheduler_in

OTHER = cast("SchedulerKind", "OTHER")  # one that this deployment does not serve
JOB = Job("llama", "demo", "training", "trainer:1", "trainer", 1)


def test_a_node_and_a_job_are_served_by_their_own_scheduler() -> None:
    ports = memory_ports()

    assert ports.scheduler_of(node()).gate is scheduler_in(ports)
    assert ports.launcher_for(JOB) is scheduler_in(ports)
    with pytest.raises(NotFound, match="mi-a has the scheduler OTHER, which this deployment does not serve"):
        ports.scheduler_of(node("mi-a", scheduler=OTHER))
    with pytest.raises(NotFound, match="llama has the scheduler OTHER"):
        ports.launcher_for(replace(JOB, scheduler=OTHER))


@pytest.mark.parametrize(("kind", "stored"), [(Node, node()), (Job, JOB)])
def test_what_was_stored_before_there_were_several_has_ecs(kind: type[Any], stored: Any) -> None:
    fields = fields_of(stored)
    del fields["scheduler"]

    assert from_item(kind, to_item(fields)).scheduler is SchedulerKind.ECS


def test_a_job_has_the_scheduler_of_its_pools_nodes_and_a_pool_of_several_is_refused() -> None:
    ports = memory_ports()
    assert scheduler_of_pool("demo", ports) is SchedulerKind.ECS  # it has no node yet

    ports.nodes.save(node("mi-a", scheduler=OTHER))
    ports.nodes.save(node("mi-c", state=NodeState.RETIRED))  # it is in the pool no more
    alone = scheduler_of_pool("demo", ports)
    ports.nodes.save(node("mi-b"))

    assert alone == OTHER
    with pytest.raises(ValueError, match=r"the nodes of demo have several schedulers \(ECS, OTHER\)"):
        scheduler_of_pool("demo", ports)


def test_a_scheduler_in_memory_says_whether_it_reaches_a_node() -> None:
    memory = MemoryScheduler(unknown_nodes={"mi-b"}, disconnected={"placement-of-mi-c"})

    assert [memory.liveness(node(name)).is_up for name in ("mi-a", "mi-b", "mi-c")] == [True, None, False]


def test_a_node_that_is_announced_has_the_scheduler_of_its_pool() -> None:
    ports, marks = memory_ports(), MemoryMarks()
    said = Enrolment(pool="demo", why="ada: new rack", cluster="training")
    ports.nodes.save(node("mi-a", scheduler=OTHER))
    like_the_others, _ = enroll_node("mi-0b1b2c3d4e5f60718", said, ports, marks)
    ports.nodes.save(node("mi-b"))

    between, _ = enroll_node("mi-0c1b2c3d4e5f60718", said, ports, marks)

    assert (like_the_others.scheduler, between.scheduler) == (OTHER, SchedulerKind.ECS)


class OneRun:
    """A table that holds one run, as it was written."""

    def __init__(self, item: dict[str, Any]) -> None:
        self._item = item

    def get(self, pk: str, sk: str) -> dict[str, Any]:
        return self._item


def read_back(task: GangTask, *, is_of_before: bool) -> GangTask:
    fields = fields_of(Run("llama", 1, NOW, "submitted", (task,)))
    if is_of_before:
        del fields["tasks"][0]["end_causes"]
    found = DynamoJobStore(cast("Table", OneRun(to_item(fields)))).get_run("llama", 1)
    assert found is not None
    return found.tasks[0]


def test_an_end_that_was_stored_in_the_words_of_ecs_alone_is_understood() -> None:
    stopped = GangTask("mi-a", 0, "boot-1", "p", "t", "STOPPED", 143, "UserInitiated: Task stopped by user")

    assert read_back(stopped, is_of_before=True).end_causes == (EndCause.ON_REQUEST,)
    assert read_back(stopped, is_of_before=False).end_causes == ()
    lost = replace(stopped, end_causes=(EndCause.NODE_LOST,))
    assert read_back(lost, is_of_before=False) == lost
