"""The simulated nodes of one sandbox, of every provider, and their registration with SSM and ECS."""

import base64
import hashlib
import secrets
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nodeheal.contract.vocabulary import SchedulerKind
from sandbox.aws_emulator import AwsEmulator
from sandbox.aws_json import AwsError, Json
from sandbox.behaviour import Behaviour
from sandbox.ec2_state import Instance
from sandbox.ecs import Ecs
from sandbox.iam import SSM_PRINCIPAL
from sandbox.node import AGENT, Node, NodeSpec

if TYPE_CHECKING:
    from sandbox.kubernetes.eks import EksCluster


@dataclass(frozen=True)
class NodeKind:
    """The common properties of one enrolment's nodes."""

    pool: str
    cluster: str
    gpus: int
    tags: dict[str, str]
    role_arn: str | None = None
    agent: list[str] | None = None
    heartbeat_seconds: float = 60.0
    user_data: str = ""  # of the launch template, as Base64
    scheduler: SchedulerKind = SchedulerKind.ECS
    checks: tuple[str, ...] = ()  # of its agents


# Without it the ECS agent registers a machine without the tags of its EC2 instance (aws/amazon-ecs-agent, README).
PROPAGATES_TAGS = b"ECS_CONTAINER_INSTANCE_PROPAGATE_TAGS_FROM=ec2_instance"


@dataclass
class Fleet:
    """Creates nodes, and switches those of EC2 on and off."""

    emulator: AwsEmulator
    directory: Path
    endpoint_url: str
    boot_seconds: float
    sandbox_id: str
    behaviour: Behaviour
    nodes: dict[str, Node] = field(default_factory=dict)
    tags: dict[str, dict[str, str]] = field(default_factory=dict)
    kinds: dict[str, NodeKind] = field(default_factory=dict)  # of instances, by launch template
    enrolled: dict[str, NodeKind] = field(default_factory=dict)  # of nodes
    ecs: Ecs | None = None
    clusters: dict[str, "EksCluster"] = field(default_factory=dict)
    _made: int = 0

    def enrol(self, kind: NodeKind, hyperpod_id: str = "") -> tuple[Node, str]:
        """Create a hybrid node that boots and joins SSM, and ECS if that is its scheduler; returns its container
        instance. `hyperpod_id`: it is an instance of HyperPod, and joins neither.
        """
        node = self._node(
            hyperpod_id or f"mi-{secrets.token_hex(9)[:17]}", kind, "hyperpod" if hyperpod_id else "hybrid"
        )
        node.start()
        return node, self._join(node, kind) if kind.scheduler is SchedulerKind.ECS else ""

    def boot(self, instance: Instance, when_up: Callable[[], None]) -> None:
        """Boot an EC2 instance for the first time. Its node exists at once, and is up after the boot time."""
        kind = self.kinds[instance.tags["aws:ec2launchtemplate:id"]]
        node = self._node(instance.instance_id, kind, "ec2")
        self.tags[instance.instance_id] = instance.tags

        def come_up() -> None:
            if node.start_after(self.boot_seconds + self.behaviour.launch_seconds):
                if kind.scheduler is SchedulerKind.ECS:
                    self._join(node, kind)
                when_up()

        threading.Thread(target=come_up, name=f"{instance.instance_id} boot", daemon=True).start()

    def off(self, instance_id: str) -> None:
        """Remove the instance, and what ECS and SSM had of it."""
        node = self.nodes.pop(instance_id, None)
        if node is not None:
            node.power_off()
            if node.spec.cluster in self.clusters:
                self.clusters[node.spec.cluster].forget(node)
        if self.ecs is not None:
            self.ecs.deregister_node(instance_id)

    def down(self, instance_id: str) -> None:
        """Switch it off, until it is switched on."""
        self.find(instance_id).stop()

    def up(self, instance_id: str, when_up: Callable[[], None]) -> None:
        """Switch it on, on another host, in the background."""
        node = self.find(instance_id)

        def come_up() -> None:
            node.power_on()
            if node.is_up:
                when_up()

        threading.Thread(target=come_up, name=f"{instance_id} on", daemon=True).start()

    def reboot(self, instance_id: str) -> None:
        """Take it down and up again, in the background."""
        node = self.nodes.get(instance_id)
        if node is not None:
            threading.Thread(target=node.reboot, name=f"{instance_id} reboot", daemon=True).start()

    def find(self, node_id: str) -> Node:
        """Return the node. Raises AwsError."""
        found = self.nodes.get(node_id)
        if found is None:
            raise AwsError("NoSuchNode", f"there is no node {node_id}", status=404)
        return found

    def close(self) -> None:
        """Switch every node off."""
        for node in list(self.nodes.values()):
            node.power_off()

    def _node(self, node_id: str, kind: NodeKind, provider: str) -> Node:
        directory = self.directory / "nodes" / node_id
        directory.mkdir(parents=True)
        spec = NodeSpec(
            node_id=node_id,
            pool=kind.pool,
            cluster=kind.cluster,
            gpus=kind.gpus,
            address=self._address(),
            endpoint_url=self.endpoint_url,
            directory=directory,
            sandbox_id=self.sandbox_id,
            provider=provider,
            heartbeat_seconds=kind.heartbeat_seconds,
            role=(kind.role_arn or "").rpartition("/")[2],
            scheduler=kind.scheduler,
            checks=kind.checks,
        )
        role = kind.role_arn
        credentials = (lambda: self.emulator.assume_role(SSM_PRINCIPAL, role, node_id, {})) if role else None
        behaviour = self.behaviour
        node = Node(spec, self.boot_seconds, kind.agent or AGENT, credentials, lambda: behaviour.ssm_seconds_scale)
        if self.ecs is not None and kind.scheduler is SchedulerKind.ECS:
            agents = self.ecs.agents
            node.when_down = lambda: agents.node_went_down(node_id)
            node.when_up = lambda: agents.node_came_up(node_id)
        if kind.scheduler is SchedulerKind.KUBERNETES:
            self.clusters[kind.cluster].join(node, kind.gpus)
        self.nodes[node_id], self.tags[node_id], self.enrolled[node_id] = node, kind.tags, kind
        return node

    def _join(self, node: Node, kind: NodeKind) -> str:
        if self.ecs is None:
            raise RuntimeError("the fleet has no ECS")
        is_machine = node.spec.provider == "ec2"
        bears = not is_machine or PROPAGATES_TAGS in base64.b64decode(kind.user_data)
        tags = dict(self.tags[node.spec.node_id]) if bears else {}
        return self.ecs.register_node(node.spec.node_id, kind.cluster, kind.gpus, tags).arn

    def _address(self) -> str:
        """Return an address of the node's own, where the loopback net has several: gangs of two sandboxes never
        meet.
        """
        self._made += 1
        if sys.platform != "linux":
            return "127.0.0.1"
        digest = hashlib.sha256(f"{self.sandbox_id}/{self._made}".encode()).digest()
        return f"127.{1 + digest[0] % 254}.{digest[1]}.{1 + digest[2] % 254}"


def describe_node(node: Node) -> Json:
    """Describe a node as it is now."""
    return {
        "node_id": node.spec.node_id,
        "pool": node.spec.pool,
        "address": node.spec.address,
        "directory": str(node.directory),
        "boot_id": node.boot_id,
        "is_up": node.is_up,
    }
