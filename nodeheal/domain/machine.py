"""A machine as its provider knows it, how it is given back, and who else would repair it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class Owner(StrEnum):
    """Who else repairs machines of this kind by itself. Two repairers on one node undo each other's work."""

    ec2_auto_recovery = "ec2_auto_recovery"
    eks_node_repair = "eks_node_repair"
    ecs_managed_instances = "ecs_managed_instances"
    sagemaker_hyperpod = "sagemaker_hyperpod"
    another_service = "another_service"


SWITCH_OFF = {
    Owner.ec2_auto_recovery: "aws ec2 modify-instance-maintenance-options --auto-recovery disabled, on the instance",
    Owner.eks_node_repair: "set the node group's nodeRepairConfig.enabled to false, in EKS",
    Owner.ecs_managed_instances: "it cannot be switched off: ECS owns these instances; leave them to it",
    Owner.sagemaker_hyperpod: "set the cluster's NodeRecovery to None, in SageMaker",
    Owner.another_service: "another AWS service owns the instance; leave it to that service",
}


class GiveBack(StrEnum):
    """How a broken machine is given up."""

    TERMINATE = "TERMINATE"
    MARK_UNHEALTHY = "MARK_UNHEALTHY"  # its group then replaces it by its own rules: hooks, grace, capacity first


@dataclass(frozen=True)
class Machine:
    """One machine that exists. What is empty is not so: no group, no placement group, no targeted reservation."""

    machine_id: str
    state: str = "running"  # EC2's own word
    instance_type: str = ""
    group: str = ""  # the Auto Scaling group that keeps it
    launch_template: str = ""
    launch_template_version: str = ""
    subnet: str = ""
    placement_group: str = ""
    reservation: str = ""  # id of the capacity reservation that it targets, or ARN of a group of them
    launched_at: datetime | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    other_owner: Owner | None = None
    owner_detail: str = ""  # how that is known


@dataclass(frozen=True)
class Alternative:
    """Where and as what a machine may be launched."""

    subnet: str
    instance_type: str


@dataclass(frozen=True)
class Launch:
    """What a group did to get one more machine. `failed`: why it could not, in its own words."""

    group: str
    at: datetime
    machine_id: str = ""
    failed: str = ""


def alternatives_of(machine: Machine, subnets: tuple[str, ...], types: tuple[str, ...]) -> tuple[Alternative, ...]:
    """Where to try, in order: every subnet with the machine's own type first, since a gang wants equal nodes."""
    places = dict.fromkeys((machine.subnet, *subnets))
    kinds = dict.fromkeys((machine.instance_type, *types))
    return tuple(Alternative(subnet, kind) for kind in kinds for subnet in places)
