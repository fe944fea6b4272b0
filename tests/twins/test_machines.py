"""Memory and EC2 keep one specification of machines; and what only EC2 and Auto Scaling say is read as they say it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.stub import ANY
from moto import mock_aws

from nodeheal.adapters.aws.ec2 import Ec2Machines
from nodeheal.adapters.aws.ec2_remediators import ACCELERATOR_REASONS
from nodeheal.adapters.memory.machines import MemoryMachines
from nodeheal.contract import names
from nodeheal.domain.errors import MachineRefused, NoCapacity, NotAccepted
from nodeheal.domain.fleet.machine import (
    STOPPED_BY_CALL,
    Alternative,
    Launch,
    Machine,
    Power,
    Remediator,
    Termination,
    alternatives_of,
)
from nodeheal.ports.compute import Machines
from tests.support.builders import NOW
from tests.support.machines import TYPE, Stubbed, client, instance, overrides

GROUP = "trainers"


@dataclass
class World:
    """Machines under test, with one that stands alone and one that a group keeps."""

    machines: Machines
    alone: str
    in_group: str
    subnet: str
    of_template: Callable[[], set[str]]

    def alone_now(self) -> Machine:
        found = self.machines.describe(self.alone)
        assert found is not None
        return found


def memory_world() -> World:
    machines = MemoryMachines(groups={GROUP})
    kind = Machine("i-00000000000000001", "running", TYPE, "", "lt-1", "1", "subnet-1", tags={"team": "llama"})
    machines.machines[kind.machine_id] = kind
    member = replace(kind, machine_id="i-00000000000000002", group=GROUP)
    machines.machines[member.machine_id] = member
    alone = lambda: {name for name, machine in machines.machines.items() if not machine.group}  # noqa: E731
    return World(machines, kind.machine_id, member.machine_id, "subnet-1", alone)


def aws_world() -> World:
    ec2, scaling = client("ec2"), client("autoscaling")
    image = "ami-03cf127a"  # one that moto knows; to ask for all takes it seconds
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    data = {"ImageId": image, "InstanceType": TYPE}
    template = ec2.create_launch_template(LaunchTemplateName="trainer", LaunchTemplateData=data)["LaunchTemplate"]
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "team", "Value": "llama"}]}]
    launch = {"LaunchTemplate": {"LaunchTemplateId": template["LaunchTemplateId"]}, "MinCount": 1, "MaxCount": 1}
    made = ec2.run_instances(**launch, SubnetId=subnet, TagSpecifications=tags)["Instances"][0]
    scaling.create_auto_scaling_group(
        AutoScalingGroupName=GROUP,
        MinSize=1,
        MaxSize=2,
        LaunchTemplate={"LaunchTemplateId": template["LaunchTemplateId"]},
        VPCZoneIdentifier=subnet,
    )
    [member] = scaling.describe_auto_scaling_groups()["AutoScalingGroups"][0]["Instances"]

    def alone() -> set[str]:
        found = [i for r in ec2.describe_instances()["Reservations"] for i in r["Instances"]]
        running = [i for i in found if i["State"]["Name"] == "running"]
        keys = {i["InstanceId"]: {tag["Key"] for tag in i["Tags"]} for i in running}
        return {name for name, tags in keys.items() if "aws:autoscaling:groupName" not in tags}

    return World(Ec2Machines(client, client), made["InstanceId"], member["InstanceId"], subnet, alone)


@pytest.fixture(params=["memory", "aws"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "memory":
        yield memory_world()
        return
    with mock_aws():
        yield aws_world()


# Both ---------------------------------------------------------------------------------------------------------------


def test_a_machine_is_described_as_it_is(world: World) -> None:
    alone, member = world.alone_now(), world.machines.describe(world.in_group)

    assert (alone.machine_id, alone.instance_type, alone.subnet) == (world.alone, TYPE, world.subnet)
    assert (alone.group, alone.external_remediator, alone.tags["team"]) == ("", None, "llama")
    assert alone.launch_template.startswith("lt-")
    assert member is not None
    assert member.group == GROUP


def test_what_does_not_exist_is_none(world: World) -> None:
    assert world.machines.describe("i-0ffffffffffffffff") is None


def test_a_launch_makes_one_more_like_it_and_the_same_token_makes_no_other(world: World) -> None:
    like = world.alone_now()
    places = alternatives_of(like, (), ())

    first, again = (world.machines.launch(like, "inc-1-3", places) for _ in range(2))

    assert first == again
    assert world.of_template() == {world.alone, first}
    made = world.machines.describe(first)
    assert made is not None
    assert (made.instance_type, made.subnet, made.launch_template) == (TYPE, world.subnet, like.launch_template)
    ours = {key: value for key, value in made.tags.items() if not key.startswith("aws:")}
    assert ours == {"team": "llama", names.MANAGED_TAG: "true", names.LAUNCH_TAG: "inc-1-3"}


def test_a_new_machine_does_not_say_that_it_stands_in_the_broken_ones_rack(world: World) -> None:
    like = world.alone_now()
    racked = replace(like, tags={**like.tags, names.RACK_TAG: "r7"})

    made = world.machines.describe(world.machines.launch(racked, "inc-1-3", alternatives_of(like, (), ())))

    assert made is not None
    assert names.RACK_TAG not in made.tags


def test_another_token_makes_another_machine(world: World) -> None:
    like = world.alone_now()

    first = world.machines.launch(like, "inc-1-3", alternatives_of(like, (), ()))
    second = world.machines.launch(like, "inc-2-3", alternatives_of(like, (), ()))

    assert first != second


def test_what_is_given_back_is_gone_and_a_group_makes_another(world: World) -> None:
    member = world.machines.describe(world.in_group)
    assert member is not None

    world.machines.terminate_instance(world.alone_now(), Termination.TERMINATE)
    world.machines.terminate_instance(member, Termination.TERMINATE)

    assert [world.machines.describe(name) for name in (world.alone, world.in_group)] == [None, None]


def test_what_does_not_exist_can_neither_be_rebooted_nor_given_back(world: World) -> None:
    with pytest.raises(MachineRefused):
        world.machines.power("i-0ffffffffffffffff", Power.REBOOT)
    with pytest.raises(MachineRefused):
        world.machines.terminate_instance(Machine("i-0ffffffffffffffff"), Termination.TERMINATE)


def test_a_machine_is_rebooted(world: World) -> None:
    world.machines.power(world.alone, Power.REBOOT)


def test_a_machine_is_stopped_and_started_and_either_may_be_asked_twice(world: World) -> None:
    for _ in range(2):
        world.machines.power(world.alone, Power.STOP)
    stopped = world.alone_now()
    for _ in range(2):
        world.machines.power(world.alone, Power.START)

    assert (stopped.state, stopped.root_device, stopped.lifecycle) == ("stopped", "ebs", "")
    assert stopped.state_code == STOPPED_BY_CALL
    assert world.alone_now().state in ("pending", "running")
    for order in Power:
        with pytest.raises(MachineRefused):
            world.machines.power("i-0ffffffffffffffff", order)


def test_the_alternatives_keep_the_type_as_long_as_they_can() -> None:
    like = Machine("i-1", instance_type="p5.48xlarge", subnet="subnet-1")

    places = alternatives_of(like, ("subnet-2", "subnet-1"), ("p5en.48xlarge",))

    kinds = ("p5.48xlarge", "p5en.48xlarge")
    assert places == tuple(Alternative(subnet, kind) for kind in kinds for subnet in ("subnet-1", "subnet-2"))


# Only AWS -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def aws() -> Iterator[Stubbed]:
    made = Stubbed()
    yield made
    for stub in made.stubs.values():
        stub.assert_no_pending_responses()


LIKE = Machine("i-1", instance_type=TYPE, launch_template="lt-1", launch_template_version="7", subnet="subnet-1")
TEMPLATE_DATA: dict[str, Any] = {"LaunchTemplateVersions": [{"LaunchTemplateData": {}}]}


def ready(aws: Stubbed, data: dict[str, Any] | None = None) -> Stubbed:
    """Nothing launched yet, and the template as described."""
    aws.answers("ec2", "describe_instances", {"Reservations": []})
    versions = {"LaunchTemplateVersions": [{"LaunchTemplateData": data or {}}]}
    return aws.answers(
        "ec2", "describe_launch_template_versions", versions, {"LaunchTemplateId": "lt-1", "Versions": ["7"]}
    )


def test_placement_and_reservation_are_kept_and_interfaces_get_the_subnet(aws: Stubbed) -> None:
    interfaces = [{"DeviceIndex": 0, "InterfaceType": "efa", "Groups": ["sg-1"], "SubnetId": "subnet-9"}]
    mark = {"Key": names.MANAGED_TAG, "Value": "true"}
    asked = {
        "LaunchTemplate": {"LaunchTemplateId": "lt-1", "Version": "7"},
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": "inc-1-3-0",
        "InstanceType": TYPE,
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": [{"Key": names.LAUNCH_TAG, "Value": "inc-1-3"}, mark]}
        ],
        "NetworkInterfaces": [{**interfaces[0], "SubnetId": "subnet-1"}],
        "Placement": {"GroupName": "cluster-1"},
        "CapacityReservationSpecification": {"CapacityReservationTarget": {"CapacityReservationId": "cr-1"}},
    }
    ready(aws, {"NetworkInterfaces": interfaces}).answers(
        "ec2", "run_instances", {"Instances": [{"InstanceId": "i-2"}]}, asked
    )
    like = replace(LIKE, placement_group="cluster-1", reservation="cr-1", tags={"aws:autoscaling:x": "y"})

    assert Ec2Machines(aws, aws).launch(like, "inc-1-3", alternatives_of(like, (), ())) == "i-2"


@pytest.mark.parametrize(
    ("lifecycle", "market"),
    [
        ("capacity-block", {"MarketType": "capacity-block"}),
        ("interruptible-capacity-reservation", {"MarketType": "interruptible-capacity-reservation"}),
        ("spot", None),
        ("", None),
    ],
)
def test_what_was_bought_with_a_reservation_is_asked_for_in_its_market(
    aws: Stubbed, lifecycle: str, market: dict[str, str] | None
) -> None:
    asked = {
        "LaunchTemplate": ANY,
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": ANY,
        "InstanceType": TYPE,
        "TagSpecifications": ANY,
        "SubnetId": "subnet-1",
        "CapacityReservationSpecification": {"CapacityReservationTarget": {"CapacityReservationId": "cr-1"}},
        **({"InstanceMarketOptions": market} if market else {}),
    }
    ready(aws).answers("ec2", "run_instances", {"Instances": [{"InstanceId": "i-2"}]}, asked)
    like = replace(LIKE, reservation="cr-1", lifecycle=lifecycle)

    assert Ec2Machines(aws, aws).launch(like, "inc-1-3", alternatives_of(like, (), ())) == "i-2"


@pytest.mark.parametrize(
    "code", ["InsufficientInstanceCapacity", "VcpuLimitExceeded", "MaxSpotInstanceCountExceeded", "Unsupported"]
)
def test_without_capacity_the_next_place_is_tried_with_a_token_of_its_own(aws: Stubbed, code: str) -> None:
    ready(aws).refuses("ec2", "run_instances", code)
    aws.answers("ec2", "run_instances", {"Instances": [{"InstanceId": "i-2"}]})

    assert Ec2Machines(aws, aws).launch(LIKE, "inc-1-3", alternatives_of(LIKE, ("subnet-2",), ())) == "i-2"


@pytest.mark.parametrize(("code", "is_reservation"), [("ReservationCapacityExceeded", True), ("Unsupported", False)])
def test_no_capacity_anywhere_is_told_in_ec2s_words(aws: Stubbed, code: str, is_reservation: bool) -> None:
    ready(aws).refuses("ec2", "run_instances", code)

    with pytest.raises(NoCapacity, match=f"{TYPE} in subnet-1: {code} .as it says.") as told:
        Ec2Machines(aws, aws).launch(LIKE, "inc-1-3", alternatives_of(LIKE, (), ()))
    assert told.value.is_reservation is is_reservation


@pytest.mark.parametrize(
    ("code", "status", "raised"),
    [
        ("RequestLimitExceeded", 503, NotAccepted),
        ("UnauthorizedOperation", 403, MachineRefused),
        ("InternalError", 500, ClientError),
    ],
)
def test_what_went_wrong_is_told_apart(aws: Stubbed, code: str, status: int, raised: type[Exception]) -> None:
    aws.refuses("ec2", "terminate_instances", code, status).refuses("ec2", "reboot_instances", code, status)
    ready(aws).refuses("ec2", "run_instances", code, status)
    machines = Ec2Machines(aws, aws)

    for act in (
        lambda: machines.terminate_instance(LIKE, Termination.TERMINATE),
        lambda: machines.power("i-1", Power.REBOOT),
        lambda: machines.launch(LIKE, "inc-1-3", alternatives_of(LIKE, (), ())),
    ):
        with pytest.raises(raised):
            act()


@pytest.mark.parametrize("code", ["InsufficientInstanceCapacity", "ReservationCapacityExceeded", "Unsupported"])
def test_a_start_without_capacity_is_told_as_that(aws: Stubbed, code: str) -> None:
    aws.refuses("ec2", "start_instances", code, 500)

    with pytest.raises(NoCapacity, match=code):
        Ec2Machines(aws, aws).power("i-1", Power.START)


def test_a_start_of_what_still_stops_is_asked_again_and_a_stop_that_may_not_be_is_refused(aws: Stubbed) -> None:
    aws.refuses("ec2", "start_instances", "IncorrectInstanceState").refuses(
        "ec2", "stop_instances", "UnsupportedOperation"
    )

    with pytest.raises(NotAccepted):
        Ec2Machines(aws, aws).power("i-1", Power.START)
    with pytest.raises(MachineRefused, match="UnsupportedOperation"):
        Ec2Machines(aws, aws).power("i-1", Power.STOP)


def test_what_a_stop_must_know_of_a_machine_is_read(aws: Stubbed) -> None:
    bought: dict[str, Any] = {
        "InstanceLifecycle": "spot",
        "RootDeviceType": "instance-store",
        "Placement": {"Tenancy": "host"},
    }
    reason = {"Code": "Server.InsufficientInstanceCapacity", "Message": "no room"}
    more = {**bought, "StateReason": reason, "MaintenanceOptions": {"AutoRecovery": "disabled"}}
    aws.answers("ec2", "describe_instances", instance(**more))

    found = Ec2Machines(aws, aws).describe("i-1")

    assert found is not None
    assert (found.lifecycle, found.root_device, found.tenancy) == ("spot", "instance-store", "host")
    assert found.state_code == "Server.InsufficientInstanceCapacity"
    assert found.state_reason == "Server.InsufficientInstanceCapacity: no room"


@pytest.mark.parametrize("code", ["ScalingActivityInProgress", "ResourceContention", "Throttling"])
def test_a_busy_group_is_asked_again(aws: Stubbed, code: str) -> None:
    aws.refuses("autoscaling", "terminate_instance_in_auto_scaling_group", code)

    with pytest.raises(NotAccepted):
        Ec2Machines(aws, aws).terminate_instance(replace(LIKE, group=GROUP), Termination.TERMINATE)


def test_a_group_keeps_its_size_and_may_be_left_to_replace_by_its_own_rules(aws: Stubbed) -> None:
    terminate = {"InstanceId": "i-1", "ShouldDecrementDesiredCapacity": False}
    aws.answers("autoscaling", "terminate_instance_in_auto_scaling_group", {}, terminate)
    unhealthy = {"InstanceId": "i-1", "HealthStatus": "Unhealthy", "ShouldRespectGracePeriod": False}
    aws.answers("autoscaling", "set_instance_health", {}, unhealthy)

    for how in Termination:
        Ec2Machines(aws, aws).terminate_instance(replace(LIKE, group=GROUP), how)


def test_a_groups_launches_are_read_from_its_activities(aws: Stubbed) -> None:
    def activity(description: str, status: str = "Successful", minutes: int = 0, **more: str) -> dict[str, Any]:
        at = NOW + timedelta(minutes=minutes)
        shown = {"ActivityId": "a", "AutoScalingGroupName": GROUP, "Cause": "at the request of a user", "StartTime": at}
        return {**shown, "Description": description, "StatusCode": status, **more}

    full = "Launching a new EC2 instance.  Status Reason: no capacity."
    seen = [
        activity(full, "Failed", 2, StatusMessage="no capacity"),
        activity("Launching a new EC2 instance: i-0123456789abcdef0", minutes=1),
        activity("Terminating EC2 instance: i-0fedcba9876543210"),
        activity("Launching a new EC2 instance: i-00000000000000001", minutes=-9),
    ]
    aws.answers("autoscaling", "describe_scaling_activities", {"Activities": seen})

    assert list(Ec2Machines(aws, aws).launches(GROUP, NOW)) == [
        Launch(GROUP, NOW + timedelta(minutes=1), "i-0123456789abcdef0"),
        Launch(GROUP, NOW + timedelta(minutes=2), "", "no capacity"),
    ]


def test_a_group_that_is_gone_is_refused(aws: Stubbed) -> None:
    aws.refuses("autoscaling", "describe_scaling_activities", "ValidationError")

    with pytest.raises(MachineRefused, match="ValidationError"):
        Ec2Machines(aws, aws).launches(GROUP, NOW)


def supports(aws: Stubbed, recovery: bool) -> None:
    shown = {"InstanceTypes": [{"InstanceType": TYPE, "AutoRecoverySupported": recovery}]}
    aws.answers("ec2", "describe_instance_types", shown, {"InstanceTypes": [TYPE]})


@pytest.mark.parametrize(("supported", "owner"), [(True, Remediator.ec2_auto_recovery), (False, None)])
def test_ec2_recovers_by_itself_only_types_that_support_it(
    aws: Stubbed, supported: bool, owner: Remediator | None
) -> None:
    aws.answers("ec2", "describe_instances", instance())
    supports(aws, supported)  # asked once
    aws.answers("ec2", "describe_instances", instance())
    machines = Ec2Machines(aws, aws)

    found = [machines.describe("i-1") for _ in range(2)]

    assert [machine.external_remediator for machine in found if machine] == [owner, owner]


@pytest.mark.parametrize(
    "shown",
    [
        {"MaintenanceOptions": {"AutoRecovery": "disabled"}},
        {"tags": {"aws:autoscaling:groupName": GROUP}},
        {"NetworkInterfaces": [{"InterfaceType": "efa"}]},
        {"Placement": {"Tenancy": "host"}},
    ],
)
def test_where_ec2_cannot_recover_by_itself_it_owns_nothing(aws: Stubbed, shown: dict[str, Any]) -> None:
    aws.answers("ec2", "describe_instances", instance(**shown))

    found = Ec2Machines(aws, aws).describe("i-1")

    assert found is not None
    assert found.external_remediator is None


@pytest.mark.parametrize(
    ("shown", "owner"),
    [
        ({"Operator": {"Managed": True, "Principal": "ecs.amazonaws.com"}}, Remediator.ecs_managed_instances),
        ({"Operator": {"Managed": True, "Principal": "eks.amazonaws.com"}}, Remediator.eks_auto_mode),
        ({"Operator": {"Managed": True, "Principal": "workspaces.amazonaws.com"}}, Remediator.another_service),
        ({"tags": {"sagemaker:cluster-name": "hyper"}}, Remediator.sagemaker_hyperpod),
    ],
)
def test_what_a_service_operates_is_that_services(aws: Stubbed, shown: dict[str, Any], owner: Remediator) -> None:
    aws.answers("ec2", "describe_instances", instance(**shown))

    found = Ec2Machines(aws, aws).describe("i-1")

    assert found is not None
    assert (found.external_remediator, bool(found.remediator_detail)) == (owner, True)


@pytest.mark.parametrize(
    ("config", "detail"),
    [
        ({"enabled": True}, "NvidiaXID13Error"),
        (overrides(*ACCELERATOR_REASONS[1:]), "NvidiaXID13Error"),
        (overrides(*ACCELERATOR_REASONS[:-1]), "NeuronSRAMUncorrectableError"),
        (overrides(*ACCELERATOR_REASONS, action="Reboot"), "NvidiaXID13Error"),
        (overrides(*ACCELERATOR_REASONS, condition="KernelReady"), "NvidiaXID13Error"),
        (overrides(*ACCELERATOR_REASONS), None),
        ({"enabled": False}, None),
    ],
    ids=["on", "but-the-first", "but-the-last", "reboot", "another-condition", "no-action", "off"],
)
def test_eks_says_for_which_faults_it_repairs_a_node_group(
    aws: Stubbed, config: dict[str, Any], detail: str | None
) -> None:
    tags = {"eks:cluster-name": "c", "eks:nodegroup-name": "g", "aws:autoscaling:groupName": "eks-g"}
    aws.answers("ec2", "describe_instances", instance(tags=tags))
    shown = {"nodegroup": {"nodeRepairConfig": config}}
    aws.answers("eks", "describe_nodegroup", shown, {"clusterName": "c", "nodegroupName": "g"})

    found = Ec2Machines(aws, aws).describe("i-1")

    assert found is not None
    assert found.external_remediator is (Remediator.eks_node_repair if detail else None)
    told = f"node group g has nodeRepairConfig.enabled without NoAction for {detail}"
    assert found.remediator_detail == (told if detail else "")


def test_an_instance_of_an_eks_node_group_is_given_up_in_its_auto_scaling_group(aws: Stubbed) -> None:
    group = "eks-gpus-1ac1b2d3"
    tags = {"eks:cluster-name": "c", "eks:nodegroup-name": "gpus", "aws:autoscaling:groupName": group}
    aws.answers("ec2", "describe_instances", instance(tags={**tags, names.MANAGED_TAG: "true"}))
    aws.answers("eks", "describe_nodegroup", {"nodegroup": {}})
    asked = {"InstanceId": "i-1", "ShouldDecrementDesiredCapacity": False}
    aws.answers("autoscaling", "terminate_instance_in_auto_scaling_group", {}, asked)
    machines = Ec2Machines(aws, aws)

    found = machines.describe("i-1")
    assert found is not None
    machines.terminate_instance(found, Termination.TERMINATE)

    assert (found.group, found.external_remediator) == (group, None)


def test_a_machine_on_its_way_out_is_gone(aws: Stubbed) -> None:
    aws.answers("ec2", "describe_instances", instance(State={"Name": "shutting-down"}))

    assert Ec2Machines(aws, aws).describe("i-1") is None
