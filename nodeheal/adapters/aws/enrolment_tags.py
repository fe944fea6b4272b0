"""Reads from EC2 or Systems Manager whether a machine has the tag that lets nodeheal act on it.

Of HyperPod the operator enrolls whole clusters, by the settings.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nodeheal.adapters.aws.calls import code_of, throttles_named
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Provider
from nodeheal.ports.compute import Machines

# Neither service has a machine of this id, or the id has another form.
_UNKNOWN = ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed", "InvalidResourceId")


class AwsEnrolmentTags:
    """Implements EnrolmentTags. `make`: a client of a service, by name."""

    def __init__(self, make: Callable[[str], Any], hyperpod: Machines) -> None:
        self._make = make
        self._hyperpod = hyperpod

    def pool_of(self, node_id: str, provider: Provider) -> str | None:
        from botocore.exceptions import ClientError

        if provider is Provider.hyperpod:
            return "" if self._hyperpod.describe(node_id) is not None else None
        try:
            tags = self._of_instance(node_id) if provider is Provider.ec2 else self._of_managed_node(node_id)
        except ClientError as error:
            if code_of(error) in _UNKNOWN:
                return None
            raise
        is_enrolled = tags.get(names.MANAGED_TAG) == names.MANAGED_TAG_VALUE
        return tags.get(names.AGENT_POOL_TAG, "") if is_enrolled else None

    def _of_instance(self, node_id: str) -> Mapping[str, str]:
        with throttles_named("DescribeInstances"):
            reservations = self._make("ec2").describe_instances(InstanceIds=[node_id])["Reservations"]
        return _read(tag for each in reservations for machine in each["Instances"] for tag in machine.get("Tags", []))

    def _of_managed_node(self, node_id: str) -> Mapping[str, str]:
        with throttles_named("ListTagsForResource"):
            answer = self._make("ssm").list_tags_for_resource(ResourceType="ManagedInstance", ResourceId=node_id)
        return _read(answer["TagList"])


def _read(tags: Iterable[Mapping[str, str]]) -> Mapping[str, str]:
    return {tag["Key"]: tag["Value"] for tag in tags}
