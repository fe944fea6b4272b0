"""Lists and stops what runs on a node: gangs are restarted whole, pods of services are evicted.

A gang is suspended at its root owner, which deletes its pods; when none is left it is resumed, and its pods are placed
on other nodes, since this one is tainted. That is one restart, noted on the owner, however often the call is repeated.
Nothing else restarts a gang: one evicted pod ends a Job without a backoff, and leaves other ranks hanging. The pods of
a suspended object are deleted past every disruption budget, so its owner has to consent by an annotation.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.api import ApiError, KubernetesApi, Object, refusals_named
from nodeheal.adapters.kubernetes.gangs import GangKind, RootOwner, field_at, gang_kind, patch_at, root_of
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.unmanaged_tasks import UnmanagedTask
from nodeheal.ports.scheduler import NodePlacement

# An owner's consent to a restart of the whole job, and how many restarts it may have: HyperPod's annotations.
AUTO_RESUME = "sagemaker.amazonaws.com/enable-job-auto-resume"
MAX_RETRIES = "sagemaker.amazonaws.com/job-max-retry-count"
# Our own notes on an owner: why it is suspended, why it was last restarted, and how often in all.
SUSPENDED_FOR, RESTARTED_FOR, RESTARTS = (
    "nodeheal.io/suspended-for",
    "nodeheal.io/restarted-for",
    "nodeheal.io/restarts",
)
_MIRROR = "kubernetes.io/config.mirror"  # of a pod that the kubelet made from a file
_ENDED = ("Succeeded", "Failed")
_QUEUE = "kueue.x-k8s.io/queue-name"  # Kueue undoes a suspend of what it has admitted
_MANAGED_BY = (("spec", "managedBy"), ("spec", "runPolicy", "managedBy"))
_OWN_CONTROLLERS = {
    None,
    "kubernetes.io/job-controller",
    "jobset.sigs.k8s.io/jobset-controller",
    "kubeflow.org/training-operator",
}
_OF_SERVICES = ("ReplicaSet", "StatefulSet", "ReplicationController")


class KubernetesWorkloads:
    """Implements Workloads."""

    def __init__(self, clusters: EksClusters) -> None:
        self._clusters = clusters

    def unmanaged_tasks(self, node: Node, placement: NodePlacement) -> Sequence[UnmanagedTask]:
        with refusals_named(f"pods of {placement.name}"):
            return _tasks_on(placement.name, self._clusters.api(node.cluster.name))

    def stop_unmanaged_task(self, node: Node, task: UnmanagedTask, reason: str) -> bool:
        api, what = self._clusters.api(node.cluster.name), json.loads(task.scheduler_json)
        with refusals_named(task.name):
            if what["kind"] == "Pod":
                return _evict(api, what)
            kind = gang_kind(what["apiVersion"], what["kind"])
            return _restart(api, kind, what, reason, is_held=task.is_held)


def _tasks_on(name: str, api: KubernetesApi) -> list[UnmanagedTask]:
    """Return what runs on the node of this name: a gang once, and each pod of anything else."""
    tasks: dict[str, UnmanagedTask] = {}
    for pod in api.pages("/api/v1/pods", fieldSelector=f"spec.nodeName={name}"):
        if pod["status"].get("phase") in _ENDED or _MIRROR in (pod["metadata"].get("annotations") or {}):
            continue
        root = root_of(pod, api)
        if root is not None and root.kind_name == "DaemonSet":
            continue
        task = _task_of_pod(pod, root) if root is None or root.kind is None else _task_of_gang(pod, root)
        tasks[task.task_id] = task
    return list(tasks.values())


def _task_of_pod(pod: Object, root: RootOwner | None) -> UnmanagedTask:
    """A pod of a service, which its controller makes again elsewhere; or one that nobody would make again."""
    metadata = pod["metadata"]
    owner = f" of {root.kind_name} {root.name}" if root is not None else ", which no controller makes again"
    return UnmanagedTask(
        task_id=metadata["uid"],
        name=f"pod {metadata['namespace']}/{metadata['name']}{owner}",
        may_be_stopped=root is not None and root.kind_name in _OF_SERVICES,
        scheduler_json=_dumped("v1", "Pod", metadata),
    )


def _task_of_gang(pod: Object, root: RootOwner) -> UnmanagedTask:
    namespace = pod["metadata"]["namespace"]
    found = root.found
    consent = found is not None and root.kind is not None and _may_restart(found, root.kind)
    return UnmanagedTask(
        task_id=root.uid,
        name=f"{root.kind_name} {namespace}/{root.name}",
        may_be_stopped=consent,
        scheduler_json=_dumped(
            root.api_version, root.kind_name, {"namespace": namespace, "name": root.name, "uid": root.uid}
        ),
    )


def _dumped(api_version: str, kind: str, metadata: Mapping[str, Any]) -> str:
    known = {name: metadata[name] for name in ("namespace", "name", "uid")}
    return json.dumps({"apiVersion": api_version, "kind": kind, **known})


def _may_restart(found: Object, kind: GangKind) -> bool:
    """Whether the owner consents to one more restart, and nobody else has suspended or manages the object."""
    notes, labels = found["metadata"].get("annotations") or {}, found["metadata"].get("labels") or {}
    managers = {field_at(found, path) for path in _MANAGED_BY}
    if notes.get(AUTO_RESUME) != "true" or _QUEUE in labels or not managers <= _OWN_CONTROLLERS:
        return False
    if field_at(found, kind.suspend) and SUSPENDED_FOR not in notes:
        return False
    return MAX_RETRIES not in notes or _count(notes.get(RESTARTS)) < _count(notes[MAX_RETRIES])


def _count(text: object) -> int:
    """Return a count that somebody has written; 0 where it is none."""
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10 else 0


def _restart(api: KubernetesApi, kind: GangKind, what: Mapping[str, str], reason: str, *, is_held: bool) -> bool:
    """Suspend, wait, resume. False: it had ended, or others have suspended it.

    Raises NotAccepted while pods are still ending: the same call goes on from there.
    """
    path = kind.path(what["namespace"], what["name"])
    found = api.find(path)
    if found is None or found["metadata"]["uid"] != what["uid"]:
        return False
    notes = found["metadata"].get("annotations") or {}
    if notes.get(RESTARTED_FOR) == reason:
        return True
    is_suspended = bool(field_at(found, kind.suspend))
    if is_suspended and notes.get(SUSPENDED_FOR) != reason:
        return False
    if not is_suspended:
        if _has_ended(found):
            return False
        _patch(api, path, found, patch_at(kind.suspend, True), {SUSPENDED_FOR: reason})
    if left := _pods_left(api, kind, what):
        raise NotAccepted(f"{kind.kind} {what['namespace']}/{what['name']} is suspended, and {left} pods are ending")
    if not is_held:
        restarts = str(_count(notes.get(RESTARTS)) + 1)
        resumed = {SUSPENDED_FOR: None, RESTARTED_FOR: reason, RESTARTS: restarts}
        _patch(api, path, api.get(path), patch_at(kind.suspend, False), resumed)
    return True


def _has_ended(found: Object) -> bool:
    conditions = found.get("status", {}).get("conditions") or ()
    ended = ("Complete", "Completed", "Succeeded", "Failed")
    return any(condition.get("type") in ended and condition.get("status") == "True" for condition in conditions)


def _patch(api: KubernetesApi, path: str, found: Object, change: dict[str, Any], notes: Mapping[str, Any]) -> None:
    """Write over the very version that was read. Raises NotAccepted where others have written it since."""
    metadata = {"resourceVersion": found["metadata"]["resourceVersion"], "annotations": dict(notes)}
    try:
        api.patch(path, {**change, "metadata": metadata})
    except ApiError as error:
        if error.status not in (404, 409):
            raise
        raise NotAccepted(f"{path} is being written by others") from error


def _pods_left(api: KubernetesApi, kind: GangKind, what: Mapping[str, str]) -> int:
    """Return how many pods of the object are there that have not ended; those that are being deleted count."""
    pods = api.pages(f"/api/v1/namespaces/{what['namespace']}/pods", labelSelector=f"{kind.job_label}={what['name']}")
    return sum(pod["status"].get("phase") not in _ENDED for pod in pods)


def _evict(api: KubernetesApi, what: Mapping[str, str]) -> bool:
    """Ask for the eviction of this very pod. False: it is gone. Raises NotAccepted while a disruption budget forbids
    it.
    """
    namespace, name = what["namespace"], what["name"]
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": namespace, "name": name},
        "deleteOptions": {"preconditions": {"uid": what["uid"]}},
    }
    try:
        api.post(f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", eviction)
    except ApiError as error:
        if error.status in (404, 409):
            return False
        if error.is_budget:
            raise NotAccepted(f"a disruption budget keeps pod {namespace}/{name}: {error.message}") from error
        raise
    return True
