"""Lists and stops what runs on a node: gangs are restarted whole, pods of services are evicted.

A gang is suspended at its root owner, which deletes its pods; when none is left it is resumed, and its pods are placed
on other nodes, since this one is tainted. That is one restart, noted on the owner, however often the call is repeated.
Nothing else restarts a gang: one evicted pod ends a Job without a backoff, and leaves other ranks hanging. The pods of
a suspended object are deleted past every disruption budget, so its owner has to consent by an annotation. A job in a
queue of Kueue's is restarted by its Workload, and queues again. Pods of a machine that is off never say that they have
ended: where EC2 proves that, Kubernetes is told to forget them.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.api import ApiError, KubernetesApi, Object, refusals_named
from nodeheal.adapters.kubernetes.gangs import (
    OF_OTHERS,
    GangKind,
    RootOwner,
    ending_of,
    field_at,
    gang_kind,
    is_name,
    patch_at,
    root_of,
)
from nodeheal.adapters.kubernetes.gate import KubernetesGate
from nodeheal.adapters.kubernetes.kueue import is_queued, workload_of
from nodeheal.adapters.kubernetes.leader_worker_sets import Group, group_of
from nodeheal.adapters.kubernetes.nodes import ISOLATED_TAINT
from nodeheal.adapters.kubernetes.notes import (
    MAX_RETRIES,
    RESTARTED_FOR,
    RESTARTS,
    SUSPENDED_FOR,
    consents_to_restarts,
    may_restart,
    notes_of,
    owner_address,
    restarts_of,
)
from nodeheal.adapters.kubernetes.power import is_proven_off
from nodeheal.contract.vocabulary import Provider
from nodeheal.domain.errors import NotAccepted, NotEnrolled, NotFound, PlacementRefused
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.ports.scheduler import NodePlacement

_KIND = re.compile(r"[A-Za-z0-9]{1,63}")
_KEPT_OFF_BY = (ISOLATED_TAINT, "node.kubernetes.io/unschedulable")
_MIRROR = "kubernetes.io/config.mirror"  # of a pod that the kubelet made from a file
_ENDED = ("Succeeded", "Failed")
# Whose controllers make an evicted pod again. HyperPod's training operator restarts such a job by itself.
_MADE_AGAIN = ("ReplicaSet", "StatefulSet", "ReplicationController", "HyperPodPyTorchJob")
# By this binding of its chart HyperPod restarts PyTorchJobs whose owners consent, in the account of AWS's.
_JOB_AUTO_RESTART = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/job-auto-restart"


class KubernetesWorkloads:
    """Implements Workloads and WorkloadRestarter."""

    def __init__(self, clusters: EksClusters, gate: KubernetesGate, ec2: Callable[[], Any]) -> None:
        self._clusters, self._gate, self._ec2 = clusters, gate, ec2

    def unmanaged_tasks(self, node: Node, placement: NodePlacement) -> Sequence[UnmanagedTask]:
        with refusals_named(f"pods of {placement.name}"):
            is_hyperpod = node.provider is Provider.hyperpod
            return _tasks_on(placement.name, self._clusters.api(node.cluster.name), is_hyperpod=is_hyperpod)

    def stop_unmanaged_task(self, node: Node, task: UnmanagedTask, reason: str) -> bool:
        api, what = self._clusters.api(node.cluster.name), json.loads(task.scheduler_json)
        with refusals_named(task.name):
            if what["kind"] == "Pod":
                if task.is_held:  # its controller would make it again at once
                    raise NotAccepted(f"{task.name} is left to run: its restarts are spent")
                try:
                    return _evict(api, what)
                except NotAccepted:
                    if not task.may_be_deleted or task.task_id != what["uid"]:  # a leader pod stands for its group
                        raise
                    return _delete(api, what)
            kind = gang_kind(what["apiVersion"], what["kind"])
            try:
                return _restart(api, kind, what, reason, is_held=task.is_held)
            except NotAccepted as error:
                self._have_forgotten(node, _pods_left(api, kind, what), error)
                raise

    def restart_unmanaged_task(self, node: Node, task: UnmanagedTask) -> str:
        """Resume a gang that is still stopped, since its pods ended late: those of a node without power never do."""
        api, what = self._clusters.api(node.cluster.name), json.loads(task.scheduler_json)
        kind = None if what["kind"] == "Pod" else gang_kind(what["apiVersion"], what["kind"])
        try:
            with refusals_named(task.name):
                reason = _stopped_for(api, kind, what) if kind is not None else ""
                if kind is None or not reason or not _restart(api, kind, what, reason, is_held=False):
                    raise PlacementRefused(f"{task.name} is not stopped by nodeheal")
        except NotAccepted as error:
            raise PlacementRefused(str(error)) from error
        return task.task_id

    def _have_forgotten(self, node: Node, left: Sequence[Object], waiting: NotAccepted) -> None:
        """Have Kubernetes forget the deleted pods that are left on the node, if its machine is off: they never say that
        they have ended. Raises NotAccepted.
        """
        names = {pod["spec"].get("nodeName") for pod in left if "deletionTimestamp" in pod["metadata"]}
        if names and is_proven_off(node, self._ec2):
            try:
                self._gate.take_out_of_service(node, names)
            except (NotFound, NotEnrolled) as error:
                raise NotAccepted(f"{waiting}; {error}") from error


def _tasks_on(name: str, api: KubernetesApi, *, is_hyperpod: bool) -> list[UnmanagedTask]:
    """Return what others run on the node of this name: a gang once, and each pod of anything else."""
    tasks: dict[str, UnmanagedTask] = {}
    for pod in api.pages("/api/v1/pods", fieldSelector=f"spec.nodeName={name},{OF_OTHERS}"):
        if pod["status"].get("phase") in _ENDED or _MIRROR in (pod["metadata"].get("annotations") or {}):
            continue
        root = root_of(pod, api)
        if root is not None and root.kind_name == "DaemonSet":
            continue
        if root is not None and root.kind is not None and root.resource is not None:
            task = _task_of_gang(pod, root, root.kind, root.resource, api, is_hyperpod=is_hyperpod)
        else:
            group = group_of(pod, api)
            task = _task_of_pod(pod, root) if group is None else _task_of_group(group)
        tasks[task.task_id] = task
    return list(tasks.values())


def _task_of_pod(pod: Object, root: RootOwner | None) -> UnmanagedTask:
    """A pod of a service, which its controller makes again elsewhere; or one that nobody would make again."""
    metadata = pod["metadata"]
    owner = f" of {_shown(root)}" if root is not None else ", which no controller makes again"
    return UnmanagedTask(
        task_id=metadata["uid"],
        name=f"pod {metadata['namespace']}/{metadata['name']}{owner}",
        may_be_stopped=root is not None and root.kind_name in _MADE_AGAIN,
        scheduler_json=_dumped("v1", "Pod", metadata),
    )


def _task_of_group(group: Group) -> UnmanagedTask:
    """A group, whose leader is evicted. Nobody counts its restarts on the set: with a limit there it is left to run."""
    owner, notes, address = group.owner["metadata"], notes_of(group.owner), owner_address(group.owner)
    return UnmanagedTask(
        task_id=f"{owner['uid']}-{group.index}",
        name=f"group {group.index} of LeaderWorkerSet {owner['namespace']}/{owner['name']}",
        started_by=address,
        may_be_stopped=consents_to_restarts(group.owner) and MAX_RETRIES not in notes and not is_queued(group.owner),
        scheduler_json=_dumped("v1", "Pod", group.leader["metadata"]),
        owner_email=address,
    )


def _task_of_gang(
    pod: Object, root: RootOwner, kind: GangKind, job: Object, api: KubernetesApi, *, is_hyperpod: bool
) -> UnmanagedTask:
    namespace, address = pod["metadata"]["namespace"], owner_address(job)
    consent, then, before = may_restart(job, kind), "", ""
    if is_queued(job):
        workload = workload_of(api, job)
        consent = (
            consent and workload is not None and (workload.is_active or SUSPENDED_FOR in notes_of(workload.resource))
        )
        then = ", which queues again at Kueue" if consent else ""
        if workload is not None and workload.is_active and workload.is_evicted:
            then, before = "", "was evicted by Kueue, and queues there again"
    if consent and is_hyperpod and root.kind_name == "PyTorchJob" and api.find(_JOB_AUTO_RESTART) is not None:
        consent, then = False, ", which HyperPod restarts by itself"
    if consent and _tolerates_isolation(pod):
        consent, then = False, ", whose pods tolerate every taint and would come back to this node"
    return UnmanagedTask(
        task_id=root.uid,
        name=f"{root.kind_name} {namespace}/{root.name}{then}",
        started_by=address,
        may_be_stopped=consent,
        scheduler_json=_dumped(
            root.api_version, root.kind_name, {"namespace": namespace, "name": root.name, "uid": root.uid}
        ),
        before=before,
        owner_email=address,
    )


def _shown(root: RootOwner) -> str:
    """Return an owner's kind and name, which a pod's author may have made up."""
    is_usual = _KIND.fullmatch(root.kind_name) and is_name(root.name)
    return f"{root.kind_name} {root.name}" if is_usual else "an owner whose name is none"


def _tolerates_isolation(pod: Object) -> bool:
    """Whether the scheduler would place such a pod on the isolated node again, which has our taint and a cordon."""
    return all(any(_tolerates(each, key) for each in pod["spec"].get("tolerations") or ()) for key in _KEPT_OFF_BY)


def _tolerates(toleration: Mapping[str, Any], key: str) -> bool:
    has_effect = toleration.get("effect") in (None, "", "NoSchedule")
    return has_effect and toleration.get("operator") == "Exists" and toleration.get("key") in (None, "", key)


def _dumped(api_version: str, kind: str, metadata: Mapping[str, Any]) -> str:
    known = {name: metadata[name] for name in ("namespace", "name", "uid")}
    return json.dumps({"apiVersion": api_version, "kind": kind, **known})


def _restart(api: KubernetesApi, kind: GangKind, what: Mapping[str, str], reason: str, *, is_held: bool) -> bool:
    """Suspend, wait, resume. False: it had ended, its owner consents no more, or others have suspended it, or resumed
    what we had suspended.

    Raises NotAccepted while pods are still ending: the same call goes on from there.
    """
    path = kind.path(what["namespace"], what["name"])
    job = api.find(path)
    if job is None or job["metadata"]["uid"] != what["uid"]:
        return False
    if is_queued(job):
        return _queue_again(api, kind, job, reason, is_held=is_held)
    notes = notes_of(job)
    if notes.get(RESTARTED_FOR) == reason:
        return True
    is_suspended = bool(field_at(job, kind.suspend))
    if is_suspended is not (notes.get(SUSPENDED_FOR) == reason):  # others have suspended it, or resumed it since
        return False
    if not is_suspended:
        if ending_of(job) or not may_restart(job, kind):  # its owner may have changed it since it was listed
            return False
        _patch(api, path, job, patch_at(kind.suspend, True), {SUSPENDED_FOR: reason})
    if left := _pods_left(api, kind, what):
        name = f"{kind.kind} {what['namespace']}/{what['name']}"
        raise NotAccepted(f"{name} is suspended, and {len(left)} pods are ending")
    if not is_held:
        fresh = api.find(path)
        if not fresh or fresh["metadata"]["uid"] != what["uid"]:
            return False
        _patch(api, path, fresh, patch_at(kind.suspend, False), _restarted(job, reason))
    return True


def _stopped_for(api: KubernetesApi, kind: GangKind, what: Mapping[str, str]) -> str:
    """Return the reason for which we have stopped an object; empty: it is gone, or not stopped, or by others."""
    job = api.find(kind.path(what["namespace"], what["name"]))
    if job is None or job["metadata"]["uid"] != what["uid"]:
        return ""
    if is_queued(job):
        workload = workload_of(api, job)
        return str(notes_of(workload.resource).get(SUSPENDED_FOR, "")) if workload and not workload.is_active else ""
    return str(notes_of(job).get(SUSPENDED_FOR, "")) if field_at(job, kind.suspend) else ""


def _queue_again(api: KubernetesApi, kind: GangKind, owner: Object, reason: str, *, is_held: bool) -> bool:
    """Have Kueue evict a job, and queue it again when its pods have gone. False: it had ended, or others have stopped
    it, as Kueue does by itself where it sees the node's taint.

    The note on the owner comes first: the API server refuses it where the owner does not consent, which it cannot see
    at a Workload. Raises NotAccepted while pods are still ending.
    """
    namespace, name = owner["metadata"]["namespace"], owner["metadata"]["name"]
    path, notes, workload = kind.path(namespace, name), notes_of(owner), workload_of(api, owner)
    if workload is None:
        return False
    is_stopped = notes_of(workload.resource).get(SUSPENDED_FOR) == reason
    if not is_stopped and notes.get(RESTARTED_FOR) == reason:
        return True
    if is_stopped is workload.is_active:  # others have stopped it, or started it again since
        return False
    if not is_stopped:
        if workload.is_evicted or ending_of(owner):
            return False
        if notes.get(SUSPENDED_FOR) != reason:
            _patch(api, path, owner, {}, {SUSPENDED_FOR: reason})
        _patch(api, workload.path, workload.resource, {"spec": {"active": False}}, {SUSPENDED_FOR: reason})
    left = _pods_left(api, kind, owner["metadata"])
    if left or not workload.is_evicted:
        raise NotAccepted(f"Kueue is evicting {kind.kind} {namespace}/{name}, and {len(left)} pods are ending")
    if not is_held:
        if notes.get(RESTARTED_FOR) != reason:
            _patch(api, path, owner, {}, _restarted(owner, reason))
        _patch(api, workload.path, workload.resource, {"spec": {"active": True}}, {SUSPENDED_FOR: None})
    return True


def _restarted(owner: Object, reason: str) -> dict[str, str | None]:
    """Return the notes on an owner that is restarted."""
    return {SUSPENDED_FOR: None, RESTARTED_FOR: reason, RESTARTS: str(restarts_of(owner) + 1)}


def _patch(api: KubernetesApi, path: str, job: Object, change: dict[str, Any], notes: Mapping[str, Any]) -> None:
    """Write over the very version that was read. Raises NotAccepted where others have written it since."""
    metadata = {"resourceVersion": job["metadata"]["resourceVersion"], "annotations": dict(notes)}
    try:
        api.patch(path, {**change, "metadata": metadata})
    except ApiError as error:
        if error.status not in (404, 409):
            raise
        raise NotAccepted(f"{path} is being written by others") from error


def _pods_left(api: KubernetesApi, kind: GangKind, what: Mapping[str, str]) -> list[Object]:
    """Return the pods of the object that have not ended; those that are being deleted count."""
    pods = api.pages(f"/api/v1/namespaces/{what['namespace']}/pods", labelSelector=f"{kind.job_label}={what['name']}")
    return [
        pod
        for pod in pods
        if pod["status"].get("phase") not in _ENDED and _MIRROR not in (pod["metadata"].get("annotations") or {})
    ]


def _delete(api: KubernetesApi, what: Mapping[str, str]) -> bool:
    """Delete this very pod with its own grace, past every disruption budget. False: it is gone."""
    try:
        api.delete(f"/api/v1/namespaces/{what['namespace']}/pods/{what['name']}", what["uid"])
    except ApiError as error:
        if error.status not in (404, 409):
            raise
        return False
    return True


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
