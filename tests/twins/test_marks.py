"""Marks: memory and AWS keep one specification. The services behind the AWS side keep tags as AWS does."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from nodeheal.adapters.aws.marks import AwsMarks
from nodeheal.adapters.ecs.marks import EcsMarks
from nodeheal.adapters.memory.marks import MemoryMarks
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Provider, SchedulerKind
from nodeheal.domain.fleet.enrolment import Registry
from nodeheal.domain.fleet.node import Node
from nodeheal.services.intake.enroll_node import Marks
from tests.support.builders import node

HYBRID, MACHINE = node(), node("i-0123456789abcdef0", provider=Provider.ec2)
NODES = [HYBRID, MACHINE]
Json = dict[str, Any]


@dataclass
class Cloud:
    """SSM, EC2 and ECS, as far as tags go; arguments are those of boto3."""

    tags: dict[str, dict[str, str]] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    left_behind: set[str] = field(default_factory=set)  # nodes with an older container instance, not connected
    state: str = "running"

    def of(self, name: str) -> dict[str, str]:
        return self.tags.setdefault(name, {"Name": "theirs"})

    def describe_instance_information(self, *, Filters: list[Json]) -> Json:
        [name] = Filters[0]["Values"]
        return {"InstanceInformationList": [] if f"SSM {name}" in self.unknown else [{"InstanceId": name}]}

    def list_tags_for_resource(self, *, ResourceType: str, ResourceId: str) -> Json:
        return {"TagList": upper(self.of(ResourceId))}

    def add_tags_to_resource(self, *, ResourceType: str, ResourceId: str, Tags: list[Json]) -> None:
        self.of(ResourceId).update({tag["Key"]: tag["Value"] for tag in Tags})

    def remove_tags_from_resource(self, *, ResourceType: str, ResourceId: str, TagKeys: list[str]) -> None:
        drop(self.of(ResourceId), TagKeys)

    def describe_instances(self, *, InstanceIds: list[str]) -> Json:
        [name] = InstanceIds
        if f"EC2 {name}" in self.unknown:
            raise ClientError({"Error": {"Code": "InvalidInstanceID.NotFound"}}, "DescribeInstances")
        machine = {"InstanceId": name, "State": {"Name": self.state}, "Tags": upper(self.of(name))}
        return {"Reservations": [{"Instances": [machine]}]}

    def create_tags(self, *, Resources: list[str], Tags: list[Json]) -> None:
        self.of(Resources[0]).update({tag["Key"]: tag["Value"] for tag in Tags})

    def delete_tags(self, *, Resources: list[str], Tags: list[Json]) -> None:
        drop(self.of(Resources[0]), [tag["Key"] for tag in Tags])

    def list_container_instances(self, *, cluster: str, filter: str) -> Json:
        name = filter.removeprefix("ec2InstanceId == ").removesuffix(" and agentConnected == true")
        if f"SCHEDULER {name}" in self.unknown:
            return {"containerInstanceArns": []}
        is_listed_first = name in self.left_behind and "agentConnected" not in filter
        older = [f"arn/{cluster}/{name}/older"] if is_listed_first else []
        return {"containerInstanceArns": [*older, f"arn/{cluster}/{name}"]}

    def describe_container_instances(self, *, cluster: str, containerInstances: list[str], include: list[str]) -> Json:
        tags = self.of(containerInstances[0]) if "TAGS" in include else {}
        return {"containerInstances": [{"tags": [{"key": k, "value": v} for k, v in tags.items()]}]}

    def tag_resource(self, *, resourceArn: str, tags: list[Json]) -> None:
        self.of(resourceArn).update({tag["key"]: tag["value"] for tag in tags})

    def untag_resource(self, *, resourceArn: str, tagKeys: list[str]) -> None:
        drop(self.of(resourceArn), tagKeys)


def upper(tags: dict[str, str]) -> list[Json]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def drop(tags: dict[str, str], keys: list[str]) -> None:
    for key in keys:
        tags.pop(key, None)


def marks_on(make: Callable[[str], Any]) -> AwsMarks:
    return AwsMarks(make, {SchedulerKind.ECS: EcsMarks(make)})


World = tuple[Marks, Callable[[Registry, Node], None]]


@pytest.fixture(params=["memory", "aws"])
def world(request: pytest.FixtureRequest) -> World:
    """The marks, and how a registry is made to forget a node."""
    if request.param == "memory":
        memory = MemoryMarks()
        return memory, lambda registry, node: memory.unknown.add((registry, node.node_id))
    cloud = Cloud()
    return marks_on(lambda service: cloud), lambda registry, node: cloud.unknown.add(f"{registry.name} {node.node_id}")


def standing(marks: Marks, of: Node) -> dict[Registry, bool]:
    return {mark.registry: mark.is_set for mark in marks.of(of)}


@pytest.mark.parametrize("which", NODES, ids=["hybrid", "ec2"])
def test_a_mark_is_put_and_taken_in_one_registry_at_a_time(world: World, which: Node) -> None:
    marks, _ = world
    first, second = marks.of(which)
    assert standing(marks, which) == {first.registry: False, second.registry: False}

    for _ in range(2):
        marks.put(which, second)
        assert standing(marks, which) == {first.registry: False, second.registry: True}

    marks.put(which, first)
    for _ in range(2):
        marks.take(which, second)
        assert standing(marks, which) == {first.registry: True, second.registry: False}


@pytest.mark.parametrize("which", NODES, ids=["hybrid", "ec2"])
def test_a_rack_stands_beside_the_mark_and_goes_with_it(world: World, which: Node) -> None:
    marks, _ = world

    for number in (0, 1):
        marks.put(which, marks.of(which)[number], "r7")
        marks.put(which, marks.of(which)[number])  # says nothing of a rack
        assert marks.of(which)[number].rack == "r7"

        marks.take(which, marks.of(which)[number])
        assert (marks.of(which)[number].rack, marks.of(which)[number].is_set) == ("", False)


def test_a_cluster_that_nobody_knows_has_nobody_in_it() -> None:
    class NoCluster(Cloud):
        def list_container_instances(self, *, cluster: str, filter: str) -> Json:
            raise ClientError({"Error": {"Code": "ClusterNotFoundException"}}, "ListContainerInstances")

    assert marks_on(lambda service: NoCluster()).of(HYBRID)[1].name == ""


def test_the_registries_are_those_that_ask_for_the_mark(world: World) -> None:
    marks, _ = world

    assert set(standing(marks, HYBRID)) == {Registry.SSM, Registry.SCHEDULER}
    assert set(standing(marks, MACHINE)) == {Registry.EC2, Registry.SCHEDULER}
    assert set(standing(marks, replace(MACHINE, provider=Provider.hyperpod))) == {Registry.SCHEDULER}


@pytest.mark.parametrize("which", NODES, ids=["hybrid", "ec2"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_registry_that_does_not_know_the_node_has_no_name_for_it(world: World, which: Node, number: int) -> None:
    marks, forget = world
    registry = marks.of(which)[number].registry

    forget(registry, which)

    assert {mark.registry: bool(mark.name) for mark in marks.of(which)}[registry] is False


def test_a_terminated_instance_is_no_instance() -> None:
    cloud = Cloud(state="terminated")

    assert marks_on(lambda service: cloud).of(MACHINE)[0].name == ""


def test_other_tags_are_left_alone_and_another_value_is_no_mark() -> None:
    cloud = Cloud(tags={HYBRID.instance_id: {names.MANAGED_TAG: "false", "Name": "theirs"}})
    marks = marks_on(lambda service: cloud)
    [managed, _] = marks.of(HYBRID)

    assert not managed.is_set
    marks.put(HYBRID, managed)
    marks.take(HYBRID, managed)
    assert cloud.tags[HYBRID.instance_id] == {"Name": "theirs"}


def test_of_two_registrations_of_a_node_the_connected_one_is_marked() -> None:
    """ECS keeps the container instance of an external node that is registered again, ACTIVE and not connected."""
    cloud = Cloud(left_behind={HYBRID.instance_id})
    marks = marks_on(lambda service: cloud)
    [mark] = [mark for mark in marks.of(HYBRID) if mark.registry is Registry.SCHEDULER]

    marks.put(HYBRID, mark)

    assert [name for name, tags in cloud.tags.items() if names.MANAGED_TAG in tags] == [
        f"arn/{HYBRID.cluster.name}/{HYBRID.instance_id}"
    ]
