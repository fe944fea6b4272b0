"""A place in a Kubernetes cluster where workloads run."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.gate import KubernetesGate
from nodeheal.adapters.kubernetes.notes import AUTO_RESUME
from nodeheal.adapters.kubernetes.workloads import KubernetesWorkloads
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from sandbox.kubernetes.kubelet import Kubelet
from tests.kubernetes import eks
from tests.kubernetes.cluster import Cluster, Object
from tests.kubernetes.node_records import record_of

REASON = "nodeheal: recovery inc-1"


CONSENT = {AUTO_RESUME: "true"}


def ec2_with(machines: Mapping[str, str]) -> Any:
    """EC2's answer to DescribeInstances, with the states of these machines."""

    def describe_instances(Filters: list[dict[str, Any]]) -> dict[str, Any]:
        [asked] = Filters
        assert asked["Name"] == "instance-id"
        known = [{"State": {"Name": machines[name]}} for name in asked["Values"] if name in machines]
        return {"Reservations": [{"Instances": [each]} for each in known]}

    return SimpleNamespace(describe_instances=describe_instances)


class Place:
    """Two nodes, and what nodeheal sees of the first one."""

    def __init__(self, cluster: Cluster, clusters: EksClusters) -> None:
        self.cluster, self.api = cluster, clusters.api(eks.NAME)
        self.broken, self.other = cluster.node(), cluster.node()
        self.name = ""  # of what runs there
        self.node = record_of(self.broken)
        self.machines: dict[str, str] = {self.node.instance_id: "running"}  # as EC2 has them
        self.gate = KubernetesGate(clusters)
        self.workloads = KubernetesWorkloads(clusters, self.gate, lambda: ec2_with(self.machines))

    def tasks(self) -> list[UnmanagedTask]:
        """Those of this test: pods of another one may still be placed anywhere."""
        found = self.workloads.unmanaged_tasks(self.node, self.gate.placement_of(self.node))
        return [task for task in found if self.name in task.name]

    def task(self) -> UnmanagedTask:
        [task] = self.tasks()
        return task

    def isolates(self) -> UnmanagedTask:
        """The node takes no new work; the one task that is there."""
        self.gate.drain_all([self.node], [self.node.node_id])
        return self.task()

    def stops(self, task: UnmanagedTask, reason: str = REASON) -> bool:
        """The step is repeated for as long as the answer is "not yet"."""
        answers: list[bool] = []

        def asked() -> bool:
            try:
                answers.append(self.workloads.stop_unmanaged_task(self.node, task, reason))
            except NotAccepted:
                return False
            return True

        self.cluster.wait(asked, f"{task} is stopped")
        return answers[-1]

    def runs(self, path: str, body: Object, label: str, pods: int, **notes: str) -> str:
        """An object whose pods run on the first node; its path."""
        body["metadata"]["annotations"], self.name = notes, body["metadata"]["name"]
        self.cluster.plane.kubectl("cordon", self.other.name)
        self.cluster.create(path, body)
        self.cluster.wait(lambda: self.running(label, self.broken) == pods, f"{pods} pods run")
        self.cluster.plane.kubectl("uncordon", self.other.name)
        return f"{path}/{body['metadata']['name']}"

    def running(self, label: str, kubelet: Kubelet) -> int:
        found = [pod for pod in self.cluster.pods(label) if pod["spec"].get("nodeName") == kubelet.name]
        return sum(pod["status"]["phase"] == "Running" for pod in found)

    def notes(self, path: str) -> Object:
        return dict(self.cluster.api.get(path)["metadata"].get("annotations") or {})
