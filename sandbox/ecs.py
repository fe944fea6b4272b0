"""Implements ECS for external instances: the operations that nodeheal and its users call."""

import threading
from collections.abc import Mapping
from functools import wraps

from sandbox.aws_json import AwsError, Caller, Json, Operation
from sandbox.behaviour import Behaviour
from sandbox.ecs_agent import EcsAgents
from sandbox.ecs_instances import InstanceOperations
from sandbox.ecs_state import ContainerInstance, EcsState, arn, new_id, tags_from_list, tags_to_list
from sandbox.ecs_tasks import TaskOperations
from sandbox.events import Emit
from sandbox.iam import resource_tags
from sandbox.node import Node
from sandbox.task_logs import Sink, TaskLogs, nowhere


class Ecs:
    """The service. One lock: every operation is short, and no operation waits for processes."""

    def __init__(
        self, nodes: Mapping[str, Node], emit: Emit, log: Sink = nowhere, behaviour: Behaviour | None = None
    ) -> None:
        self._lock = threading.RLock()
        self._state = EcsState()
        self.agents = EcsAgents(self._state, self._lock, nodes, emit, TaskLogs(log), behaviour or Behaviour())

    def operations(self) -> dict[str, Operation]:
        """Return the served operations, by name."""
        instances = InstanceOperations(self._state, self.agents).operations()
        tasks = TaskOperations(self._state, self.agents).operations()
        served = [*instances, *tasks, self.tag_resource, self.untag_resource, self.list_tags_for_resource]
        return {_operation_name(operation): self._locked(operation) for operation in served}

    def register_node(self, node_id: str, cluster: str, gpus: int, tags: dict[str, str]) -> ContainerInstance:
        """Do what `ecs-anywhere-install.sh` does: the node joins the cluster, which is created if necessary."""
        with self._lock:
            self._state.clusters.setdefault(cluster, {})
            made = ContainerInstance(arn("container-instance", f"{cluster}/{new_id()}"), cluster, node_id, gpus, tags)
            self._state.instances[made.arn] = made
            self.agents.tell_instance(made)
            return made

    def deregister_node(self, node_id: str) -> None:
        """Do what ECS does when an EC2 instance is terminated: its tasks end, and it leaves the cluster."""
        with self._lock:
            self.agents.node_is_gone(node_id)
            for found in [each for each in self._state.instances.values() if each.node_id == node_id]:
                found.status = "INACTIVE"
                self.agents.tell_instance(found)
                del self._state.instances[found.arn]

    def tag_resource(self, caller: Caller, request: Json) -> Json:
        """TagResource."""
        tags = self._tags_of(request["resourceArn"])
        added = tags_from_list(request["tags"])
        asked = resource_tags(tags) | resource_tags(added, "aws:RequestTag/") | {"aws:TagKeys": list(added)}
        caller.must_be_allowed("ecs:TagResource", request["resourceArn"], asked)
        tags.update(added)
        return {}

    def untag_resource(self, caller: Caller, request: Json) -> Json:
        """UntagResource. A missing tag is no error."""
        tags = self._tags_of(request["resourceArn"])
        asked = resource_tags(tags) | {"aws:TagKeys": list(request["tagKeys"])}
        caller.must_be_allowed("ecs:UntagResource", request["resourceArn"], asked)
        for key in request["tagKeys"]:
            tags.pop(key, None)
        return {}

    def list_tags_for_resource(self, caller: Caller, request: Json) -> Json:
        """ListTagsForResource."""
        tags = self._tags_of(request["resourceArn"])
        caller.must_be_allowed("ecs:ListTagsForResource", request["resourceArn"], resource_tags(tags))
        return {"tags": tags_to_list(tags)}

    def _locked(self, operation: Operation) -> Operation:
        @wraps(operation)
        def run(caller: Caller, request: Json) -> Json:
            with self._lock:
                return operation(caller, request)

        return run

    def _tags_of(self, resource_arn: str) -> dict[str, str]:
        kind, _, name = resource_arn.rpartition(":")[2].partition("/")
        if kind == "cluster" and name in self._state.clusters:
            return self._state.clusters[name]
        if resource_arn in self._state.instances:
            return self._state.instances[resource_arn].tags
        if resource_arn in self._state.tasks:
            return self._state.tasks[resource_arn].tags
        if kind.startswith("task-definition"):
            return self._state.definition(resource_arn).tags
        raise AwsError("InvalidParameterException", f"{resource_arn} was not found.")


def _operation_name(operation: Operation) -> str:
    name: str = operation.__name__
    return "".join(part.capitalize() for part in name.split("_"))
