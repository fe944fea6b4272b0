"""Implements Machines on EC2 and EC2 Auto Scaling."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nodeheal.adapters.aws.calls import code_of, is_throttle, throttles_named
from nodeheal.adapters.aws.ec2_remediators import Remediators
from nodeheal.contract import names
from nodeheal.domain.errors import MachineRefused, NoCapacity, NotAccepted
from nodeheal.domain.fleet.machine import Alternative, Launch, Machine, Power, Termination

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

_RESERVATION_FULL = "ReservationCapacityExceeded"
# There is no capacity here now. Another subnet or type may have some, and so may a later time.
_NO_CAPACITY = frozenset(
    {
        "InstanceLimitExceeded",
        "InsufficientCapacity",
        "InsufficientFreeAddressesInSubnet",
        "InsufficientHostCapacity",
        "InsufficientInstanceCapacity",
        "InsufficientReservedInstanceCapacity",
        "MaxSpotInstanceCountExceeded",
        _RESERVATION_FULL,
        "SpotMaxPriceTooLow",
        "UnfulfillableCapacity",
        "Unsupported",  # this type is not offered in this zone
        "VcpuLimitExceeded",
    }
)
# Auto Scaling is busy with this group and has changed nothing.
# What RunInstances must be told beside the reservation, by the word that DescribeInstances has for it (EC2 API
# Reference, InstanceMarketOptionsRequest). A Spot request stands in the launch template, with its options.
_MARKETS_OF_RESERVATIONS = frozenset({"capacity-block", "interruptible-capacity-reservation"})
_BUSY = frozenset({"ResourceContention", "ResourceContentionFault", "ScalingActivityInProgress"})
_STILL_STOPPING = "IncorrectInstanceState"
_ORDERS = {
    Power.REBOOT: ("RebootInstances", "reboot_instances"),
    Power.STOP: ("StopInstances", "stop_instances"),
    Power.START: ("StartInstances", "start_instances"),
}
_GOING = frozenset({"shutting-down", "terminated"})
_GROUP_TAG = "aws:autoscaling:groupName"
_TEMPLATE_TAG = "aws:ec2launchtemplate:id"
_VERSION_TAG = "aws:ec2launchtemplate:version"
_LAUNCHING = "Launching a new EC2 instance"
_MACHINE_ID = re.compile(r"\bi-[0-9a-f]{8,17}\b")
ACTIVITIES = 50  # the newest activities; a group has a few in the time of one replacement


class Ec2Machines:
    """Implements Machines. `once` creates clients that send a call that acts a single time."""

    def __init__(self, make: Callable[[str], Any], once: Callable[[str], Any]) -> None:
        self._make = make
        self._once = once
        self._owners = Remediators(make)

    def describe(self, machine_id: str) -> Machine | None:
        instances = self._instances(InstanceIds=[machine_id])
        if not instances or instances[0]["State"]["Name"] in _GOING:
            return None
        owner, detail = self._owners.of(instances[0])
        return _machine(instances[0], remediator_detail=detail, external_remediator=owner)

    def power(self, machine_id: str, order: Power) -> None:
        from botocore.exceptions import ClientError

        call, operation = _ORDERS[order]
        besides = _NO_CAPACITY | {_STILL_STOPPING} if order is Power.START else frozenset()
        try:
            with throttles_named(call), refusals_named(call, besides):
                getattr(self._once("ec2"), operation)(InstanceIds=[machine_id])
        except ClientError as error:
            if code_of(error) not in besides:
                raise
            if code_of(error) == _STILL_STOPPING:
                raise NotAccepted(f"{call}: {_words(error)}") from error
            raise NoCapacity(_words(error)) from error

    def launch(self, like: Machine, token: str, alternatives: Sequence[Alternative]) -> str:
        # EC2 repeats its answer for a token. But an alternative that had no capacity then may have some now: look
        # first.
        launched = self._instances(Filters=[{"Name": f"tag:{names.LAUNCH_TAG}", "Values": [token]}])
        alive = [instance["InstanceId"] for instance in launched if instance["State"]["Name"] not in _GOING]
        if alive:
            return str(alive[0])
        interfaces = self._interfaces_of(like)
        missing, reserved = [], []
        for number, place in enumerate(alternatives):
            request = _request(like, token, place, interfaces) | {"ClientToken": f"{token}-{number}"}
            try:
                return self._run(request)
            except NoCapacity as short:
                missing.append(f"{place.instance_type} in {place.subnet}: {short}")
                reserved.append(short.is_reservation)
        raise NoCapacity("; ".join(missing), is_reservation=all(reserved))

    def terminate_instance(self, machine: Machine, how: Termination) -> None:
        if not machine.group:
            with throttles_named("TerminateInstances"), refusals_named("TerminateInstances"):
                self._once("ec2").terminate_instances(InstanceIds=[machine.machine_id])
            return
        scaling, call = self._once("autoscaling"), "TerminateInstanceInAutoScalingGroup"
        with throttles_named(call), refusals_named(call):
            if how is Termination.TERMINATE:
                scaling.terminate_instance_in_auto_scaling_group(
                    InstanceId=machine.machine_id, ShouldDecrementDesiredCapacity=False
                )
            else:
                scaling.set_instance_health(
                    InstanceId=machine.machine_id, HealthStatus="Unhealthy", ShouldRespectGracePeriod=False
                )

    def launches(self, group: str, since: datetime) -> Sequence[Launch]:
        with throttles_named("DescribeScalingActivities"), refusals_named("DescribeScalingActivities"):
            activities = self._make("autoscaling").describe_scaling_activities(
                AutoScalingGroupName=group, MaxRecords=ACTIVITIES
            )["Activities"]
        ours = (a for a in activities if a["Description"].startswith(_LAUNCHING) and a["StartTime"] >= since)
        return sorted((_launch(group, activity) for activity in ours), key=lambda launch: launch.at)

    def _instances(self, **asked: Any) -> list[dict[str, Any]]:
        from botocore.exceptions import ClientError

        try:
            with throttles_named("DescribeInstances"):
                answer = self._make("ec2").describe_instances(**asked)
        except ClientError as error:
            if code_of(error) in ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"):
                return []
            raise
        return [instance for reservation in answer["Reservations"] for instance in reservation["Instances"]]

    def _interfaces_of(self, like: Machine) -> list[dict[str, Any]]:
        """Return the template's network interfaces: where it has some, the subnet must be set in them and
        nowhere else.
        """
        call = "DescribeLaunchTemplateVersions"
        with throttles_named(call), refusals_named(call):
            versions = self._make("ec2").describe_launch_template_versions(
                LaunchTemplateId=like.launch_template, Versions=[like.launch_template_version or "$Default"]
            )["LaunchTemplateVersions"]
        if not versions:
            raise MachineRefused(
                f"launch template {like.launch_template} has no version {like.launch_template_version}"
            )
        interfaces: list[dict[str, Any]] = versions[0]["LaunchTemplateData"].get("NetworkInterfaces", [])
        return interfaces

    def _run(self, request: dict[str, Any]) -> str:
        from botocore.exceptions import ClientError

        try:
            with throttles_named("RunInstances"), refusals_named("RunInstances", besides=_NO_CAPACITY):
                answer = self._once("ec2").run_instances(**request)
        except ClientError as error:
            if code_of(error) in _NO_CAPACITY:
                raise NoCapacity(_words(error), is_reservation=code_of(error) == _RESERVATION_FULL) from error
            raise
        return str(answer["Instances"][0]["InstanceId"])


def _machine(instance: Mapping[str, Any], **more: Any) -> Machine:
    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
    target = instance.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
    return Machine(
        machine_id=instance["InstanceId"],
        state=instance["State"]["Name"],
        instance_type=instance["InstanceType"],
        group=tags.get(_GROUP_TAG, ""),
        launch_template=tags.get(_TEMPLATE_TAG, ""),
        launch_template_version=tags.get(_VERSION_TAG, ""),
        subnet=instance.get("SubnetId", ""),
        placement_group=instance.get("Placement", {}).get("GroupName", ""),
        reservation=target.get("CapacityReservationId") or target.get("CapacityReservationResourceGroupArn") or "",
        launched_at=instance.get("LaunchTime"),
        tags=tags,
        root_device=instance.get("RootDeviceType") or "ebs",
        lifecycle=instance.get("InstanceLifecycle") or "",
        tenancy=instance.get("Placement", {}).get("Tenancy") or "default",
        state_code=instance.get("StateReason", {}).get("Code") or "",
        state_reason=": ".join(filter(None, map(instance.get("StateReason", {}).get, ("Code", "Message")))),
        **more,
    )


def _request(like: Machine, token: str, place: Alternative, interfaces: list[dict[str, Any]]) -> dict[str, Any]:
    """Build RunInstances' request for one more machine like this one, in that place."""
    kept = {k: v for k, v in like.tags.items() if not k.startswith("aws:") and k != names.RACK_TAG}
    tags = {**kept, names.MANAGED_TAG: names.MANAGED_TAG_VALUE, names.LAUNCH_TAG: token}
    template = {"LaunchTemplateId": like.launch_template, "Version": like.launch_template_version or "$Default"}
    request: dict[str, Any] = {
        "LaunchTemplate": template,
        "MinCount": 1,
        "MaxCount": 1,
        "InstanceType": place.instance_type,
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in sorted(tags.items())]}
        ],
    }
    if interfaces:
        request["NetworkInterfaces"] = [{**interface, "SubnetId": place.subnet} for interface in interfaces]
    elif place.subnet:
        request["SubnetId"] = place.subnet
    if like.placement_group:
        request["Placement"] = {"GroupName": like.placement_group}
    if like.reservation:
        kind = "CapacityReservationResourceGroupArn" if like.reservation.startswith("arn:") else "CapacityReservationId"
        request["CapacityReservationSpecification"] = {"CapacityReservationTarget": {kind: like.reservation}}
        if like.lifecycle in _MARKETS_OF_RESERVATIONS:
            request["InstanceMarketOptions"] = {"MarketType": like.lifecycle}
    return request


def _launch(group: str, activity: Mapping[str, Any]) -> Launch:
    has_failed = activity["StatusCode"] in ("Failed", "Cancelled")
    match = _MACHINE_ID.search(activity["Description"])
    return Launch(
        group=group,
        at=activity["StartTime"],
        machine_id=match[0] if match else "",
        failed=activity.get("StatusMessage", activity["StatusCode"]) if has_failed else "",
    )


def _words(error: "ClientError") -> str:
    return f"{code_of(error)} ({error.response.get('Error', {}).get('Message', '')})"


@contextmanager
def refusals_named(call: str, besides: frozenset[str] = frozenset()) -> Iterator[None]:
    """Convert client errors (4xx: nothing was done) into MachineRefused; other errors pass unchanged."""
    from botocore.exceptions import ClientError

    try:
        yield
    except ClientError as error:
        if code_of(error) in _BUSY:
            raise NotAccepted(f"{call}: {code_of(error)}") from error
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
        if code_of(error) in besides or is_throttle(error) or not 400 <= status < 500:
            raise
        raise MachineRefused(f"{call}: {_words(error)}") from error
