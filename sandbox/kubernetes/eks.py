"""An EKS cluster of the sandbox: a real control plane, which the emulator's EKS describes. EKS judges its tokens."""

import base64
import json
import signal
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import yaml

from nodeheal.adapters.kubernetes.nodes import UNCHECKED_TAINT
from nodeheal.contract import names
from sandbox import processes
from sandbox.aws_emulator import AwsEmulator
from sandbox.hyperpod import CLUSTER_ID
from sandbox.iam import ACCOUNT, REGION
from sandbox.kubernetes import job_controllers, pod_identity
from sandbox.kubernetes.api import ApiError
from sandbox.kubernetes.containers import POD_MARK
from sandbox.kubernetes.control_plane import ControlPlane
from sandbox.kubernetes.kubelet import Kubelet, Machine
from sandbox.node import Node
from sandbox.toml import toml

REPOSITORY = Path(__file__).resolve().parent.parent.parent
MANIFEST = REPOSITORY / "charts" / "nodeheal.yaml"
_UNCHECKED = ({"key": UNCHECKED_TAINT, "value": "true", "effect": "NoSchedule"},)
_OF_HYPERPOD = f"aws:///use1-az1/sagemaker/cluster/hyperpod-{CLUSTER_ID}-"
HEALTH_LABEL = "sagemaker.amazonaws.com/node-health-status"
_ADMINS = "sandbox:admins"
_RESTART_SECONDS = 10.0  # a kubelet's first pause before it starts a container again


class EksCluster:
    """One cluster. Its control plane starts in the background; what needs it waits for that."""

    def __init__(self, emulator: AwsEmulator, name: str, folder: Path, emulator_url: str) -> None:
        folder.mkdir(parents=True)
        self.name = name
        self._emulator, self._emulator_url = emulator, emulator_url
        self.unchecked_pools: set[str] = set()  # their nodes register with the taint of new nodes
        self._kubelets: dict[str, Kubelet] = {}
        self._record = {
            "name": name,
            "arn": f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{name}",
            "createdAt": datetime.now(UTC).timestamp(),
            "version": "1.36",
            "status": "CREATING",
            "roleArn": f"arn:aws:iam::{ACCOUNT}:role/eks",
            "resourcesVpcConfig": {
                "subnetIds": [],
                "securityGroupIds": [],
                "vpcId": "vpc-sandbox",
                "endpointPublicAccess": True,
                "endpointPrivateAccess": False,
                "publicAccessCidrs": ["0.0.0.0/0"],
            },
            "accessConfig": {"authenticationMode": "API"},
            "tags": {},
        }
        judge = emulator.register_cluster(self._record, _ADMINS)
        self.plane = ControlPlane(folder, authenticator=_webhook(folder / "authenticator.json", judge))
        self._failed: BaseException | None = None
        self._started = threading.Thread(target=self._start, name=f"EKS cluster {name}", daemon=True)
        self._started.start()

    def wait(self) -> None:
        """Wait until the control plane and the controllers of training jobs are ready. Raises what has failed."""
        self._started.join()
        if self._failed is not None:
            raise RuntimeError(f"EKS cluster {self.name} did not start: {self._failed}") from self._failed

    def install(self, config: Mapping[str, object]) -> None:
        """Install the chart's manifest, with this configuration of the agent."""
        admission = pod_identity.admission(
            self._emulator.pod_identity_associations(self.name), self.name, self._emulator_url
        )
        objects = [*admission, *yaml.safe_load_all(MANIFEST.read_text("utf-8"))]
        for each in objects:
            if each["kind"] == "ConfigMap":
                each["data"]["agent.toml"] = toml(config)
        path = self.plane.folder / "nodeheal.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": _flat(objects)}), "utf-8")
        self.plane.apply_files(path)
        if admission:
            self.plane.daemons.wait(lambda: pod_identity.is_admitted(self.plane.api), "pods get their tokens", 30.0)

    def join(self, node: Node, gpus: int) -> None:
        """Have the node join at each of its boots, and leave with its power."""
        name = node_name(node)
        is_hyperpod = node.spec.provider == "hyperpod"
        machine = Machine(
            f"{_OF_HYPERPOD}{node.spec.node_id}" if is_hyperpod else f"aws:///{REGION}a/{node.spec.node_id}",
            gpus=gpus,
            instance_type="ml.p5.48xlarge" if is_hyperpod else "p5.48xlarge",
            labels={
                names.KUBERNETES_POOL_LABEL: node.spec.pool,
                **({HEALTH_LABEL: "Schedulable"} if is_hyperpod else {}),
            },
            taints=_UNCHECKED if node.spec.pool in self.unchecked_pools else (),
        )
        kubelet = Kubelet(
            self.plane.api_of_node(name),
            name,
            machine,
            node.directory / "pods",
            node.environment(),
            lambda path: _host_path(node, path),
            _RESTART_SECONDS,
        )
        self._kubelets[node.spec.node_id] = kubelet
        node.before_down = kubelet.power_off
        node.when_up = lambda: kubelet.power_on(node.boot_id)

    def forget(self, node: Node) -> None:
        """Delete the Node of a machine that is gone, as EKS's cloud controller does."""
        if self._kubelets.pop(node.spec.node_id, None) is not None:
            try:
                self.plane.api.delete(f"/api/v1/nodes/{node_name(node)}")
            except ApiError as error:
                if error.status != 404:
                    raise

    def close(self) -> None:
        """End the control plane."""
        self._started.join()
        for kubelet in self._kubelets.values():
            kubelet.power_off()
        self.plane.__exit__(None, None, None)

    def _start(self) -> None:
        try:
            self.plane.__enter__()
            admins = ("clusterrolebinding", "admins", "--clusterrole=cluster-admin", f"--group={_ADMINS}")
            self.plane.kubectl("create", *admins)
            job_controllers.start(self.plane)
        except BaseException as error:  # `wait` raises it
            self._failed = error
            return
        authority = base64.b64encode(self.plane.authority.files.certificate.read_bytes()).decode()
        self._record |= {
            "endpoint": self.plane.server,
            "certificateAuthority": {"data": authority},
            "status": "ACTIVE",
        }


def node_name(node: Node) -> str:
    """Return the name of the node's Node object, as HyperPod names its instances, and EC2 its hosts."""
    if node.spec.provider == "hyperpod":
        return f"hyperpod-{node.spec.node_id}"
    return f"ip-{node.spec.address.replace('.', '-')}.{REGION}.compute.internal"


def agent_config(cluster: str, endpoint_url: str, gpus: int, checks: Sequence[str]) -> dict[str, object]:
    """Return the agent's configuration for all nodes of a cluster. Each path is one that the chart's pods mount."""
    return {
        "cluster": cluster,
        "scheduler": "KUBERNETES",
        "region": REGION,
        "endpoint_url": endpoint_url,
        "kernel_log": [{"kind": "file", "path": "/var/log/kernel.log"}],
        "boot_id_file": "/var/log/boot_id",
        "state_dir": "/var/lib/nodeheal",
        "orders_dir": "/var/lib/nodeheal-orders",
        "checkpoint_dir": "/run/nodeheal/checkpoint",
        "progress_dir": "/run/nodeheal/progress",
        "dcgm_drills_file": "/run/nodeheal-agent/dcgm-drills.json",
        "accelerators": gpus,
        "checks": list(checks),
        "drills": True,
    }


def abort_ranks(node: Node) -> int:
    """Send SIGABRT to the ranks that run on the node, as CUDA does when a GPU is gone; returns their number."""
    ranks = [process for process in processes.with_mark(processes.NODE_MARK, str(node.directory)) if _is_rank(process)]
    for process in ranks:
        processes.send(process, signal.SIGABRT)
    return len(ranks)


def _is_rank(process: psutil.Process) -> bool:
    try:
        environment = process.environ()
        return POD_MARK in environment and "RANK" in environment
    except psutil.Error:
        return False


def _host_path(node: Node, path: str) -> Path:
    """Return where a folder of the node is on this machine. Its kernel log and its boot id are in its own folder."""
    return {"/var/log": node.directory, "/var/lib/nodeheal": node.directory / "state"}.get(
        path, node.directory / "host" / path.lstrip("/")
    )


def _flat(objects: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item for each in objects for item in (each["items"] if each["kind"] == "List" else [each])]


def _webhook(path: Path, server: str) -> Path:
    """Write the file by which an API server finds the judge of its tokens, and return its path."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "eks", "cluster": {"server": server}}],
        "users": [{"name": "api-server", "user": {}}],
        "contexts": [{"name": "eks", "context": {"cluster": "eks", "user": "api-server"}}],
        "current-context": "eks",
    }
    path.write_text(json.dumps(config), "utf-8")
    return path
