"""Implements Machines on SageMaker HyperPod: only the clusters that the settings name.

The calls that act have no idempotency token, and answer 200 where they refuse. So the node is described before each.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from nodeheal.adapters.aws.calls import code_of, throttles_named
from nodeheal.adapters.aws.ec2 import refusals_named
from nodeheal.domain.errors import MachineRefused, NotAccepted
from nodeheal.domain.fleet.machine import SWITCH_OFF, Alternative, Launch, Machine, Power, Remediator, Termination

_NODE_ID = re.compile(r"i-[a-f0-9]{8}(?:[a-f0-9]{9})?")  # SageMaker's own pattern: it refuses others as malformed
_GOING = frozenset({"NotFound", "ShuttingDown"})
_STEADY = frozenset({"Failure", "Running"})
# HyperPod works on the node and has not begun what was asked: the same call may be accepted later.
_BUSY = frozenset({"InstanceIdInUse", "InvalidInstanceStatus"})
_UNKNOWN = "InstanceIdNotFound"


class HyperPodMachines:
    """Implements Machines. `clusters`: their ARNs. `once` creates clients that send a call that acts a single time."""

    def __init__(self, make: Callable[[str], Any], once: Callable[[str], Any], clusters: Sequence[str]) -> None:
        self._make = make
        self._once = once
        self._clusters = tuple(clusters)

    def describe(self, machine_id: str) -> Machine | None:
        for cluster in self._clusters if _NODE_ID.fullmatch(machine_id) else ():
            node = self._node(cluster, machine_id)
            if node is not None and node["InstanceStatus"]["Status"] not in _GOING:
                return _machine(cluster, node, **self._of_cluster(cluster, node["InstanceGroupName"]))
        return None

    def power(self, machine_id: str, order: Power) -> None:
        if order is not Power.REBOOT:
            raise MachineRefused(f"HyperPod can only reboot or replace {machine_id}")
        self._ask("BatchRebootClusterNodes", "batch_reboot_cluster_nodes", machine_id)

    def launch(self, like: Machine, token: str, alternatives: Sequence[Alternative]) -> str:
        raise MachineRefused(f"HyperPod makes a machine only in the place of {like.machine_id}")

    def terminate_instance(self, machine: Machine, how: Termination) -> None:
        """Have HyperPod replace it, by either word of Auto Scaling's: a replaced id names no other machine."""
        self._ask("BatchReplaceClusterNodes", "batch_replace_cluster_nodes", machine.machine_id)

    def launches(self, group: str, since: datetime) -> Sequence[Launch]:
        launches = []
        for cluster in self._clusters:
            with throttles_named("ListClusterNodes"), refusals_named("ListClusterNodes"):
                pages = self._make("sagemaker").get_paginator("list_cluster_nodes")
                nodes = [
                    node
                    for page in pages.paginate(ClusterName=cluster, CreationTimeAfter=since)
                    for node in page["ClusterNodeSummaries"]
                ]
            launches += [_launch(group, node) for node in nodes if _group_of(cluster, node) == group]
        return sorted(launches, key=lambda launch: launch.at)

    def _node(self, cluster: str, machine_id: str) -> Mapping[str, Any] | None:
        from botocore.exceptions import ClientError

        try:
            with throttles_named("DescribeClusterNode"):
                answer = self._make("sagemaker").describe_cluster_node(ClusterName=cluster, NodeId=machine_id)
        except ClientError as error:
            if code_of(error) == "ResourceNotFound":
                return None
            raise
        details: Mapping[str, Any] = answer["NodeDetails"]
        return details

    def _of_cluster(self, cluster: str, group: str) -> dict[str, Any]:
        """Return whether the group's capacity is of a training plan, and whether HyperPod repairs by itself. Only a
        plain `None` of the cluster's says that it does not.
        """
        with throttles_named("DescribeCluster"):
            described = self._make("sagemaker").describe_cluster(ClusterName=cluster)
        groups = {each["InstanceGroupName"]: each for each in described.get("InstanceGroups", ())}
        reserved = {"reservation": groups.get(group, {}).get("TrainingPlanArn", "")}
        mode = described.get("NodeRecovery", "not given")
        if mode == "None":
            return reserved
        return {
            **reserved,
            "external_remediator": Remediator.sagemaker_hyperpod,
            "remediator_detail": f"NodeRecovery of {cluster} is {mode}",
        }

    def _ask(self, call: str, operation: str, machine_id: str) -> None:
        machine = self.describe(machine_id)
        if machine is None:
            raise MachineRefused(f"no HyperPod cluster of the settings has {machine_id}")
        if machine.external_remediator is not None:
            raise MachineRefused(f"{machine.remediator_detail}: {SWITCH_OFF[machine.external_remediator]}")
        if machine.state not in _STEADY:
            raise NotAccepted(f"{call}: HyperPod says that {machine_id} is {machine.state}")
        with throttles_named(call), refusals_named(call):
            answer = getattr(self._once("sagemaker"), operation)(
                ClusterName=machine.hyperpod_cluster, NodeIds=[machine_id]
            )
        if machine_id in answer.get("Successful", ()):
            return
        failed: Mapping[str, str] = next(
            (entry for entry in answer.get("Failed", ()) if entry["NodeId"] == machine_id), {}
        )
        why = f"{call}: {failed.get('ErrorCode')} ({failed.get('Message')})"
        if failed.get("ErrorCode") in _BUSY:
            raise NotAccepted(why)
        if failed.get("ErrorCode") == _UNKNOWN:
            raise MachineRefused(why)
        raise RuntimeError(f"{why}: it may have been done")


def _machine(cluster: str, node: Mapping[str, Any], **more: Any) -> Machine:
    return Machine(
        machine_id=node["InstanceId"],
        state=node["InstanceStatus"]["Status"],
        state_reason=node["InstanceStatus"].get("Message", ""),
        instance_type=node.get("InstanceType", ""),
        group=_group_of(cluster, node),
        hyperpod_cluster=cluster,
        address=node.get("PrivatePrimaryIp", ""),
        launched_at=node.get("LaunchTime"),
        **more,
    )


def _group_of(cluster: str, node: Mapping[str, Any]) -> str:
    return f"{cluster}/{node['InstanceGroupName']}"


def _launch(group: str, node: Mapping[str, Any]) -> Launch:
    status = node["InstanceStatus"]
    failed = status.get("Message") or status["Status"] if status["Status"] == "Failure" else ""
    return Launch(group=group, at=node["LaunchTime"], machine_id=node["InstanceId"], failed=failed)
