"""A small kubelet: registers a node, renews its lease, and runs the pods that are bound to it as local processes.

It takes the place of the real one with the node's own credentials, so the API server judges it as it judges a node.
"""

import os
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import urllib3

from sandbox.kubernetes.api import STRATEGIC_MERGE, Api, ApiError
from sandbox.kubernetes.containers import ADDRESS, PodProcesses
from sandbox.kubernetes.volumes import HostPath, Volumes

VERSION = "v1.36.3"

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_NODES = "/api/v1/nodes"
_PODS = "/api/v1/pods"
_ROUND_SECONDS = 0.1
_LEASE_SECONDS = 1.0  # a kubelet renews every 10 s; here the controllers wait for 6 s
_LEASE_HELD_SECONDS = 40
_STATUS_SECONDS = 10.0
_WATCH_SECONDS = 5
_RETRY_SECONDS = 0.5
_GPU = "nvidia.com/gpu"
_DONE = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Machine:
    """What a node has, and says of itself when it registers."""

    provider_id: str
    gpus: int = 8
    cpus: int = 96
    memory: str = "1Ti"
    pods: int = 110
    instance_type: str = "p5.48xlarge"
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()


@dataclass
class _Pod:
    """A pod that is bound to the node; its processes, if they were started; and the status that was reported last."""

    manifest: Mapping[str, Any]
    processes: PodProcesses | None = None
    reported: Mapping[str, Any] | None = None
    kill_after: float | None = None  # monotonic; set once it has been asked to end

    @property
    def path(self) -> str:
        """The pod's path in the API."""
        metadata = self.manifest["metadata"]
        return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


class Kubelet:
    """The kubelet of one node, and the node's power switch."""

    def __init__(
        self,
        api: Api,
        name: str,
        machine: Machine,
        folder: Path,
        variables: Mapping[str, str] | None = None,
        host_path: HostPath | None = None,
        restart_seconds: float = 1.0,
    ) -> None:
        """`api`: as the node's own user. `folder`: logs of pods. `variables`: those of every container; None: ours.

        `host_path`: where the node's folders are that pods mount; by default below `folder`. `restart_seconds`: the
        pause before an ended container is started again.
        """
        self.name = name
        self.boot_id = ""
        self.problems: list[str] = []  # requests that the API server has refused
        self.api = api
        self.machine = machine
        self._folder = folder
        self._variables = {**api.variables(), **(os.environ if variables is None else variables)}
        self._restart_seconds = restart_seconds
        self._host_path = host_path or (lambda path: folder / "host" / path.lstrip("/"))
        self._pods: dict[str, _Pod] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._timer: threading.Timer | None = None
        self._ready_since = ""

    def __enter__(self) -> Self:
        """Boot the node."""
        self.power_on()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Power the node off."""
        self.power_off()

    def power_on(self, boot_id: str = "") -> None:
        """Boot the node: it has a new boot id, or this one, and the kubelet starts."""
        self.boot_id = boot_id or str(uuid.uuid4())
        self._ready_since = _now()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(self._stop,), name=f"kubelet {self.name}", daemon=True)
        self._thread.start()

    def power_off(self) -> None:
        """Cut the node's power: its processes are killed, it is silent, and a boot that is to come does not."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
            self._timer = None
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        for pod in self._pods.values():
            if pod.processes is not None:
                pod.processes.lose()

    def reboot(self, boot_seconds: float) -> None:
        """Cut the node's power, and boot it that many seconds later; returns at once."""
        self.power_off()
        self._timer = threading.Timer(boot_seconds, self.power_on)
        self._timer.daemon = True
        self._timer.start()

    def log_of(self, pod: str, container: str, namespace: str = "default") -> Path:
        """Return the path of what a container has printed."""
        return self._folder_of(namespace, pod) / f"{container}.log"

    def _run(self, stop: threading.Event) -> None:
        """Work until the node is powered off."""
        events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        while not self._attempt(self._register) and not stop.wait(_RETRY_SECONDS):
            pass
        watch = threading.Thread(target=self._watch, args=(stop, events), name=f"pods of {self.name}", daemon=True)
        watch.start()
        renew_at = report_at = 0.0
        while not stop.is_set():
            if time.monotonic() >= renew_at:
                self._attempt(self._renew_lease)
                renew_at = time.monotonic() + _LEASE_SECONDS
            if time.monotonic() >= report_at:
                self._attempt(self._report_node)
                report_at = time.monotonic() + _STATUS_SECONDS
            self._take(events)
            for pod in list(self._pods.values()):
                self._attempt(partial(self._sync, pod))
            stop.wait(_ROUND_SECONDS)

    def _attempt(self, act: Callable[[], None]) -> bool:
        """Make a call that is repeated later if it fails; returns whether it has succeeded."""
        try:
            act()
        except urllib3.exceptions.HTTPError:
            return False
        except ApiError as error:
            self.problems.append(str(error))
            return False
        return True

    def _register(self) -> None:
        """Create the node, or find it as it is: a taint of the registration does not come back."""
        machine = self.machine
        labels = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "node.kubernetes.io/instance-type": machine.instance_type,
            **machine.labels,
        }
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels},
            "spec": {"providerID": machine.provider_id, "taints": list(machine.taints)},
            "status": self._node_status(),
        }
        try:
            self.api.create(_NODES, node)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    def _report_node(self) -> None:
        """Patch the node's status."""
        self.api.patch(f"{_NODES}/{self.name}/status", {"status": self._node_status()}, STRATEGIC_MERGE)

    def _node_status(self) -> dict[str, Any]:
        """Return the capacity, the boot id, and that the node is ready."""
        machine = self.machine
        capacity = {"cpu": str(machine.cpus), "memory": machine.memory, "pods": str(machine.pods)}
        if machine.gpus:
            capacity[_GPU] = str(machine.gpus)
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
            "lastHeartbeatTime": _now(),
            "lastTransitionTime": self._ready_since,
        }
        info = {
            "bootID": self.boot_id,
            "machineID": machine.provider_id.rpartition("/")[2],
            "systemUUID": machine.provider_id.rpartition("/")[2],
            "kernelVersion": "6.12.0",
            "osImage": "sandbox",
            "containerRuntimeVersion": "processes://1",
            "kubeletVersion": VERSION,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        }
        return {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [{"type": "InternalIP", "address": ADDRESS}, {"type": "Hostname", "address": self.name}],
            "conditions": [ready],
            "nodeInfo": info,
        }

    def _renew_lease(self) -> None:
        """Renew the node's lease, and create it the first time."""
        renewed_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        held = {"holderIdentity": self.name, "leaseDurationSeconds": _LEASE_HELD_SECONDS, "renewTime": renewed_at}
        try:
            self.api.patch(f"{_LEASES}/{self.name}", {"spec": held})
        except ApiError as error:
            if error.reason != "NotFound":
                raise
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self.name}}
            self.api.create(_LEASES, {**lease, "spec": held})

    def _watch(self, stop: threading.Event, events: "queue.SimpleQueue[tuple[str, Any]]") -> None:
        """Put the node's pods into the queue, all at first and then each change of one."""
        bound = {"fieldSelector": f"spec.nodeName={self.name}"}
        version = ""
        while not stop.is_set():
            try:
                if not version:
                    found = self.api.get(_PODS, **bound)
                    version = found["metadata"]["resourceVersion"]
                    events.put(("ALL", found.get("items", [])))
                for event in self.api.watch(_PODS, version, _WATCH_SECONDS, **bound):
                    version = event["object"]["metadata"]["resourceVersion"]
                    events.put((event["type"], event["object"]))
            except urllib3.exceptions.HTTPError:
                stop.wait(_RETRY_SECONDS)
            except ApiError as error:
                version = ""  # too old: everything is listed again
                if error.status != 410:
                    self.problems.append(str(error))
                stop.wait(_RETRY_SECONDS)

    def _take(self, events: "queue.SimpleQueue[tuple[str, Any]]") -> None:
        """Learn which pods are bound to the node now; one that is gone from the API loses its processes at once."""
        with suppress(queue.Empty):
            while True:
                kind, found = events.get_nowait()
                changed = found if kind == "ALL" else [found] if kind != "DELETED" else []
                for manifest in changed:
                    self._pods.setdefault(manifest["metadata"]["uid"], _Pod(manifest)).manifest = manifest
                gone = [found["metadata"]["uid"]] if kind == "DELETED" else []
                if kind == "ALL":
                    gone = list(self._pods.keys() - {manifest["metadata"]["uid"] for manifest in found})
                for uid in gone:
                    pod = self._pods.pop(uid, None)
                    if pod is not None and pod.processes is not None:
                        pod.processes.kill()

    def _sync(self, pod: _Pod) -> None:
        """Bring one pod nearer to what the API asks for, and report how it is."""
        is_deleted = "deletionTimestamp" in pod.manifest["metadata"]
        if pod.processes is None and not is_deleted and pod.manifest["status"].get("phase") not in _DONE:
            metadata = pod.manifest["metadata"]
            folder = self._folder_of(metadata["namespace"], metadata["name"])
            volumes = Volumes(pod.manifest, folder, self._host_path, self.api)
            processes = PodProcesses(pod.manifest, folder, self._variables, volumes, self._restart_seconds)
            processes.start()
            pod.processes = processes
        if pod.processes is not None:
            pod.processes.poll(restarts=not is_deleted)
            if is_deleted:
                self._end(pod, pod.processes)
            self._report(pod, pod.processes)
        if is_deleted and (pod.processes is None or not pod.processes.is_running()):
            self._remove(pod)

    def _end(self, pod: _Pod, running: PodProcesses) -> None:
        """Ask a deleted pod's processes to end, and kill them when its grace is over."""
        grace = time.monotonic() + pod.manifest["metadata"].get("deletionGracePeriodSeconds", 0)
        if pod.kill_after is None:
            running.terminate()
        pod.kill_after = grace if pod.kill_after is None else min(pod.kill_after, grace)
        if running.is_running() and time.monotonic() >= pod.kill_after:
            running.kill()
            running.poll(restarts=False)

    def _report(self, pod: _Pod, running: PodProcesses) -> None:
        """Patch the pod's status if it has changed."""
        status = running.status()
        if status != pod.reported:
            with _gone_is_done():
                body = {"metadata": {"uid": running.uid}, "status": status}
                self.api.patch(f"{pod.path}/status", body, STRATEGIC_MERGE)
            pod.reported = status

    def _remove(self, pod: _Pod) -> None:
        """Remove a pod whose processes have ended from the API."""
        uid = pod.manifest["metadata"]["uid"]
        with _gone_is_done():
            self.api.delete(pod.path, {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})
        if pod.processes is not None:
            pod.processes.kill()  # those that have left their container's group
        self._pods.pop(uid, None)

    def _folder_of(self, namespace: str, pod: str) -> Path:
        """Return the folder of a pod's logs."""
        return self._folder / f"{namespace}_{pod}"


@contextmanager
def _gone_is_done() -> Iterator[None]:
    """Take it as done where the pod is gone from the API, or another one has its name."""
    try:
        yield
    except ApiError as error:
        if error.status not in (404, 409):
            raise


def _now() -> str:
    """Return the time as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
