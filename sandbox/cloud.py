"""Assembles one sandbox: the emulator with the sandbox's services, and the nodes."""

import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from nodeheal.contract import names
from nodeheal.contract.vocabulary import SchedulerKind
from sandbox import processes, quotas, strict
from sandbox.authorization import SignedCaller
from sandbox.autoscaling import AutoScaling
from sandbox.aws_emulator import AwsEmulator
from sandbox.aws_json import AwsError, Json, JsonService
from sandbox.aws_query import QueryService
from sandbox.behaviour import Behaviour
from sandbox.ec2 import Ec2
from sandbox.ec2_state import Ec2State, Group, Template, new_id
from sandbox.ecs import Ecs
from sandbox.events import EventPump
from sandbox.fleet import Fleet, NodeKind, describe_node
from sandbox.hyperpod import Cluster, HyperPod, Instance
from sandbox.node import Faults, Node
from sandbox.slurm import SlurmCluster, abort_tasks, join, marks_of, run_on
from sandbox.ssm import Ssm


class Cloud:
    """The nodes and the services that concern them."""

    def __init__(
        self, emulator: AwsEmulator, directory: Path, endpoint_url: str, boot_seconds: float, sandbox_id: str
    ) -> None:
        self._emulator, self._behaviour = emulator, Behaviour()
        self._directory = directory
        self._endpoint_url = endpoint_url
        self._slurm: list[tuple[SlurmCluster, NodeKind, dict[str, Node]]] = []
        self._fleet = Fleet(emulator, directory, endpoint_url, boot_seconds, sandbox_id, self._behaviour)
        pump = EventPump(emulator.emit, self._behaviour)
        self._ecs = self._fleet.ecs = Ecs(self._fleet.nodes, pump.emit, emulator.write_logs, self._behaviour)
        self._ssm = Ssm(self._fleet.nodes, self._fleet.tags, pump.emit, self._behaviour)
        self._state = Ec2State()
        self._ec2 = Ec2(self._state, self._fleet, self._behaviour, pump.emit)
        self._hyperpod = HyperPod(self, self._behaviour)
        self._scaling = AutoScaling(self._state, self._ec2, self._behaviour, pump.emit)

    def install(self) -> None:
        """Install the sandbox's services into the emulator."""
        caller_of = partial(SignedCaller, self._emulator)
        whole = {
            "ecs": self._ecs.operations(),
            "servicequotas": quotas.operations(),
            "sagemaker": self._hyperpod.operations(),
        }
        shared = (
            JsonService("ssm", self._ssm.operations(), caller_of),
            QueryService("ec2", self._ec2.operations(), caller_of, "UnauthorizedOperation"),
            QueryService("autoscaling", self._scaling.operations(), caller_of, "AccessDenied"),
        )
        self._emulator.install(self._behaviour)
        self._emulator.serve([JsonService(name, served, caller_of) for name, served in whole.items()], shared)
        self._emulator.provision("AWS::SSM::Document", self._ssm.provision, self._ssm.unprovision)
        self._emulator.check_requests(strict.SERVICES, strict.refusal_response)

    def add_node(self, request: Json) -> Json:
        """Register a hybrid node with SSM and ECS and boot it.

        `request`: pool, gpus, cluster; role_arn (None: no credentials), tags, agent (a command instead of the agent).
        """
        node, container_instance = self._fleet.enrol(_kind(request))
        return {**describe_node(node), "container_instance_arn": container_instance}

    def add_slurm(self, request: Json) -> Json:
        """Create a Slurm cluster: a machine for its controller, and `count` hybrid nodes. `request`: as for add_node in
        addition; `hyperpod`: the nodes are HyperPod's.

        Returns the nodes in order, and the path of the cluster's slurm.conf.
        """
        kind = replace(_kind(request), scheduler=SchedulerKind.SLURM)
        tags = {names.SLURM_CONTROLLER_TAG: kind.cluster}
        head, _ = self._fleet.enrol(replace(kind, pool="controllers", gpus=0, tags=tags, agent=["sleep", "infinity"]))
        ids = [new_id("i") if request["hyperpod"] else "" for _ in range(request["count"])]
        members = {f"node{number}": self._fleet.enrol(kind, name)[0] for number, name in enumerate(ids, 1)}
        if request["hyperpod"]:
            made = (Instance(node.spec.node_id, node.spec.address) for node in members.values())
            self._hyperpod.clusters[kind.cluster] = Cluster({one.instance_id: one for one in made})
        addresses = {name: node.spec.address for name, node in members.items()}
        marks = {name: marks_of(node) for name, node in members.items()}
        cluster = SlurmCluster(kind.cluster, self._directory / kind.cluster, addresses, marks)
        run_on(cluster, head, members)
        self._slurm.append((cluster, kind, members))
        nodes = [describe_node(node) for node in members.values()]
        return {"nodes": nodes, "head": describe_node(head), "configuration": str(cluster.configuration)}

    def create_eks_cluster(self, request: Json) -> Json:
        """Create an EKS cluster, whose control plane starts in the background. `request`: name."""
        from sandbox.kubernetes.eks import EksCluster  # most sandboxes have none

        name = request["name"]
        self._fleet.clusters[name] = EksCluster(self._emulator, name, self._directory / name, self._endpoint_url)
        return {}

    def add_kubernetes(self, request: Json) -> Json:
        """Give an EKS cluster `count` nodes, with the chart installed. `request`: as for add_node in addition;
        `hyperpod`: they are instances of a HyperPod cluster, else of EC2 in an Auto Scaling group; `data`: of the
        group's launch template; `is_unchecked`: its nodes register with the taint of new nodes.

        Returns the nodes, and the path of an administrator's kubeconfig.
        """
        from sandbox.kubernetes.eks import agent_config

        kind = replace(_kind(request), scheduler=SchedulerKind.KUBERNETES, agent=["sleep", "infinity"])
        kind = replace(kind, role_arn=None) if request["hyperpod"] else kind  # all instances share one identity there
        cluster = self._fleet.clusters[kind.cluster]
        cluster.wait()
        if request["is_unchecked"]:
            cluster.unchecked_pools.add(kind.pool)
        cluster.install(agent_config(kind.cluster, self._endpoint_url, kind.gpus, kind.checks))
        kubeconfig = str(cluster.plane.admin)
        if request["hyperpod"]:
            ids = [new_id("i") for _ in range(request["count"])]
            members = [self._fleet.enrol(kind, instance_id)[0] for instance_id in ids]
            made = self._hyperpod.clusters.setdefault(kind.cluster, Cluster())
            made.instances |= {node.spec.node_id: Instance(node.spec.node_id, node.spec.address) for node in members}
            return {"nodes": [describe_node(node) for node in members], "kubeconfig": kubeconfig}
        template = Template(new_id("lt"), f"eks-{kind.pool}", request["data"], request["tags"])
        self._state.templates[template.template_id] = template
        self._fleet.kinds[template.template_id] = kind
        group = Group(f"eks-{kind.pool}", template, "subnet-sandbox", request["count"], request["tags"])
        self._scaling.add_group(group)
        nodes = [describe_node(self._fleet.find(member)) for member in group.members]
        return {"nodes": nodes, "kubeconfig": kubeconfig}

    def reboot(self, instance_id: str) -> None:
        """Reboot a node of HyperPod."""
        self._fleet.reboot(instance_id)

    def replace(self, instance_id: str, successor: str, when_up: Callable[[str], None]) -> None:
        """Create another machine of HyperPod in the background: under the same name in Slurm, which is not informed,
        and under a name of its own in Kubernetes.
        """
        node = self._fleet.find(instance_id)
        if node.spec.scheduler is SchedulerKind.KUBERNETES:
            self._replace_in_kubernetes(node, successor, when_up)
            return
        cluster, kind, members = next(one for one in self._slurm if instance_id in _ids(one[2]))
        name = next(name for name, node in members.items() if node.spec.node_id == instance_id)

        def come() -> None:
            self._fleet.off(instance_id)
            time.sleep(self._behaviour.launch_seconds)
            members[name], _ = self._fleet.enrol(kind, successor)
            when_up(members[name].spec.address)
            cluster.move(name, members[name].spec.address, marks_of(members[name]))
            join(cluster, name, members[name])

        threading.Thread(target=come, name=f"{successor} boot", daemon=True).start()

    def _replace_in_kubernetes(self, node: Node, successor: str, when_up: Callable[[str], None]) -> None:
        kind = self._fleet.enrolled[node.spec.node_id]

        def come() -> None:
            self._fleet.off(node.spec.node_id)
            time.sleep(self._behaviour.launch_seconds)
            new, _ = self._fleet.enrol(kind, successor)
            when_up(new.spec.address)

        threading.Thread(target=come, name=f"{successor} boot", daemon=True).start()

    def pod_credentials(self, cluster: str, token: str) -> Json:
        """Return what EKS Pod Identity gives the pod of this token. Raises AwsError."""
        from sandbox.kubernetes import pod_identity

        if cluster not in self._fleet.clusters:
            raise AwsError("ResourceNotFoundException", f"there is no cluster {cluster}", status=404)
        return pod_identity.credentials(self._emulator, cluster, self._fleet.clusters[cluster].plane.api, token)

    def add_template(self, request: Json) -> Json:
        """Create a launch template whose instances are nodes of this kind. `request`: as for add_node; name and data in
        addition.
        """
        made = Template(new_id("lt"), request["name"], request["data"], request["tags"])
        self._state.templates[made.template_id] = made
        self._fleet.kinds[made.template_id] = _kind(request)
        return {"template_id": made.template_id}

    def add_group(self, request: Json) -> Json:
        """Create an Auto Scaling group that keeps `size` instances of a template. `request`: name, template_id, size,
        tags.
        """
        template = self._state.template({"LaunchTemplateId": request["template_id"]})
        group = Group(request["name"], template, "subnet-sandbox", request["size"], request["tags"])
        self._scaling.add_group(group)
        return {"members": list(group.members)}

    def behave(self, request: Json) -> Json:
        """Change how the cloud behaves; `stay_down`: a node that does not come back from its next reboot."""
        stay_down = request.pop("stay_down", None)
        if stay_down is not None:
            self._fleet.find(stay_down).stays_down = True
        try:
            self._behaviour.change(request)
        except TypeError as error:
            raise AwsError("NoSuchBehaviour", str(error)) from error
        return {}

    def nodes(self, request: Json) -> Json:
        """Return every node as it is now."""
        return {"nodes": [describe_node(node) for node in list(self._fleet.nodes.values())]}

    def inject(self, request: Json) -> Json:
        """Break a node: its tools fail, its kernel logs it, its tasks abort (kill_rank). Returns the time of
        the line.
        """
        node = self._fleet.find(request["node_id"])
        dcgm = request.get("dcgm", "fail")
        persists, of_host = request["persists"], request.get("of_host", False)
        node.set_faults(Faults(dcgm=dcgm, persists=persists, of_host=of_host, line=request["line"]))
        at = node.append_kernel_line(request["line"])
        aborted = self._abort_ranks(node) if request["kill_rank"] else 0
        return {"at": at, "aborted": aborted}

    def _abort_ranks(self, node: Node) -> int:
        if node.spec.scheduler is SchedulerKind.SLURM:
            return abort_tasks(node)
        if node.spec.scheduler is SchedulerKind.KUBERNETES:
            from sandbox.kubernetes.eks import abort_ranks

            return abort_ranks(node)
        return self._ecs.agents.abort_all(node.spec.node_id)

    def close(self) -> None:
        """Switch every node off."""
        self._state.groups.clear()
        self._fleet.close()
        for cluster in self._fleet.clusters.values():
            cluster.close()


def _kind(request: Json) -> NodeKind:
    return NodeKind(
        pool=request["pool"],
        cluster=request["cluster"],
        gpus=request["gpus"],
        tags=request["tags"],
        role_arn=request.get("role_arn"),
        agent=request.get("agent"),
        heartbeat_seconds=request.get("heartbeat_seconds", 60.0),
        checks=tuple(request.get("checks", ())),
        user_data=request.get("data", {}).get("UserData", ""),
    )


def _ids(members: dict[str, Node]) -> list[str]:
    return [node.spec.node_id for node in members.values()]


def managed_tags(pool: str) -> dict[str, str]:
    """Return the tags of a node that an operator has enrolled."""
    return {names.MANAGED_TAG: names.MANAGED_TAG_VALUE, "nodeheal:pool": pool}


class Control:
    """The sandbox's own HTTP interface, beside the emulator's: /_sandbox/<verb>, with a secret header; and the address
    of EKS Pod Identity, with a pod's token.
    """

    PREFIX, POD_PREFIX = "/_sandbox/", "/_pod-identity/"

    def __init__(self, cloud: Cloud, secret: str) -> None:
        self._secret, self._cloud = secret, cloud
        self._verbs: dict[str, Callable[[Json], Json]] = {
            "ready": lambda request: {},
            "add_node": cloud.add_node,
            "nodes": cloud.nodes,
            "inject": cloud.inject,
            "add_slurm": cloud.add_slurm,
            "create_eks_cluster": cloud.create_eks_cluster,
            "add_kubernetes": cloud.add_kubernetes,
            "add_template": cloud.add_template,
            "add_group": cloud.add_group,
            "behave": cloud.behave,
        }

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Return status and JSON body. `headers`: by their names in lower case."""
        if path.startswith(self.POD_PREFIX):
            cluster, token = path.removeprefix(self.POD_PREFIX), headers.get("authorization", "")
            return self._answered(lambda: self._cloud.pod_credentials(cluster, token))
        verb = self._verbs.get(path.removeprefix(self.PREFIX))
        if not secrets.compare_digest(headers.get("x-sandbox-secret", ""), self._secret):
            return 403, b"{}"
        if verb is None:
            return 404, b"{}"
        return self._answered(lambda: verb(json.loads(body or b"{}")))

    def _answered(self, verb: Callable[[], Json]) -> tuple[int, bytes]:
        try:
            return 200, json.dumps(verb()).encode()
        except AwsError as error:
            return error.status, json.dumps({"error": error.message}).encode()


def end_everything(sandbox_id: str, session: int) -> None:
    """Kill every process of the sandbox but this one."""
    processes.kill_all(
        lambda: {
            process.pid: process
            for process in processes.with_mark(processes.SANDBOX_MARK, sandbox_id) + processes.in_session(session)
        }.values()
    )
