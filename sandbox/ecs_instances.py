"""Implements ECS's operations on clusters and container instances."""

from collections.abc import Callable

from sandbox.aws_json import AwsError, Caller, Json, Operation
from sandbox.ecs_access import MISSING, in_cluster
from sandbox.ecs_agent import EcsAgents
from sandbox.ecs_state import ContainerInstance, EcsState, arn, last_part, tags_from_list, tags_to_list
from sandbox.iam import resource_tags


class InstanceOperations:
    """Clusters, and the nodes in them."""

    def __init__(self, state: EcsState, agents: EcsAgents) -> None:
        self._state = state
        self._agents = agents

    def operations(self) -> list[Operation]:
        """Return the served operations."""
        return [
            self.create_cluster,
            self.delete_cluster,
            self.describe_clusters,
            self.list_container_instances,
            self.list_attributes,
            self.put_attributes,
            self.describe_container_instances,
            self.update_container_instances_state,
        ]

    def create_cluster(self, caller: Caller, request: Json) -> Json:
        """CreateCluster."""
        name = request.get("clusterName", "default")
        caller.must_be_allowed("ecs:CreateCluster", arn("cluster", name))
        self._state.clusters.setdefault(name, tags_from_list(request.get("tags", [])))
        return {"cluster": self._describe_cluster(name)}

    def delete_cluster(self, caller: Caller, request: Json) -> Json:
        """DeleteCluster: only an empty one."""
        name = self._state.cluster(request["cluster"])
        caller.must_be_allowed("ecs:DeleteCluster", arn("cluster", name), resource_tags(self._state.clusters[name]))
        if any(instance.cluster == name for instance in self._state.instances.values()):
            raise AwsError("ClusterContainsContainerInstancesException", "The cluster contains container instances.")
        described = {**self._describe_cluster(name), "status": "INACTIVE"}
        del self._state.clusters[name]
        return {"cluster": described}

    def describe_clusters(self, caller: Caller, request: Json) -> Json:
        """DescribeClusters."""
        found, failures = [], []
        for wanted in request.get("clusters", ["default"]):
            name = last_part(wanted)
            caller.must_be_allowed("ecs:DescribeClusters", arn("cluster", name))
            if name in self._state.clusters:
                found.append(self._describe_cluster(name))
            else:
                failures.append({"arn": arn("cluster", name), "reason": MISSING})
        return {"clusters": found, "failures": failures}

    def list_container_instances(self, caller: Caller, request: Json) -> Json:
        """ListContainerInstances, by status and by the one filter expression that is needed: ec2InstanceId."""
        name = self._state.cluster(request.get("cluster"))
        caller.must_be_allowed("ecs:ListContainerInstances", arn("cluster", name))
        matches = _filter(request.get("filter", ""))
        wanted = request.get("status")
        found = [
            instance.arn
            for instance in self._state.instances.values()
            if instance.cluster == name and wanted in (None, instance.status) and matches(instance)
        ]
        return {"containerInstanceArns": found}

    def list_attributes(self, caller: Caller, request: Json) -> Json:
        """ListAttributes, of container instances, by name."""
        cluster = self._state.cluster(request.get("cluster"))
        caller.must_be_allowed("ecs:ListAttributes", arn("cluster", cluster))
        name, here = request["attributeName"], [one for one in self._state.instances.values() if one.cluster == cluster]
        found = [(one.arn, one.attributes[name]) for one in here if name in one.attributes]
        return {"attributes": [{"name": name, "value": value, "targetId": where} for where, value in found]}

    def put_attributes(self, caller: Caller, request: Json) -> Json:
        """PutAttributes, on container instances."""
        cluster = self._state.cluster(request.get("cluster"))
        for one in request["attributes"]:
            instance = self._state.instance(cluster, one["targetId"])
            name = arn("container-instance", f"{cluster}/{last_part(one['targetId'])}")
            caller.must_be_allowed("ecs:PutAttributes", name, in_cluster(cluster, instance.tags if instance else {}))
            if instance is None:
                raise AwsError("TargetNotFoundException", "Could not find the specified target.")
            instance.attributes[one["name"]] = one.get("value", "")
        return {"attributes": request["attributes"]}

    def describe_container_instances(self, caller: Caller, request: Json) -> Json:
        """DescribeContainerInstances."""
        found, failures = self._authorised_instances(caller, request, "ecs:DescribeContainerInstances")
        return {"containerInstances": [self._describe_instance(each) for each in found], "failures": failures}

    def update_container_instances_state(self, caller: Caller, request: Json) -> Json:
        """UpdateContainerInstancesState. As in AWS, DRAINING does not stop standalone tasks."""
        if request["status"] not in ("ACTIVE", "DRAINING"):
            raise AwsError("InvalidParameterException", "status must be ACTIVE or DRAINING")
        found, failures = self._authorised_instances(caller, request, "ecs:UpdateContainerInstancesState")
        for instance in found:
            if instance.status != request["status"]:
                instance.status = request["status"]
                self._agents.tell_instance(instance)
        return {"containerInstances": [self._describe_instance(each) for each in found], "failures": failures}

    def _authorised_instances(
        self, caller: Caller, request: Json, action: str
    ) -> tuple[list[ContainerInstance], list[Json]]:
        cluster = self._state.cluster(request.get("cluster"))
        found, failures = [], []
        for wanted in request["containerInstances"]:
            instance = self._state.instance(cluster, wanted)
            name = arn("container-instance", f"{cluster}/{last_part(wanted)}")
            caller.must_be_allowed(action, name, in_cluster(cluster, instance.tags if instance else {}))
            if instance is None:
                failures.append({"arn": name, "reason": MISSING})
            else:
                found.append(instance)
        return found, failures

    def _describe_instance(self, instance: ContainerInstance) -> Json:
        described = instance.describe(self._state.live_tasks(instance))
        return described | {"tags": tags_to_list(instance.tags)}

    def _describe_cluster(self, name: str) -> Json:
        here = [instance for instance in self._state.instances.values() if instance.cluster == name]
        tasks = [task for instance in here for task in self._state.live_tasks(instance)]
        return {
            "clusterArn": arn("cluster", name),
            "clusterName": name,
            "status": "ACTIVE",
            "registeredContainerInstancesCount": len(here),
            "runningTasksCount": sum(task.last_status == "RUNNING" for task in tasks),
            "pendingTasksCount": sum(task.last_status == "PENDING" for task in tasks),
            "activeServicesCount": 0,
        }


def _filter(expression: str) -> Callable[[ContainerInstance], bool]:
    """Parse the part of the cluster query language that is used: `ec2InstanceId == x`, `ec2InstanceId in [x, y]`,
    `agentConnected == true`, and these joined by `and`.
    """
    parts = [_condition(part) for part in expression.split(" and ")] if expression else []
    return lambda instance: all(part(instance) for part in parts)


def _condition(expression: str) -> Callable[[ContainerInstance], bool]:
    if expression.replace(" ", "") == "agentConnected==true":
        return lambda instance: instance.agent_connected
    field, _, value = expression.replace(" in ", " == ").partition("==")
    if field.strip() != "ec2InstanceId" or not value.strip():
        raise AwsError("InvalidParameterException", f"Invalid filter expression for the sandbox: {expression}")
    wanted = {part.strip(" '\"") for part in value.strip(" []").split(",")}
    return lambda instance: instance.node_id in wanted
