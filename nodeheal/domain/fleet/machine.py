"""A machine as its provider knows it, how it is given back, and who else repairs it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class Remediator(StrEnum):
    """Who else repairs machines of this kind by itself. Two repairers on one node undo each other's work."""

    ec2_auto_recovery = "ec2_auto_recovery"
    eks_node_repair = "eks_node_repair"
    eks_auto_mode = "eks_auto_mode"
    ecs_managed_instances = "ecs_managed_instances"
    neuron_node_recovery = "neuron_node_recovery"
    sagemaker_hyperpod = "sagemaker_hyperpod"
    another_service = "another_service"


SWITCH_OFF = {
    Remediator.ec2_auto_recovery: (
        "aws ec2 modify-instance-maintenance-options --auto-recovery disabled, on the instance"
    ),
    Remediator.eks_node_repair: (
        "aws eks update-nodegroup-config --node-repair-config enabled=false, or NoAction for every fault of an "
        "accelerator (docs/eks.md)"
    ),
    Remediator.eks_auto_mode: "it cannot be switched off: EKS Auto Mode owns these instances; leave them to it",
    Remediator.ecs_managed_instances: "it cannot be switched off: ECS owns these instances; leave them to it",
    Remediator.neuron_node_recovery: (
        "helm upgrade AWS's Neuron chart with --set npd.nodeRecovery.enabled=false (docs/trainium.md)"
    ),
    Remediator.sagemaker_hyperpod: "set the cluster's NodeRecovery to None, in SageMaker",
    Remediator.another_service: "another AWS service owns the instance; leave it to that service",
}


# They act on every fault of the node within minutes, and a node that they have repaired shows it by another boot.
IN_CHARGE = frozenset({Remediator.sagemaker_hyperpod})


class Power(StrEnum):
    """A request to a machine's power switch."""

    REBOOT = "REBOOT"
    STOP = "STOP"
    START = "START"


class Termination(StrEnum):
    """How a broken machine is given up."""

    TERMINATE = "TERMINATE"
    MARK_UNHEALTHY = "MARK_UNHEALTHY"  # its group then replaces it by its own rules: hooks, grace, capacity first


class ClusterReplacement(StrEnum):
    """How a scheduler's cluster is told to replace the machine of a node by itself."""

    power_down = "power_down"  # ParallelCluster terminates the instance, and launches a static node again
    delete_node_claim = "delete_node_claim"  # Karpenter terminates the instance, and launches where pods are pending

    @property
    def makes_on_demand(self) -> bool:
        """Whether the cluster makes a machine only where work needs it, and may have done so before it was asked."""
        return self is ClusterReplacement.delete_node_claim


_CAPACITY_BLOCK = "capacity-block"  # EC2's word for a lifecycle


@dataclass(frozen=True)
class Machine:
    """One machine that exists. An empty field means none: no group, no placement group, no targeted reservation."""

    machine_id: str
    state: str = "running"  # the own word of EC2, or of HyperPod
    instance_type: str = ""
    group: str = ""  # the Auto Scaling group that keeps it, or the instance group of a HyperPod cluster
    launch_template: str = ""
    launch_template_version: str = ""
    subnet: str = ""
    placement_group: str = ""
    reservation: str = ""  # id of the capacity reservation that it targets, or ARN of a group, or of a training plan
    launched_at: datetime | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    external_remediator: Remediator | None = None
    remediator_detail: str = ""  # how that is known
    root_device: str = "ebs"  # or "instance-store", which a stop would lose
    lifecycle: str = ""  # "spot", "capacity-block", …: what was bought otherwise than on demand
    tenancy: str = "default"
    state_code: str = ""  # EC2's code for why it is in its state
    state_reason: str = ""  # the same for people: code and message
    # Of HyperPod's only.
    hyperpod_cluster: str = ""  # its ARN; to replace the machine destroys all its volumes
    address: str = ""

    @property
    def has_reserved_capacity(self) -> bool:
        """Whether its capacity was bought ahead: its successor may be the same host, or find no place any more."""
        return bool(self.reservation) or self.lifecycle == _CAPACITY_BLOCK


@dataclass(frozen=True)
class Alternative:
    """A subnet and a type in which a machine may be launched."""

    subnet: str
    instance_type: str


@dataclass(frozen=True)
class Launch:
    """A group's launch of one more machine. `failed`: why it failed, in its own words."""

    group: str
    at: datetime
    machine_id: str = ""
    failed: str = ""


STOPPED_BY_CALL = "Client.UserInitiatedShutdown"  # EC2's code for a stop that somebody asked for
NO_ROOM = "Server.InsufficientInstanceCapacity"  # EC2's code where a start found no capacity, and it stopped again


def why_not_stop(machine: Machine) -> str:
    """Returns why this machine must not be stopped and started. Empty: it may be."""
    name = machine.machine_id
    if machine.group:
        return f"{name} is in Auto Scaling group {machine.group}, which would replace it as soon as it is stopped"
    if machine.root_device != "ebs":
        return f"{name} has its root on {machine.root_device}, which a stop would lose"
    if machine.lifecycle:
        return f"{name} was bought as {machine.lifecycle}: whether it may be started again is not ours to say"
    if machine.tenancy == "host":
        return f"{name} is tied to a dedicated host: a start would not move it"
    if machine.state != "running":
        return f"{name} is {machine.state}, and not by us: it is left to the person who did that"
    return ""


def alternatives_of(machine: Machine, subnets: tuple[str, ...], types: tuple[str, ...]) -> tuple[Alternative, ...]:
    """Returns where to launch, in order. The machine's own type comes first, because a gang needs equal nodes."""
    places = dict.fromkeys((machine.subnet, *subnets))
    kinds = dict.fromkeys((machine.instance_type, *types))
    return tuple(Alternative(subnet, kind) for kind in kinds for subnet in places)
