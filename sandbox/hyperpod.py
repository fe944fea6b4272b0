"""Implements the clusters of SageMaker HyperPod for simulated nodes, as far as nodeheal uses them.

botocore's service model has the operations, the states of a node and the codes of a refusal.
"""

import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from sandbox.aws_json import AwsError, Caller, Json, Operation
from sandbox.behaviour import Behaviour
from sandbox.ec2_state import new_id
from sandbox.iam import ACCOUNT, REGION

INSTANCE_GROUP = "worker"
CLUSTER_ID = "sandbox00001"  # of the one cluster that a sandbox may have: the stack has to know it before


def arn(cluster_id: str = CLUSTER_ID) -> str:
    """Return the ARN of a cluster."""
    return f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:cluster/{cluster_id}"


class Hardware(Protocol):
    """Switches the nodes behind the instances. Each call returns at once."""

    def reboot(self, instance_id: str) -> None:
        """Take it down and up again."""

    def replace(self, instance_id: str, successor: str, when_up: Callable[[str], None]) -> None:
        """Switch it off permanently and boot another one in its place, whose address `when_up` gets."""


@dataclass
class Instance:
    """A node of a cluster. Its logical id outlives a replacement."""

    instance_id: str
    address: str
    logical_id: str = field(default_factory=lambda: f"node-{secrets.token_hex(6)}")
    status: str = "Running"
    launched_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def summary(self) -> Json:
        """Describe it as ListClusterNodes does."""
        return {
            "InstanceGroupName": INSTANCE_GROUP,
            "InstanceId": self.instance_id,
            "InstanceType": "ml.p5.48xlarge",
            "LaunchTime": self.launched_at,
            "InstanceStatus": {"Status": self.status},
        }


@dataclass
class Cluster:
    """One cluster, with its nodes by instance id."""

    instances: dict[str, Instance] = field(default_factory=dict)
    recovery: str | None = "None"  # NodeRecovery; None: the answer has none
    cluster_id: str = CLUSTER_ID

    @property
    def arn(self) -> str:
        """Its ARN."""
        return arn(self.cluster_id)


class HyperPod:
    """The service."""

    def __init__(self, hardware: Hardware, behaviour: Behaviour) -> None:
        self.clusters: dict[str, Cluster] = {}
        self._hardware = hardware
        self._behaviour = behaviour
        self._lock = threading.RLock()

    def operations(self) -> dict[str, Operation]:
        """Return the served operations, by name."""
        return {
            "DescribeCluster": self.describe_cluster,
            "DescribeClusterNode": self.describe_cluster_node,
            "ListClusterNodes": self.list_cluster_nodes,
            "BatchRebootClusterNodes": self.batch_reboot_cluster_nodes,
            "BatchReplaceClusterNodes": self.batch_replace_cluster_nodes,
        }

    def describe_cluster(self, caller: Caller, request: Json) -> Json:
        """DescribeCluster."""
        cluster = self._allowed(caller, "DescribeCluster", request)
        mode = self._behaviour.hyperpod_recovery or cluster.recovery
        recovery = {"NodeRecovery": mode} if mode is not None else {}
        return {"ClusterArn": cluster.arn, "ClusterStatus": "InService", "InstanceGroups": [], **recovery}

    def describe_cluster_node(self, caller: Caller, request: Json) -> Json:
        """DescribeClusterNode, by instance id."""
        cluster = self._allowed(caller, "DescribeClusterNode", request)
        found = cluster.instances.get(request["NodeId"])
        if found is None:
            raise AwsError("ResourceNotFound", f"Node {request['NodeId']} is not part of cluster {cluster.arn}.")
        address = {"PrivatePrimaryIp": found.address} if found.address else {}
        return {"NodeDetails": {**found.summary(), "NodeLogicalId": found.logical_id, **address}}

    def list_cluster_nodes(self, caller: Caller, request: Json) -> Json:
        """ListClusterNodes, on one page."""
        cluster = self._allowed(caller, "ListClusterNodes", request)
        since = request.get("CreationTimeAfter", 0)
        found = [one for one in cluster.instances.values() if one.launched_at.timestamp() >= since]
        return {"ClusterNodeSummaries": [one.summary() for one in found]}

    def batch_reboot_cluster_nodes(self, caller: Caller, request: Json) -> Json:
        """BatchRebootClusterNodes."""
        cluster = self._allowed(caller, "BatchRebootClusterNodes", request)
        return self._batch(cluster, request, lambda found: self._hardware.reboot(found.instance_id))

    def batch_replace_cluster_nodes(self, caller: Caller, request: Json) -> Json:
        """BatchReplaceClusterNodes: the instance ends, and another one gets its logical id."""
        cluster = self._allowed(caller, "BatchReplaceClusterNodes", request)
        return self._batch(cluster, request, lambda found: self._replace(cluster, found))

    def _allowed(self, caller: Caller, call: str, request: Json) -> Cluster:
        """Return the cluster, by its ARN. Raises AwsError."""
        caller.must_be_allowed(f"sagemaker:{call}", request["ClusterName"])
        for cluster in self.clusters.values():
            if cluster.arn == request["ClusterName"]:
                return cluster
        raise AwsError("ResourceNotFound", f"Cluster {request['ClusterName']} not found.")

    def _batch(self, cluster: Cluster, request: Json, act: Callable[[Instance], None]) -> Json:
        done: list[str] = []
        failed: list[Json] = []
        with self._lock:
            for name, code in self._refusals(cluster, request):
                if code:
                    failed.append({"NodeId": name, "ErrorCode": code, "Message": f"{code}: {name}"})
                    continue
                act(cluster.instances[name])
                done.append(name)
        return {**({"Successful": done} if done else {}), **({"Failed": failed} if failed else {})}

    def _refusals(self, cluster: Cluster, request: Json) -> Iterator[tuple[str, str]]:
        if "NodeIds" not in request:
            raise AwsError("ValidationException", "The sandbox serves NodeIds only.")
        for name in request["NodeIds"]:
            found = cluster.instances.get(name)
            if found is None:
                yield name, "InstanceIdNotFound"
            elif self._behaviour.hyperpod_refuses:
                yield name, self._behaviour.hyperpod_refuses
            else:
                yield name, "" if found.status in ("Running", "Failure") else "InvalidInstanceStatus"

    def _replace(self, cluster: Cluster, found: Instance) -> None:
        found.status = "ShuttingDown"
        made = Instance(new_id("i"), "", found.logical_id, "Pending")

        def come_up(address: str) -> None:
            cluster.instances.pop(found.instance_id, None)
            made.status, made.address = "Running", address

        cluster.instances[made.instance_id] = made
        self._hardware.replace(found.instance_id, made.instance_id, come_up)
