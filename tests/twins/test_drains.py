"""Many nodes are taken out of service in few calls of ten each, with the same answers from both adapters."""

import re
from collections import Counter
from typing import Any

import pytest
from botocore.exceptions import ClientError

from nodeheal.adapters.ecs.scheduler import EcsScheduler
from nodeheal.adapters.memory.world import MemoryScheduler
from nodeheal.domain.errors import NotEnrolled, NotFound
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from tests.support.builders import node

NAMES = [f"mi-{number:017x}" for number in range(23)]
NODES = [node(name) for name in NAMES]
AT_ONCE = 10  # container instances in one UpdateContainerInstancesState
TASK = UnmanagedTask("task-1", "eval:3", "cron")


class Cluster:
    """One cluster, as ECS and as the twin in memory have it."""

    def __init__(self) -> None:
        self.memory = MemoryScheduler()
        self.calls: Counter[str] = Counter()

    def scheduler(self, adapter: str) -> MemoryScheduler | EcsScheduler:
        return self.memory if adapter == "memory" else EcsScheduler(lambda: self, lambda: self)  # type: ignore[arg-type, return-value]

    def disconnect(self, name: str) -> None:
        self.memory.disconnected.add(f"placement-of-{name}")

    def list_container_instances(self, cluster: str, filter: str, status: str) -> Any:  # as botocore has it
        self.calls["ListContainerInstances"] += 1
        found = re.fullmatch(r"ec2InstanceId in \[(.*)\] and agentConnected == true", filter)
        assert found is not None and status == "ACTIVE", filter
        wanted = [one.strip("'") for one in found[1].split(", ")]
        here = [name for name in wanted if name not in self.memory.unknown_nodes | self.memory.draining]
        arns = [f"placement-of-{name}" for name in reversed(here)]
        return {"containerInstanceArns": [arn for arn in arns if arn not in self.memory.disconnected]}

    def update_container_instances_state(self, cluster: str, containerInstances: list[str], status: str) -> Any:
        self.calls["UpdateContainerInstancesState"] += 1
        assert len(containerInstances) <= AT_ONCE and status == "DRAINING"
        names = [arn.removeprefix("placement-of-") for arn in containerInstances]
        if self.memory.not_enrolled & set(names):
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "UpdateContainerInstancesState")
        missing = [name for name in names if name in self.memory.unknown_nodes]
        known = [name for name in names if name not in missing]
        self.memory.draining.update(known)
        busy = {where for where, _ in self.memory.unmanaged.values()}
        return {
            "containerInstances": [
                {
                    "containerInstanceArn": f"placement-of-{name}",
                    "ec2InstanceId": name,
                    "runningTasksCount": int(name in busy),
                    "pendingTasksCount": 0,
                }
                for name in known
            ],
            "failures": [{"arn": f"placement-of-{name}", "reason": "MISSING"} for name in missing],
        }


def where(nodes: list[Node]) -> list[str]:
    return [f"placement-of-{one.node_id}" for one in nodes]


both = pytest.mark.parametrize("adapter", ["memory", "ecs"])


@both
def test_nodes_that_all_take_work_are_named_in_one_call(adapter: str) -> None:
    it = Cluster()

    names = it.scheduler(adapter).names_in_service(NODES[:10])

    assert sorted(names) == where(NODES[:10])
    assert it.calls == ({} if adapter == "memory" else {"ListContainerInstances": 1})


@both
@pytest.mark.parametrize("how", ["drains", "is not known", "is not connected"])
def test_where_one_of_them_is_not_in_service_none_is_named(adapter: str, how: str) -> None:
    it = Cluster()
    if how == "drains":
        it.memory.draining.add(NAMES[4])
    elif how == "is not known":
        it.memory.unknown_nodes.add(NAMES[4])
    else:
        it.disconnect(NAMES[4])

    assert list(it.scheduler(adapter).names_in_service(NODES[:10])) == []


@both
def test_nodes_are_drained_ten_a_call_and_one_that_is_gone_is_left_out(adapter: str) -> None:
    it = Cluster()
    it.memory.unknown_nodes.add(NAMES[12])
    it.memory.unmanaged = {TASK.task_id: (NAMES[3], TASK)}

    drained = it.scheduler(adapter).drain_all(NODES, where(NODES))

    assert set(drained) == it.memory.draining == {*NAMES} - {NAMES[12]}
    assert [name for name, one in drained.items() if one.has_tasks] == [NAMES[3]]
    assert {one.placement for one in drained.values()} == {f"placement-of-{name}" for name in drained}
    assert it.calls == ({} if adapter == "memory" else {"UpdateContainerInstancesState": 3})


@both
def test_where_all_of_them_are_gone_that_is_an_error(adapter: str) -> None:
    it = Cluster()
    it.memory.unknown_nodes.update(NAMES)

    with pytest.raises(NotFound):
        it.scheduler(adapter).drain_all(NODES[:2], where(NODES[:2]))


@both
def test_one_that_is_not_enrolled_keeps_all_of_a_call_in_service(adapter: str) -> None:
    it = Cluster()
    it.memory.not_enrolled.add(NAMES[1])

    with pytest.raises(NotEnrolled):
        it.scheduler(adapter).drain_all(NODES[:10], where(NODES[:10]))

    assert it.memory.draining == set()
