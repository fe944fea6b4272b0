"""Reads and writes enrolment marks as tags: of the SSM managed node or the EC2 instance, and in the scheduler where it
has marks.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from nodeheal.adapters.aws.calls import code_of
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Provider, SchedulerKind
from nodeheal.domain.fleet.enrolment import EnrolmentTag, Registry
from nodeheal.domain.fleet.node import Node

_UNKNOWN_MACHINE = ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed")
_GONE = ("shutting-down", "terminated")
_OURS = (names.MANAGED_TAG, names.RACK_TAG)


class SchedulerMarks(Protocol):
    """Reads and writes the mark of a node in its scheduler's own registry."""

    def of(self, node: Node) -> EnrolmentTag:
        """Return the present mark."""

    def put(self, mark: EnrolmentTag, tags: dict[str, str]) -> None:
        """Set these tags."""

    def take(self, mark: EnrolmentTag, keys: list[str]) -> None:
        """Remove these tags."""


class AwsMarks:
    """Implements Marks. `make`: a client of a service, by name. `schedulers` contains only schedulers with marks."""

    def __init__(self, make: Callable[[str], Any], schedulers: Mapping[SchedulerKind, SchedulerMarks]) -> None:
        self._make, self._schedulers = make, schedulers

    def of(self, node: Node) -> Sequence[EnrolmentTag]:
        looks = {Provider.ec2: self._instance, Provider.hybrid: self._managed_node}  # HyperPod's have no tags of ours
        machine = [looks[node.provider](node)] if node.provider in looks else []
        scheduler = self._schedulers.get(node.cluster.kind)
        return (*machine, scheduler.of(node)) if scheduler is not None else machine

    def put(self, node: Node, mark: EnrolmentTag, rack: str = "") -> None:
        wanted = {names.MANAGED_TAG: names.MANAGED_TAG_VALUE, **({names.RACK_TAG: rack} if rack else {})}
        upper = [{"Key": key, "Value": value} for key, value in wanted.items()]
        if mark.registry is Registry.SSM:
            where = {"ResourceType": "ManagedInstance", "ResourceId": mark.name}
            self._make("ssm").add_tags_to_resource(**where, Tags=upper)
        elif mark.registry is Registry.EC2:
            self._make("ec2").create_tags(Resources=[mark.name], Tags=upper)
        else:
            self._schedulers[node.cluster.kind].put(mark, wanted)

    def take(self, node: Node, mark: EnrolmentTag) -> None:
        if mark.registry is Registry.SSM:
            where = {"ResourceType": "ManagedInstance", "ResourceId": mark.name}
            self._make("ssm").remove_tags_from_resource(**where, TagKeys=list(_OURS))
        elif mark.registry is Registry.EC2:
            self._make("ec2").delete_tags(Resources=[mark.name], Tags=[{"Key": key} for key in _OURS])
        else:
            self._schedulers[node.cluster.kind].take(mark, list(_OURS))

    def _managed_node(self, node: Node) -> EnrolmentTag:
        ssm, name = self._make("ssm"), node.instance_id
        known = ssm.describe_instance_information(Filters=[{"Key": "InstanceIds", "Values": [name]}])
        if not known["InstanceInformationList"]:
            return EnrolmentTag(Registry.SSM)
        tags = ssm.list_tags_for_resource(ResourceType="ManagedInstance", ResourceId=name)["TagList"]
        return _mark(Registry.SSM, name, {tag["Key"]: tag["Value"] for tag in tags})

    def _instance(self, node: Node) -> EnrolmentTag:
        from botocore.exceptions import ClientError

        try:
            reservations = self._make("ec2").describe_instances(InstanceIds=[node.instance_id])["Reservations"]
        except ClientError as error:
            if code_of(error) in _UNKNOWN_MACHINE:
                return EnrolmentTag(Registry.EC2)
            raise
        machine = reservations[0]["Instances"][0]
        if machine["State"]["Name"] in _GONE:
            return EnrolmentTag(Registry.EC2)
        tags = {tag["Key"]: tag["Value"] for tag in machine.get("Tags", [])}
        return _mark(Registry.EC2, node.instance_id, tags)


def _mark(registry: Registry, name: str, tags: Mapping[str, str]) -> EnrolmentTag:
    is_set = tags.get(names.MANAGED_TAG) == names.MANAGED_TAG_VALUE
    return EnrolmentTag(registry, name, is_set, tags.get(names.RACK_TAG, ""))
