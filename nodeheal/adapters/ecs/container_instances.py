"""Finds the container instances of nodes in an ECS cluster.

A node that is registered again leaves its old container instance behind, ACTIVE and not connected, with the old tags.
So one whose agent is connected is preferred.
"""

from typing import TYPE_CHECKING, Any

from nodeheal.adapters.aws.calls import throttles_named

if TYPE_CHECKING:
    from types_boto3_ecs import ECSClient

CONNECTED = "agentConnected == true"


def listed(ecs: "ECSClient", cluster: str, instance_id: str, *, connected: bool, status: str = "") -> list[str]:
    """Return the ARNs of the machine's container instances, in one call: all, or those whose agent is connected."""
    only: dict[str, Any] = {"status": status} if status else {}
    expression = f"ec2InstanceId == {instance_id}" + (f" and {CONNECTED}" if connected else "")
    with throttles_named("ListContainerInstances"):
        return ecs.list_container_instances(cluster=cluster, filter=expression, **only)["containerInstanceArns"]


def find(ecs: "ECSClient", cluster: str, instance_id: str) -> str | None:
    """Return the ARN of the machine's container instance, or None if the cluster has none."""
    for connected in (True, False):
        arns = listed(ecs, cluster, instance_id, connected=connected)
        if arns:
            return arns[0]
    return None


def words_of(ecs: "ECSClient", cluster: str, instance_id: str) -> str:
    """Return what ECS says of the machine now: whether it takes tasks, is connected, and how many tasks it has."""
    arn = find(ecs, cluster, instance_id)
    if arn is None:
        return f"no container instance of cluster {cluster}"
    with throttles_named("DescribeContainerInstances"):
        described = ecs.describe_container_instances(cluster=cluster, containerInstances=[arn])["containerInstances"]
    if not described:
        return f"no container instance of cluster {cluster} any more"
    [instance] = described
    connected = "connected" if instance["agentConnected"] else "not connected"
    tasks = f"{instance['runningTasksCount']} running and {instance['pendingTasksCount']} pending"
    return f"{instance['status']}, its ECS agent {connected}, tasks: {tasks}"


def tags_by_machine(ecs: Any, cluster: str) -> dict[str, dict[str, str]]:
    """Return the tags of each container instance of the cluster, by machine; of the connected one where there
    are two.
    """
    instances: list[Any] = []
    for page in ecs.get_paginator("list_container_instances").paginate(cluster=cluster):
        arns = page["containerInstanceArns"]
        if arns:
            asked = ecs.describe_container_instances(cluster=cluster, containerInstances=arns, include=["TAGS"])
            instances += asked["containerInstances"]
    instances.sort(key=lambda instance: instance["agentConnected"])
    return {
        instance["ec2InstanceId"]: {tag["key"]: tag["value"] for tag in instance.get("tags", ())}
        for instance in instances
    }
