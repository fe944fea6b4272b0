"""Where the nodes of a gang are, and what of it runs: few questions however many ranks, with the same answers from
both adapters."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from nodeheal.adapters.ecs.scheduler import EcsScheduler, ecs_scheduler
from nodeheal.adapters.memory.world import MemoryScheduler
from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import Run
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.jobs.start_gang import find_unnoted, record_run, start_ranks
from tests.support.builders import memory_ports, node, scheduler_in
from tests.support.jobs import ecs_job

JOB = ecs_job("llama", "demo", "training", "trainer:1", "trainer", 256)
PAGE = 100  # what ECS answers and describes at once


class CountingEcs:
    """ECS, as far as a launch asks it: container instances and tasks, in pages, each call counted."""

    def __init__(self, *instances: tuple[str, str]) -> None:
        self.instances: list[dict[str, Any]] = [
            {
                "containerInstanceArn": f"arn-{n}",
                "ec2InstanceId": i,
                "status": s.removesuffix(" GONE"),
                "agentConnected": not s.endswith(" GONE"),
            }
            for n, (i, s) in enumerate(instances)
        ]
        self.tasks: dict[str, dict[str, Any]] = {}
        self.calls: Counter[str] = Counter()

    def __call__(self) -> Any:
        return self

    def get_paginator(self, operation: str) -> "Pages":
        return Pages(self, operation)

    def list_container_instances(self, cluster: str, filter: str) -> list[str]:  # as botocore has it
        wanted = set(re.findall(r"'([^']+)'", filter))
        assert filter.startswith("ec2InstanceId in ["), filter
        return [one["containerInstanceArn"] for one in self.instances if one["ec2InstanceId"] in wanted]

    def list_tasks(self, cluster: str, startedBy: str) -> list[str]:
        return [arn for arn, task in self.tasks.items() if task["startedBy"] == startedBy]

    def describe_container_instances(self, cluster: str, containerInstances: list[str]) -> Any:
        self.calls["DescribeContainerInstances"] += 1
        assert len(containerInstances) <= PAGE
        found = [one for one in self.instances if one["containerInstanceArn"] in containerInstances]
        return {"containerInstances": found, "failures": []}

    def describe_tasks(self, cluster: str, tasks: list[str]) -> Any:
        self.calls["DescribeTasks"] += 1
        assert len(tasks) <= PAGE
        return {"tasks": [self.tasks[arn] for arn in tasks], "failures": []}

    def start_task(self, containerInstances: list[str], startedBy: str, **more: Any) -> Any:
        self.calls["StartTask"] += 1
        arn = f"task-{len(self.tasks)}"
        self.tasks[arn] = {"taskArn": arn, "containerInstanceArn": containerInstances[0], "startedBy": startedBy}
        return {"tasks": [self.tasks[arn]], "failures": []}


class Pages:
    """A paginator: a call for every page, the empty one included."""

    def __init__(self, ecs: CountingEcs, operation: str) -> None:
        self._ecs, self._operation = ecs, operation

    def paginate(self, **asked: Any) -> Iterator[dict[str, list[str]]]:
        name, key = {
            "list_tasks": ("ListTasks", "taskArns"),
            "list_container_instances": ("ListContainerInstances", "containerInstanceArns"),
        }[self._operation]
        found = getattr(self._ecs, self._operation)(**asked)
        for first in range(0, max(1, len(found)), PAGE):
            self._ecs.calls[name] += 1
            yield {key: found[first : first + PAGE]}


def world(count: int) -> tuple[Ports, CountingEcs, list[Node]]:
    """Nodes of a pool, in a cluster that counts."""
    ports, nodes = memory_ports(), [node(f"mi-{number:017x}") for number in range(count)]
    for one in nodes:
        ports.nodes.save(one)
    ecs = CountingEcs(*((one.instance_id, "ACTIVE") for one in nodes))
    scheduler = ecs_scheduler(ecs, ecs)
    return replace(ports, schedulers={SchedulerKind.ECS: scheduler}), ecs, nodes


def launched(ports: Ports, nodes: list[Node]) -> Run:
    known = ports.jobs.get("llama")
    assert known is not None or ports.jobs.save(JOB)
    return record_run(replace(JOB, version=1), nodes, "submitted", ports)


def test_256_ranks_are_placed_with_a_call_each_and_few_looks() -> None:
    ports, ecs, nodes = world(256)

    run = launched(ports, nodes)
    start_ranks(JOB, run, ports, RecoveryPolicy())

    looks = {"ListContainerInstances": 6, "DescribeContainerInstances": 6, "ListTasks": 1}
    assert ecs.calls == {**looks, "StartTask": 256}
    placed = {task.placement for task in run.tasks}
    assert len(placed) == len(ecs.tasks) == 256


def test_a_launch_that_died_in_the_middle_starts_only_what_it_has_not_started() -> None:
    ports, ecs, nodes = world(120)
    run = launched(ports, nodes)
    for task in run.tasks[:110]:  # 110 were started, and none of that was written down
        scheduler_in(ports).start_rank(JOB, run, task, {})
    ecs.calls.clear()

    start_ranks(JOB, run, ports, RecoveryPolicy())

    assert ecs.calls == {"ListTasks": 2, "DescribeTasks": 2, "StartTask": 10}
    stored = ports.jobs.get_run("llama", 1)
    assert stored is not None
    assert sorted(task.task_id for task in stored.tasks) == sorted(ecs.tasks)


def test_what_a_crash_has_left_unnoted_is_found_in_one_look() -> None:
    ports, ecs, nodes = world(30)
    run = launched(ports, nodes)
    scheduler_in(ports).start_rank(JOB, run, run.tasks[7], {})
    ecs.calls.clear()

    found = find_unnoted(JOB, run, ports)

    assert ecs.calls == {"ListTasks": 1, "DescribeTasks": 1}
    assert [task.rank for task in found.tasks if task.task_id] == [7]
    assert all(task.has_stopped for task in found.tasks if task.rank != 7)


def test_a_node_that_is_registered_twice_is_where_its_agent_is_connected_and_then_where_it_takes_work() -> None:
    ecs = CountingEcs(
        ("mi-a", "DRAINING"),
        ("mi-a", "ACTIVE"),
        ("mi-a", "DRAINING"),
        ("mi-b", "DRAINING"),
        ("mi-b", "ACTIVE GONE"),
    )

    placements = EcsScheduler(ecs, ecs).placements_of([node("mi-a"), node("mi-b")])

    assert [(placements[name].name, placements[name].is_schedulable) for name in ("mi-a", "mi-b")] == [
        ("arn-1", True),
        ("arn-3", False),
    ]


@pytest.mark.parametrize("adapter", ["memory", "ecs"])
def test_a_node_that_is_not_there_is_not_found_and_named(adapter: str) -> None:
    ecs = CountingEcs(("mi-a", "ACTIVE"))
    memory, real = MemoryScheduler(unknown_nodes={"mi-b"}), EcsScheduler(ecs, ecs)
    placements_of = memory.placements_of if adapter == "memory" else real.placements_of

    with pytest.raises(NotFound, match="mi-b"):
        placements_of([node("mi-a"), node("mi-b")])


@pytest.mark.parametrize("adapter", ["memory", "ecs"])
def test_what_runs_of_a_run_is_told_by_where_it_is(adapter: str) -> None:
    ports, _, nodes = world(3)
    ports = memory_ports(ports.clock) if adapter == "memory" else ports  # type: ignore[arg-type]
    for one in nodes:
        ports.nodes.save(one)
    run = launched(ports, nodes)
    before = scheduler_in(ports).find_ranks(JOB, run)

    started = scheduler_in(ports).start_rank(JOB, run, run.tasks[1], {})

    assert before == {}
    assert scheduler_in(ports).find_ranks(JOB, run) == {run.tasks[1].placement: started}
    assert scheduler_in(ports).find_ranks(JOB, replace(run, number=2)) == {}


@pytest.mark.parametrize(("status", "is_up"), [("ACTIVE", True), ("ACTIVE GONE", False), (None, None)])
@pytest.mark.parametrize("adapter", ["memory", "ecs"])
def test_a_scheduler_says_whether_it_reaches_its_agent_and_whether_it_knows_the_node(
    adapter: str, status: str | None, is_up: bool | None
) -> None:
    ecs = ListingEcs(*([("mi-a", status)] if status else []))
    memory = MemoryScheduler()
    memory.unknown_nodes = set() if status else {"mi-a"}
    memory.disconnected = {memory.placement_of(node("mi-a")).name} if is_up is False else set()
    liveness = memory.liveness if adapter == "memory" else EcsScheduler(ecs, ecs).liveness

    told = liveness(node("mi-a"))

    texts = {True: "agent connected", False: "agent not connected", None: "not registered in cluster training"}
    assert (told.witness, told.is_up, told.text) == ("ECS", is_up, texts[is_up])


class ListingEcs(CountingEcs):
    """ECS, asked for one machine in one call."""

    def list_container_instances(self, cluster: str, filter: str) -> Any:  # as botocore has it
        assert filter.startswith("ec2InstanceId == mi-a"), filter
        found = [one for one in self.instances if one["agentConnected"] or "agentConnected" not in filter]
        return {"containerInstanceArns": [one["containerInstanceArn"] for one in found]}
