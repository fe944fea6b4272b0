"""Implements EC2 for simulated nodes: launch templates, and instances that really boot."""

import threading
from collections.abc import Callable
from typing import Protocol

from sandbox.aws_json import AwsError, Caller, Json, Operation
from sandbox.behaviour import Behaviour
from sandbox.ec2_state import (
    RECOVERABLE,
    Ec2State,
    Instance,
    Template,
    arn,
    new_id,
    tags_from_list,
)
from sandbox.ec2_tags import Ec2Tags
from sandbox.events import Emit, Event
from sandbox.iam import REGION, resource_tags

OWNER = "000000000000"


class Power(Protocol):
    """Switches the nodes behind instances. Each call returns at once."""

    def boot(self, instance: Instance, when_up: Callable[[], None]) -> None:
        """Boot it for the first time."""

    def off(self, instance_id: str) -> None:
        """Switch it off permanently."""

    def down(self, instance_id: str) -> None:
        """Switch it off, until it is switched on."""

    def up(self, instance_id: str, when_up: Callable[[], None]) -> None:
        """Switch it on, as another boot, on another host."""

    def reboot(self, instance_id: str) -> None:
        """Take it down and up again."""


class Ec2:
    """The service."""

    def __init__(self, state: Ec2State, power: Power, behaviour: Behaviour, emit: Emit) -> None:
        self._state = state
        self._tags = Ec2Tags(state)
        self._power = power
        self._behaviour = behaviour
        self._emit = emit
        self._lock = threading.RLock()
        self.when_gone: Callable[[Instance], None] = lambda instance: None
        self.when_stopped: Callable[[Instance], None] = lambda instance: None

    def operations(self) -> dict[str, Operation]:
        """Return the served operations, by name."""
        return {
            "CreateLaunchTemplate": self.create_launch_template,
            "DescribeLaunchTemplateVersions": self.describe_launch_template_versions,
            "DescribeInstances": self.describe_instances,
            "DescribeInstanceStatus": self.describe_instance_status,
            "DescribeInstanceTypes": self.describe_instance_types,
            "RunInstances": self.run_instances,
            "RebootInstances": self.reboot_instances,
            "StartInstances": self.start_instances,
            "StopInstances": self.stop_instances,
            "TerminateInstances": self.terminate_instances,
            "CreateTags": self._tags.create_tags,
            "DeleteTags": self._tags.delete_tags,
        }

    def create_launch_template(self, caller: Caller, request: Json) -> Json:
        """CreateLaunchTemplate, with its one version."""
        made = Template(new_id("lt"), request["LaunchTemplateName"], request["LaunchTemplateData"], {})
        made.tags = _asked_tags(request, "launch-template")
        asked = resource_tags(made.tags, "aws:RequestTag/")
        caller.must_be_allowed("ec2:CreateLaunchTemplate", arn("launch-template", made.template_id), asked)
        self._state.templates[made.template_id] = made
        return {"LaunchTemplate": {"LaunchTemplateId": made.template_id, "LaunchTemplateName": made.name}}

    def describe_launch_template_versions(self, caller: Caller, request: Json) -> Json:
        """DescribeLaunchTemplateVersions."""
        caller.must_be_allowed("ec2:DescribeLaunchTemplateVersions", "*")
        version = request.get("Versions", ["$Default"])[0]
        found = self._state.template({**request, "Version": version})
        shown = {"LaunchTemplateId": found.template_id, "LaunchTemplateName": found.name, "VersionNumber": 1}
        return {"LaunchTemplateVersions": [{**shown, "LaunchTemplateData": found.data}]}

    def describe_instances(self, caller: Caller, request: Json) -> Json:
        """DescribeInstances, by id or by tag, and with a filter by id."""
        caller.must_be_allowed("ec2:DescribeInstances", "*")
        wanted = [self._state.instance(name) for name in request.get("InstanceIds", [])]
        found = wanted or list(self._state.instances.values())
        for each in request.get("Filters", []):
            key, values = each["Name"].removeprefix("tag:"), each["Values"]
            if each["Name"] == "instance-id":
                found = [instance for instance in found if instance.instance_id in values]
            else:
                found = [instance for instance in found if instance.tags.get(key) in values]
        reservations = [
            {"ReservationId": new_id("r"), "OwnerId": OWNER, "Instances": [instance.describe()]} for instance in found
        ]
        return {"Reservations": reservations}

    def describe_instance_status(self, caller: Caller, request: Json) -> Json:
        """DescribeInstanceStatus: a running instance is healthy, as far as EC2 can see."""
        caller.must_be_allowed("ec2:DescribeInstanceStatus", "*")
        wanted = request.get("InstanceIds") or list(self._state.instances)
        well = {"Status": "ok"}
        return {
            "InstanceStatuses": [
                {
                    "InstanceId": i.instance_id,
                    "InstanceState": i.state_now(),
                    "InstanceStatus": well,
                    "SystemStatus": well,
                }
                for i in map(self._state.instance, wanted)
                if i.state == "running"
            ]
        }

    def describe_instance_types(self, caller: Caller, request: Json) -> Json:
        """DescribeInstanceTypes, as far as automatic recovery needs it."""
        caller.must_be_allowed("ec2:DescribeInstanceTypes", "*")
        names = request.get("InstanceTypes", list(RECOVERABLE))
        return {"InstanceTypes": [{"InstanceType": n, "AutoRecoverySupported": n in RECOVERABLE} for n in names]}

    def run_instances(self, caller: Caller, request: Json) -> Json:
        """RunInstances: one instance, from a launch template. The same client token launches once."""
        template = self._state.template(request.get("LaunchTemplate", {}))
        tags = _asked_tags(request, "instance")
        self._may_run(caller, template, tags, request)
        token = request.get("ClientToken", "")
        with self._lock:
            known = [i for i in self._state.instances.values() if token and i.client_token == token]
            made = known[0] if known else self.launch(template, request, tags)
        return {"ReservationId": new_id("r"), "OwnerId": OWNER, "Instances": [made.describe()]}

    def launch(self, template: Template, request: Json, tags: dict[str, str]) -> Instance:
        """Create an instance, which boots. Raises AwsError where there is no capacity."""
        interfaces = request.get("NetworkInterfaces") or template.data.get("NetworkInterfaces") or [{}]
        subnet = request.get("SubnetId") or interfaces[0].get("SubnetId") or "subnet-sandbox"
        kind = request.get("InstanceType") or template.data.get("InstanceType", "p5.48xlarge")
        reservation = request.get("CapacityReservationSpecification") or template.data.get(
            "CapacityReservationSpecification", {}
        )
        self._must_have_room(kind, subnet, reservation)
        origin = {"aws:ec2launchtemplate:id": template.template_id, "aws:ec2launchtemplate:version": "1"}
        made = Instance(new_id("i"), kind, subnet, {**tags, **origin}, request.get("ClientToken", ""))
        made.placement_group = request.get("Placement", {}).get("GroupName", "")
        made.reservation = reservation
        market = template.data.get("InstanceMarketOptions", {})
        made.lifecycle = market.get("MarketType", "")
        made.auto_recovery = template.data.get("MaintenanceOptions", {}).get("AutoRecovery", "default")
        self._state.instances[made.instance_id] = made
        self._tell(made)
        self._power.boot(made, lambda: self._becomes(made, "running"))
        return made

    def _must_have_room(self, kind: str, subnet: str, reservation: Json) -> None:
        """Raises AwsError where the place has no capacity, or the reservation is full."""
        behaviour = self._behaviour
        if reservation and behaviour.reservation_size:
            inside = [i for i in self._state.instances.values() if i.reservation == reservation]
            if sum(i.state != "terminated" for i in inside) >= behaviour.reservation_size:
                raise AwsError("ReservationCapacityExceeded", "The targeted capacity reservation is full.")
        if subnet in behaviour.full_subnets or not behaviour.takes_capacity():
            raise AwsError(behaviour.no_capacity_code, f"There is no capacity for {kind} in {subnet}.", status=500)

    def reboot_instances(self, caller: Caller, request: Json) -> Json:
        """RebootInstances."""
        for instance in self._authorised(caller, "ec2:RebootInstances", request):
            if not instance.is_gone:
                self._power.reboot(instance.instance_id)
        return {}

    def stop_instances(self, caller: Caller, request: Json) -> Json:
        """StopInstances: in the background, as a machine takes its time. One that is stopping or stopped stays so."""
        found = self._authorised(caller, "ec2:StopInstances", request)
        for instance in found:
            if instance.root_device != "ebs" or instance.lifecycle:
                raise AwsError("UnsupportedOperation", f"You can't stop the instance '{instance.instance_id}'.")
        return {"StoppingInstances": [self._switched(each, "running", "stopping", self._stop) for each in found]}

    def start_instances(self, caller: Caller, request: Json) -> Json:
        """StartInstances: another boot, on another host, if there is capacity."""
        found = self._authorised(caller, "ec2:StartInstances", request)
        return {"StartingInstances": [self._switched(each, "stopped", "pending", self._start) for each in found]}

    def _switched(self, instance: Instance, origin: str, going: str, switch: Callable[[Instance], None]) -> Json:
        """Change the state of an instance that is in its `origin`. Raises AwsError for one in another transition."""
        with self._lock:
            before, opposite = instance.state_now(), "pending" if going == "stopping" else "stopping"
            if instance.is_gone or instance.state == opposite:
                told = f"The instance '{instance.instance_id}' is not in a state from which it can be changed."
                raise AwsError("IncorrectInstanceState", told)
            if instance.state == origin:
                switch(instance)
        return {"InstanceId": instance.instance_id, "PreviousState": before, "CurrentState": instance.state_now()}

    def _stop(self, instance: Instance) -> None:
        instance.state_reason = "Client.UserInitiatedShutdown"
        self._becomes(instance, "stopping")

        def go_down() -> None:
            self._power.down(instance.instance_id)
            self._becomes(instance, "stopped")
            self.when_stopped(instance)

        threading.Thread(target=go_down, name=f"{instance.instance_id} stop", daemon=True).start()

    def _start(self, instance: Instance) -> None:
        self._must_have_room(instance.instance_type, instance.subnet, {})  # its place in a reservation waits for it
        instance.state_reason = ""
        self._becomes(instance, "pending")
        self._power.up(instance.instance_id, lambda: self._becomes(instance, "running"))

    def terminate_instances(self, caller: Caller, request: Json) -> Json:
        """TerminateInstances."""
        found = self._authorised(caller, "ec2:TerminateInstances", request)
        before = {instance.instance_id: instance.state_now() for instance in found}
        for instance in found:
            self.terminate(instance)
        changed = [
            {"InstanceId": i.instance_id, "CurrentState": i.state_now(), "PreviousState": before[i.instance_id]}
            for i in found
        ]
        return {"TerminatingInstances": changed}

    def terminate(self, instance: Instance) -> None:
        """Switch it off permanently, in the background."""
        with self._lock:
            if instance.is_gone:
                return
            self._becomes(instance, "shutting-down")
        threading.Thread(target=self._end, args=(instance,), name=f"{instance.instance_id} end", daemon=True).start()

    def _end(self, instance: Instance) -> None:
        self._power.off(instance.instance_id)
        self._becomes(instance, "terminated")
        self.when_gone(instance)

    def _becomes(self, instance: Instance, state: str) -> None:
        if instance.state == "terminated" or (instance.is_gone and state == "running"):
            return
        instance.state = state
        self._tell(instance)

    def _tell(self, instance: Instance) -> None:
        detail = {"instance-id": instance.instance_id, "state": instance.state}
        where = (arn("instance", instance.instance_id),)
        self._emit(Event("aws.ec2", "EC2 Instance State-change Notification", where, detail))

    def _authorised(self, caller: Caller, action: str, request: Json) -> list[Instance]:
        found = [self._state.instance(name) for name in request["InstanceIds"]]
        for instance in found:
            caller.must_be_allowed(action, arn("instance", instance.instance_id), resource_tags(instance.tags))
        return found

    def _may_run(self, caller: Caller, template: Template, tags: dict[str, str], request: Json) -> None:
        """Authorize every participating resource, with the template of the launch."""
        named = arn("launch-template", template.template_id)
        launched_from = {"ec2:LaunchTemplate": named}
        asked = resource_tags(tags, "aws:RequestTag/") | {"aws:TagKeys": list(tags)} | launched_from
        caller.must_be_allowed("ec2:RunInstances", named, resource_tags(template.tags) | launched_from)
        caller.must_be_allowed("ec2:RunInstances", arn("instance", "*"), asked)
        for part in ("network-interface", "security-group", "subnet", "volume"):
            caller.must_be_allowed("ec2:RunInstances", arn(part, "sandbox"), launched_from)
        parts = {"ImageId": f"arn:aws:ec2:{REGION}::image/ami-sandbox", "KeyName": arn("key-pair", "sandbox")}
        for field, resource in parts.items():
            is_templates = {"ec2:IsLaunchTemplateResource": "false" if field in request else "true"}
            if field == "ImageId" or field in request or field in template.data:
                caller.must_be_allowed("ec2:RunInstances", resource, launched_from | is_templates)
        if tags:
            caller.must_be_allowed("ec2:CreateTags", arn("instance", "*"), asked | {"ec2:CreateAction": "RunInstances"})


def _asked_tags(request: Json, kind: str) -> dict[str, str]:
    listed = [each.get("Tags", []) for each in request.get("TagSpecifications", []) if each["ResourceType"] == kind]
    return tags_from_list([tag for tags in listed for tag in tags])
