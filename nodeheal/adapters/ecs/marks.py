"""Reads and writes the enrolment mark on an ECS container instance, as tags."""

from collections.abc import Callable
from typing import Any

from nodeheal.adapters.aws.calls import code_of
from nodeheal.adapters.ecs.container_instances import find
from nodeheal.contract import names
from nodeheal.domain.fleet.enrolment import EnrolmentTag, Registry
from nodeheal.domain.fleet.node import Node

CONTAINER_INSTANCE = "ECS container instance"
_UNKNOWN_CLUSTER = "ClusterNotFoundException"


class EcsMarks:
    """Implements SchedulerMarks. `make`: a client of a service, by name."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self._make = make

    def of(self, node: Node) -> EnrolmentTag:
        ecs, arn = self._make("ecs"), self._arn(node)
        if arn is None:
            return EnrolmentTag(Registry.SCHEDULER, called=CONTAINER_INSTANCE)
        answer = ecs.describe_container_instances(cluster=node.cluster.name, containerInstances=[arn], include=["TAGS"])
        tags = {tag["key"]: tag["value"] for each in answer["containerInstances"] for tag in each.get("tags", [])}
        is_set = tags.get(names.MANAGED_TAG) == names.MANAGED_TAG_VALUE
        return EnrolmentTag(Registry.SCHEDULER, arn, is_set, tags.get(names.RACK_TAG, ""), CONTAINER_INSTANCE)

    def put(self, mark: EnrolmentTag, tags: dict[str, str]) -> None:
        lower = [{"key": key, "value": value} for key, value in tags.items()]
        self._make("ecs").tag_resource(resourceArn=mark.name, tags=lower)

    def take(self, mark: EnrolmentTag, keys: list[str]) -> None:
        self._make("ecs").untag_resource(resourceArn=mark.name, tagKeys=keys)

    def _arn(self, node: Node) -> str | None:
        """Return the container instance's ARN. A cluster that ECS does not know has no nodes."""
        from botocore.exceptions import ClientError

        try:
            return find(self._make("ecs"), node.cluster.name, node.instance_id)
        except ClientError as error:
            if code_of(error) == _UNKNOWN_CLUSTER:
                return None
            raise
