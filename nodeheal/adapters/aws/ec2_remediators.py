"""Finds what else repairs an EC2 instance, as far as EC2 and EKS report it."""

from collections.abc import Callable, Mapping
from typing import Any

from nodeheal.adapters.aws.calls import throttles_named
from nodeheal.domain.fleet.machine import Remediator

Found = tuple[Remediator | None, str]

NODEGROUP_TAG = "eks:nodegroup-name"
_EKS_CLUSTER_TAG = "eks:cluster-name"
_SAGEMAKER_TAGS = "sagemaker:"
EKS_OPERATOR = "eks.amazonaws.com"
_OPERATORS = {"ecs": Remediator.ecs_managed_instances, "eks": Remediator.eks_auto_mode}
_ACCELERATORS = "AcceleratedHardwareReady"
# XIDs on which EKS's node monitoring agent says that an accelerator is not ready. The EKS User Guide and the agent's
# source differ: these are all of either.
_XIDS = (
    13,
    31,
    46,
    48,
    54,
    62,
    63,
    64,
    74,
    79,
    94,
    95,
    109,
    110,
    119,
    120,
    121,
    136,
    140,
    142,
    143,
    151,
    155,
    156,
    158,
)
# All reasons for which EKS reboots or replaces a node whose accelerator is not ready.
ACCELERATOR_REASONS = (
    *(f"NvidiaXID{xid}Error" for xid in _XIDS),
    "NvidiaDoubleBitError",
    "NvidiaFabricError",
    "NvidiaNVLinkError",
    "NeuronDMAError",
    "NeuronHBMUncorrectableError",
    "NeuronNCUncorrectableError",
    "NeuronSRAMUncorrectableError",
)


def reasons_repaired(nodegroup: Mapping[str, Any]) -> list[str]:
    """Return the reasons for which EKS repairs this node group's accelerators; none: it leaves them to others."""
    config = nodegroup.get("nodeRepairConfig", {})
    left_alone = {
        override.get("nodeUnhealthyReason")
        for override in config.get("nodeRepairConfigOverrides", ())
        if (override.get("nodeMonitoringCondition"), override.get("repairAction")) == (_ACCELERATORS, "NoAction")
    }
    return [reason for reason in ACCELERATOR_REASONS if config.get("enabled") and reason not in left_alone]


class Remediators:
    """Answers for instances as DescribeInstances describes them. The properties of a type are read once a process."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self._make = make
        self._recoverable: dict[str, bool] = {}

    def of(self, instance: Mapping[str, Any]) -> Found:
        """Return (who, how it is known); (None, "") where nothing else repairs it."""
        tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
        operator = instance.get("Operator", {})
        if operator.get("Managed"):
            principal = operator.get("Principal", "a service")
            owner = _OPERATORS.get(principal.partition(".")[0], Remediator.another_service)
            return owner, f"{principal} operates it"
        sagemaker = next((key for key in tags if key.startswith(_SAGEMAKER_TAGS)), None)
        if sagemaker:
            return Remediator.sagemaker_hyperpod, f"tag {sagemaker}"
        if NODEGROUP_TAG in tags and (reasons := self._reasons_repaired_by_eks(tags)):
            detail = f"node group {tags[NODEGROUP_TAG]} has nodeRepairConfig.enabled without NoAction for {reasons[0]}"
            return Remediator.eks_node_repair, detail
        if self._is_recovered_by_ec2(instance, tags):
            return Remediator.ec2_auto_recovery, "MaintenanceOptions.AutoRecovery is default, and the type supports it"
        return None, ""

    def _reasons_repaired_by_eks(self, tags: Mapping[str, str]) -> list[str]:
        with throttles_named("DescribeNodegroup"):
            group = self._make("eks").describe_nodegroup(
                clusterName=tags.get(_EKS_CLUSTER_TAG, ""), nodegroupName=tags[NODEGROUP_TAG]
            )["nodegroup"]
        return reasons_repaired(group)

    def _is_recovered_by_ec2(self, instance: Mapping[str, Any], tags: Mapping[str, str]) -> bool:
        """Whether simplified automatic recovery covers the instance. It excludes members of Auto Scaling groups,
        instances with EFA, dedicated hosts, and types that do not support it (those with instance-store GPUs: p4d, p5,
        …).
        """
        if instance.get("MaintenanceOptions", {}).get("AutoRecovery", "default") != "default":
            return False
        has_efa = any(i.get("InterfaceType", "").startswith("efa") for i in instance.get("NetworkInterfaces", []))
        is_on_host = instance.get("Placement", {}).get("Tenancy") == "host"
        if "aws:autoscaling:groupName" in tags or has_efa or is_on_host:
            return False
        return self._type_is_recoverable(instance["InstanceType"])

    def _type_is_recoverable(self, instance_type: str) -> bool:
        if instance_type not in self._recoverable:
            with throttles_named("DescribeInstanceTypes"):
                [described] = self._make("ec2").describe_instance_types(InstanceTypes=[instance_type])["InstanceTypes"]
            self._recoverable[instance_type] = bool(described.get("AutoRecoverySupported"))
        return self._recoverable[instance_type]
