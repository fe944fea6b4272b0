"""What the tests on a real Kubernetes ask of it, and the objects that they create."""

import itertools
import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from sandbox.kubernetes.api import ApiError
from sandbox.kubernetes.control_plane import ControlPlane
from sandbox.kubernetes.kubelet import Kubelet, Machine

PATIENCE_SECONDS = 60.0  # on a machine that runs other tests as well
HOSTNAME = "kubernetes.io/hostname"
Object = dict[str, Any]


class Cluster:
    """A control plane, and the nodes and names of one test."""

    _numbers = itertools.count(1)  # no test meets the nodes and jobs of another one

    def __init__(self, plane: ControlPlane, folder: Path, stack: ExitStack) -> None:
        self.plane = plane
        self.api = plane.api
        self._folder = folder
        self._stack = stack

    def name(self, stem: str) -> str:
        """A name that no other test has."""
        return f"{stem}-{next(self._numbers)}"

    def node(
        self,
        *taints: dict[str, str],
        labels: Mapping[str, str] | None = None,
        place: str = "us-east-1a/",
    ) -> Kubelet:
        """A node that is ready for pods; it leaves the cluster with the test. `place`: where its machine is."""
        name = self.name("node")
        machine = Machine(f"aws:///{place}i-{next(self._numbers):017x}", labels=labels or {}, taints=taints)
        self._stack.callback(self.forget, f"/api/v1/nodes/{name}")
        kubelet = Kubelet(self.plane.api_of_node(name), name, machine, self._folder / name)
        self._stack.enter_context(kubelet)
        self.wait(lambda: self.is_ready(name), f"{name} is ready")
        return kubelet

    def create(self, collection: str, body: Object) -> Object:
        """An object that goes with the test."""
        path = f"{collection}/{body['metadata']['name']}"
        self._stack.callback(self.forget, path)
        self.api.create(collection, body)
        return self.api.get(path)

    def forget(self, path: str) -> None:
        """Delete an object at once, if it is there."""
        try:
            self.api.delete(path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
        except ApiError as error:
            assert error.status == 404

    def wait(self, is_true: Callable[[], object], what: str) -> None:
        """Until it is so that `what`."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_true():
            self.plane.daemons.check()
            if time.monotonic() > deadline:
                seen = self.plane.kubectl("get", "nodes,pods,jobs", "--all-namespaces", "-o", "wide")
                raise AssertionError(f"it never was so that {what}:\n{seen}")
            time.sleep(0.1)

    def condition(self, node: str, kind: str = "Ready") -> str:
        """The status of a node's condition; empty where there is none."""
        conditions = self.api.get(f"/api/v1/nodes/{node}")["status"].get("conditions", [])
        return next((str(one["status"]) for one in conditions if one["type"] == kind), "")

    def boot_id(self, node: str) -> str:
        """The boot that the node has reported last."""
        return str(self.api.get(f"/api/v1/nodes/{node}")["status"]["nodeInfo"]["bootID"])

    def taints(self, node: str) -> set[tuple[str, str]]:
        """Key and effect of each of a node's taints."""
        found = self.api.get(f"/api/v1/nodes/{node}")["spec"].get("taints", [])
        return {(one["key"], one["effect"]) for one in found}

    def is_ready(self, node: str) -> bool:
        """Whether pods may be bound to it."""
        try:
            lacks = {key for key, _ in self.taints(node) if key.startswith("node.kubernetes.io/")}
            return self.condition(node) == "True" and not lacks
        except ApiError:
            return False

    def pods(self, label: str) -> list[Object]:
        """The pods with this label, KEY=VALUE."""
        found = self.api.get("/api/v1/namespaces/default/pods", labelSelector=label)["items"]
        return [dict(pod) for pod in found]

    def run(self, node: str, script: str, **spec: Any) -> str:
        """A pod that a shell runs on a node; its name."""
        name = self.name("pod")
        body = {"nodeName": node, "restartPolicy": "Never", "containers": [shell(script)], **spec}
        self.create("/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": body})
        return name

    def pod(self, name: str) -> Object:
        """The pod as the API has it; empty where it is gone."""
        try:
            return self.api.get(f"/api/v1/namespaces/default/pods/{name}")
        except ApiError as error:
            assert error.status == 404
            return {}

    def phase(self, name: str) -> str:
        """The pod's phase; empty where it is gone."""
        return str(self.pod(name).get("status", {}).get("phase", ""))

    def can_i(self, *arguments: str, user: Path | None = None) -> str:
        """What `kubectl auth can-i` answers: yes or no."""
        return self.plane.kubectl("auth", "can-i", *arguments, user=user, takes=(0, 1)).strip()

    def told(self, *arguments: str) -> Any:
        """What kubectl prints as JSON."""
        return json.loads(self.plane.kubectl(*arguments, "-o", "json"))


def shell(script: str) -> Object:
    """A container that runs a script."""
    return {"name": "main", "image": "none", "command": ["sh", "-c", script]}


def end_of(pod: Object) -> Object:
    """How the pod's first container has ended."""
    return dict(pod["status"]["containerStatuses"][0]["state"]["terminated"])


def marks(nodes: Iterable[Object]) -> list[tuple[bool, list[str]]]:
    """Of each node: whether it is cordoned, and the keys of its taints."""
    return [
        (bool(node["spec"].get("unschedulable")), [taint["key"] for taint in node["spec"].get("taints", [])])
        for node in nodes
    ]


def is_on(node: str) -> Object:
    """The selector of one node."""
    return {HOSTNAME: node}
