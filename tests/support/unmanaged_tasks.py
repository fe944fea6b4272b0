"""A node on which tasks run that nodeheal does not manage."""

from nodeheal.adapters.memory.world import MemoryScheduler
from nodeheal.domain.fleet.unmanaged_task import (
    UnmanagedTask,
)
from nodeheal.domain.policy.policy import RecoveryPolicy
from tests.support.builders import ACT, scheduler_in
from tests.support.fake_cluster import BROKEN, PEER, FakeCluster
from tests.support.incident_steps import Incident

STOPS = ACT.model_copy(update={"default_pool": ACT.default_pool.model_copy(update={"stops_other_tasks": True})})


EVALUATION = UnmanagedTask("arn:task/training/1111", "nightly-eval:3", "cron", may_be_stopped=True)


STRANGER = UnmanagedTask("arn:task/training/2222", "notebook:1", "somebody")


def unmanaged_tasks_of(it: Incident | FakeCluster) -> MemoryScheduler:
    found = scheduler_in(it.ports)
    assert isinstance(found, MemoryScheduler)
    return found


def cluster_with_unmanaged_tasks(policy: RecoveryPolicy = STOPS) -> FakeCluster:
    cluster = FakeCluster(policy)
    unmanaged_tasks_of(cluster).unmanaged = {
        unmanaged_task.task_id: (BROKEN, unmanaged_task) for unmanaged_task in (EVALUATION, STRANGER)
    }
    unmanaged_tasks_of(cluster).unmanaged["elsewhere"] = (PEER, UnmanagedTask("elsewhere", "other:1"))
    return cluster
