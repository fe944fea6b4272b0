"""Implements EC2 Auto Scaling for simulated nodes: groups that keep their size."""

import threading
import time
import uuid
from datetime import UTC, datetime

from sandbox.aws_json import AwsError, Caller, Json, Operation
from sandbox.behaviour import Behaviour
from sandbox.ec2 import Ec2
from sandbox.ec2_state import GROUP_TAG, Ec2State, Group, Instance, group_arn
from sandbox.ec2_state import arn as ec2_arn
from sandbox.events import Emit, Event, wire_time
from sandbox.iam import REGION, resource_tags


class AutoScaling:
    """The service. A group that lacks a member tries to launch one until it succeeds."""

    def __init__(self, state: Ec2State, ec2: Ec2, behaviour: Behaviour, emit: Emit) -> None:
        self._state = state
        self._ec2 = ec2
        self._behaviour = behaviour
        self._emit = emit
        self._lock = threading.RLock()
        ec2.when_gone = self._member_gone
        ec2.when_stopped = self._member_stopped

    def operations(self) -> dict[str, Operation]:
        """Return the served operations, by name."""
        return {
            "DescribeAutoScalingGroups": self.describe_auto_scaling_groups,
            "DescribeScalingActivities": self.describe_scaling_activities,
            "SetInstanceHealth": self.set_instance_health,
            "TerminateInstanceInAutoScalingGroup": self.terminate_instance_in_auto_scaling_group,
        }

    def add_group(self, group: Group) -> None:
        """Create a group, which launches its members before this returns."""
        self._state.groups[group.name] = group
        self._fill(group)

    def describe_auto_scaling_groups(self, caller: Caller, request: Json) -> Json:
        """DescribeAutoScalingGroups."""
        caller.must_be_allowed("autoscaling:DescribeAutoScalingGroups", "*")
        wanted = request.get("AutoScalingGroupNames") or list(self._state.groups)
        return {"AutoScalingGroups": [_describe(self._state.groups[n]) for n in wanted if n in self._state.groups]}

    def describe_scaling_activities(self, caller: Caller, request: Json) -> Json:
        """DescribeScalingActivities of one group, newest first."""
        caller.must_be_allowed("autoscaling:DescribeScalingActivities", "*")
        return {"Activities": self._group(request["AutoScalingGroupName"]).activities[: request.get("MaxRecords", 100)]}

    def set_instance_health(self, caller: Caller, request: Json) -> Json:
        """SetInstanceHealth: the group replaces what is unhealthy."""
        group, instance = self._authorised(caller, "autoscaling:SetInstanceHealth", request["InstanceId"])
        group.members[instance.instance_id] = request["HealthStatus"]
        if request["HealthStatus"] == "Unhealthy":
            self._terminate(group, instance, "an instance was taken out of service in response to a health check")
        return {}

    def terminate_instance_in_auto_scaling_group(self, caller: Caller, request: Json) -> Json:
        """TerminateInstanceInAutoScalingGroup; what the group then does shows in its activities."""
        action = "autoscaling:TerminateInstanceInAutoScalingGroup"
        group, instance = self._authorised(caller, action, request["InstanceId"])
        if request["ShouldDecrementDesiredCapacity"]:
            group.desired -= 1
        return {"Activity": self._terminate(group, instance, "instance taken out of service by a user request")}

    def _authorised(self, caller: Caller, action: str, instance_id: str) -> tuple[Group, Instance]:
        instance = self._state.instances.get(instance_id)
        group = self._state.groups.get(instance.group) if instance is not None else None
        if instance is None or group is None or instance_id not in group.members:
            caller.must_be_allowed(action, group_arn("unknown"))
            raise AwsError("ValidationError", f"Instance Id not found - No managed instance found for {instance_id}")
        caller.must_be_allowed(action, group.arn, resource_tags(group.tags))
        return group, instance

    def _group(self, name: str) -> Group:
        if name not in self._state.groups:
            raise AwsError("ValidationError", f"AutoScalingGroup name not found - no such group: {name}")
        return self._state.groups[name]

    def _terminate(self, group: Group, instance: Instance, cause: str) -> Json:
        activity = self._note(group, f"Terminating EC2 instance: {instance.instance_id}", cause, "InProgress")
        self._ec2.terminate(instance)
        return activity

    def _member_stopped(self, instance: Instance) -> None:
        """Mark a member that does not run as unhealthy, for any cause of its stop."""
        group = self._state.groups.get(instance.group)
        if group is not None and instance.instance_id in group.members:
            self._terminate(group, instance, "an instance was taken out of service in response to an EC2 health check")

    def _member_gone(self, instance: Instance) -> None:
        group = self._state.groups.get(instance.group)
        if group is None:
            return
        group.members.pop(instance.instance_id, None)
        activity = self._note(group, f"Terminating EC2 instance: {instance.instance_id}", "it is gone", "Successful")
        self._tell("EC2 Instance Terminate Successful", group, activity, instance.instance_id)
        self._fill(group)

    def _fill(self, group: Group) -> None:
        """Launch missing members; a failed launch is retried in the background without end."""
        with self._lock:
            while len(group.members) < group.desired:
                if not self._launch(group):
                    threading.Thread(target=self._try_again, args=(group,), name=group.name, daemon=True).start()
                    return

    def _try_again(self, group: Group) -> None:
        time.sleep(self._behaviour.retry_seconds)
        if group.name in self._state.groups:
            self._fill(group)

    def _launch(self, group: Group) -> bool:
        cause = "an instance was started in response to a difference between desired and actual capacity"
        try:
            made = self._ec2.launch(group.template, {"SubnetId": group.subnet}, {**group.tags, GROUP_TAG: group.name})
        except AwsError as error:
            words = f"Launching a new EC2 instance.  Status Reason: {error.message} Launching EC2 instance failed."
            activity = self._note(group, words, cause, "Failed", error.message)
            self._tell("EC2 Instance Launch Unsuccessful", group, activity, "")
            return False
        group.members[made.instance_id] = "Healthy"
        activity = self._note(group, f"Launching a new EC2 instance: {made.instance_id}", cause, "Successful")
        self._tell("EC2 Instance Launch Successful", group, activity, made.instance_id)
        return True

    def _note(self, group: Group, description: str, cause: str, status: str, message: str = "") -> Json:
        activity = {
            "ActivityId": str(uuid.uuid4()),
            "AutoScalingGroupName": group.name,
            "Description": description,
            "Cause": cause,
            "StartTime": datetime.now(UTC),
            "EndTime": datetime.now(UTC),
            "StatusCode": status,
            **({"StatusMessage": message} if message else {}),
        }
        group.activities.insert(0, activity)
        return activity

    def _tell(self, detail_type: str, group: Group, activity: Json, instance_id: str) -> None:
        times = {key: wire_time(activity[key]) for key in ("StartTime", "EndTime")}
        detail = {**activity, **times, "EC2InstanceId": instance_id, "RequestId": activity["ActivityId"], "Details": {}}
        where = (group.arn, ec2_arn("instance", instance_id)) if instance_id else (group.arn,)
        self._emit(Event("aws.autoscaling", detail_type, where, detail))


def _describe(group: Group) -> Json:
    members = [
        {
            "InstanceId": name,
            "AvailabilityZone": f"{REGION}a",
            "LifecycleState": "InService",
            "HealthStatus": health,
            "ProtectedFromScaleIn": False,
        }
        for name, health in group.members.items()
    ]
    return {
        "AutoScalingGroupName": group.name,
        "AutoScalingGroupARN": group.arn,
        "MinSize": 0,
        "MaxSize": group.desired,
        "DesiredCapacity": group.desired,
        "DefaultCooldown": 300,
        "AvailabilityZones": [f"{REGION}a"],
        "HealthCheckType": "EC2",
        "CreatedTime": datetime.now(UTC),
        "Instances": members,
    }
