"""Holds the state of EC2 and Auto Scaling: launch templates, instances and groups, and their descriptions."""

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sandbox.aws_json import AwsError
from sandbox.iam import ACCOUNT, REGION

Json = dict[str, Any]
GROUP_TAG = "aws:autoscaling:groupName"
STATE_CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
GONE = ("shutting-down", "terminated")
# Types that EC2 recovers by itself, without those with GPUs and instance store.
RECOVERABLE = ("p3.2xlarge", "g3s.xlarge", "inf1.xlarge")


def new_id(prefix: str) -> str:
    """Return an id of EC2's form: the prefix and 17 hexadecimal digits."""
    return f"{prefix}-{secrets.token_hex(9)[:17]}"


def arn(kind: str, name: str) -> str:
    """Return the ARN of an EC2 resource."""
    return f"arn:aws:ec2:{REGION}:{ACCOUNT}:{kind}/{name}"


def tags_to_list(tags: dict[str, str]) -> list[Json]:
    """Convert a mapping into EC2's list of tags."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def tags_from_list(tags: list[Json]) -> dict[str, str]:
    """Convert EC2's list of tags into a mapping."""
    return {tag["Key"]: tag.get("Value", "") for tag in tags}


@dataclass
class Template:
    """A launch template with its one version."""

    template_id: str
    name: str
    data: Json
    tags: dict[str, str]


@dataclass
class Instance:
    """One instance."""

    instance_id: str
    instance_type: str
    subnet: str
    tags: dict[str, str]
    client_token: str = ""
    placement_group: str = ""
    reservation: Json = field(default_factory=dict)
    auto_recovery: str = "disabled"
    state: str = "pending"
    state_reason: str = ""  # EC2's code for why it is stopped
    root_device: str = "ebs"
    lifecycle: str = ""  # spot; empty: on demand
    launched_at: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))

    @property
    def is_gone(self) -> bool:
        """Whether it is terminated, or terminating."""
        return self.state in GONE

    @property
    def group(self) -> str:
        """Return the Auto Scaling group that keeps it."""
        return self.tags.get(GROUP_TAG, "")

    def state_now(self) -> Json:
        """Return its state in EC2's spelling."""
        return {"Code": STATE_CODES[self.state], "Name": self.state}

    def describe(self) -> Json:
        """Describe it as DescribeInstances does."""
        placement = {"AvailabilityZone": f"{REGION}a", "Tenancy": "default", "GroupName": self.placement_group}
        return {
            "InstanceId": self.instance_id,
            "InstanceType": self.instance_type,
            "State": self.state_now(),
            "SubnetId": self.subnet,
            "ClientToken": self.client_token,
            "LaunchTime": self.launched_at,
            "Placement": placement,
            "MaintenanceOptions": {"AutoRecovery": self.auto_recovery},
            "Tags": tags_to_list(self.tags),
            "RootDeviceType": self.root_device,
            **({"InstanceLifecycle": self.lifecycle} if self.lifecycle else {}),
            **({"StateReason": {"Code": self.state_reason, "Message": "as asked"}} if self.state_reason else {}),
            **({"CapacityReservationSpecification": self.reservation} if self.reservation else {}),
        }


def group_arn(name: str) -> str:
    """Return the ARN of an Auto Scaling group."""
    return f"arn:aws:autoscaling:{REGION}:{ACCOUNT}:autoScalingGroup:sandbox:autoScalingGroupName/{name}"


@dataclass
class Group:
    """An Auto Scaling group that keeps its size."""

    name: str
    template: Template
    subnet: str
    desired: int
    tags: dict[str, str]
    members: dict[str, str] = field(default_factory=dict)  # instance id -> health status
    activities: list[Json] = field(default_factory=list)  # newest first

    @property
    def arn(self) -> str:
        """Return its ARN."""
        return group_arn(self.name)


@dataclass
class Ec2State:
    """The whole state."""

    templates: dict[str, Template] = field(default_factory=dict)
    instances: dict[str, Instance] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)

    def template(self, wanted: Json) -> Template:
        """Return the launch template of a specification. Raises AwsError."""
        name = wanted.get("LaunchTemplateId") or wanted.get("LaunchTemplateName")
        found = next((each for each in self.templates.values() if name in (each.template_id, each.name)), None)
        if found is None:
            raise AwsError("InvalidLaunchTemplateId.NotFoundException", f"The launch template {name} does not exist.")
        if wanted.get("Version", "$Default") not in ("1", "$Default", "$Latest"):
            raise AwsError("InvalidLaunchTemplateId.VersionNotFound", f"{name} has no version {wanted['Version']}.")
        return found

    def instance(self, instance_id: str) -> Instance:
        """Return the instance. Raises AwsError."""
        found = self.instances.get(instance_id)
        if found is None:
            raise AwsError("InvalidInstanceID.NotFound", f"The instance ID '{instance_id}' does not exist")
        return found
