"""Simulates a Kubernetes cluster over the pool: its controllers start gangs and services on nodes that take pods, and
people cordon nodes and suspend jobs.

The adapter is the real one. What stands in for its client knows objects with versions, merge patches and evictions;
what an API server does besides is judged on a real one (tests/kubernetes).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from math import inf
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.api import BUDGET_CAUSE, ApiError, KubernetesApi, Object
from nodeheal.adapters.kubernetes.gangs import GANG_KINDS, GangKind, field_at, patch_at
from nodeheal.adapters.kubernetes.gate import KubernetesGate
from nodeheal.adapters.kubernetes.nodes import NODES, is_cordoned, isolated_for, machine_of
from nodeheal.adapters.kubernetes.notes import AUTO_RESUME, MAX_RETRIES, SUSPENDED_FOR
from nodeheal.adapters.kubernetes.scheduler import TRAITS
from nodeheal.adapters.kubernetes.workloads import KubernetesWorkloads
from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.holder import Holder
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.ports.scheduler import Drained, NodePlacement, Scheduler
from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.chance import Chance, lognormal
from nodeheal.simulation.cloud import SimScheduler, Throttles
from nodeheal.simulation.cluster_jobs import UNREACHABLE_SECONDS, ClusterJob, SimulatedJobs
from nodeheal.simulation.fleet import Fleet
from nodeheal.simulation.ground_truth import GroundTruth
from nodeheal.simulation.hazards import FaultInjectingPort, Injector
from nodeheal.simulation.setting import KubernetesWork
from nodeheal.simulation.trace import Trace

NODEHEAL, PERSON = "nodeheal", "kubectl"  # who writes, as the API names them
GRACE_SECONDS = 20.0  # until a pod that is deleted has ended (median)
DARK_SECONDS = 60.0  # between two looks whether the kubelet of a pod is back, or its node gone
READY_SECONDS = 30.0  # from a pod's start until it is ready
HELD_SECONDS = 3_600.0  # until a person resumes a gang, or an owner one that was suspended for a while (median)
REPLICAS = 3
_NAMESPACE = "training"
_PODS = f"/api/v1/namespaces/{_NAMESPACE}/pods"
Answer = TypeVar("Answer")


@dataclass(eq=False)
class PodGang(ClusterJob):
    """A job of pods that start and end together. `most_restarts`: by its owner's word; None: any number."""

    kind: GangKind = GANG_KINDS[0]
    most_restarts: int | None = None
    restarted_by_nodeheal: int = 0

    @property
    def path(self) -> str:
        """Return where the API has it."""
        return self.kind.path(_NAMESPACE, self.job_id)


@dataclass(eq=False)
class ReplicaSet:
    """Pods on different nodes. `floor`: how many its disruption budget wants to be ready."""

    name: str
    floor: int
    pods: list["Pod"] = field(default_factory=list)

    @property
    def ready(self) -> int:
        """Return how many of its pods do their work."""
        return sum(pod.is_ready and not pod.is_ending for pod in self.pods)


@dataclass(eq=False)
class Pod:
    """A pod of a service; or of nobody, which no controller makes again."""

    name: str
    node_id: str
    service: ReplicaSet | None = None
    is_ready: bool = True
    is_ending: bool = False


class KubernetesCluster(SimulatedJobs[PodGang]):
    """The cluster's objects, and what its controllers, kubelets and people do with them."""

    def __init__(self, wanted: KubernetesWork, agenda: Agenda, chance: Chance, trace: Trace, fleet: Fleet) -> None:
        super().__init__("kubernetes", wanted, agenda, chance, trace, fleet)
        self._given = wanted
        self._people = chance.of("kubernetes people")
        self._nodes: dict[str, Object] = {}  # as the API has them, by their machines
        self._gangs: dict[str, Object] = {}  # by path
        self._made = 0
        self.services: list[ReplicaSet] = []
        self.pods: dict[str, Pod] = {}
        self.cordoned: set[str] = set()  # nodes, by people
        self.draining: set[str] = set()  # nodes that nodeheal keeps from new pods
        self.asked_on: dict[str, str] = {}  # where nodeheal asked for a stop, by its reason
        self.takes_work = self._takes_pods
        self.on_isolated: Callable[[str, str], None] = lambda node_id, incident_id: None
        self.on_switched_on: Callable[[str], None] = lambda node_id: None
        self.on_stopped: Callable[[str, UnmanagedTask], None] = lambda node_id, task: None
        self.on_resumed: Callable[[PodGang], None] = lambda gang: None
        self.on_evicted: Callable[[ReplicaSet], None] = lambda service: None

    def begin(self) -> None:
        self._register()
        self.services = [
            ReplicaSet(f"web-{n}", self._stream.choice(self._given.floors)) for n in range(self._given.services)
        ]
        for node_id in self._fleet.nodes:
            if self._stream.random() < self._given.bare:
                self._add_pod(node_id)
        super().begin()
        self._fleet.now_and_then(self._people, self._given.cordons_a_day, self._somebody_cordons)
        self._fleet.now_and_then(self._people, self._given.owners_act_a_day, self._an_owner_acts)

    # What the API server answers

    def is_refused(self) -> bool:
        """Whether a call comes to nothing."""
        return self._given.refused > 0 and self._stream.random() < self._given.refused

    def read(self, path: str) -> Object:
        """Return an object. Raises ApiError."""
        self._register()
        known = self._nodes if path.startswith(NODES) else self._gangs
        if _key(path) not in known:
            raise ApiError(404, "NotFound", path)
        return known[_key(path)]

    def listed(self, path: str, selectors: Mapping[str, str]) -> list[Object]:
        """Return the objects of a list."""
        self._register()
        if path == NODES:
            return list(self._nodes.values())
        if "fieldSelector" in selectors:
            name = selectors["fieldSelector"].partition(",")[0].partition("=")[2]
            return list(self._pods_on(_key(f"{NODES}/{name}")))
        label, _, name = selectors["labelSelector"].partition("=")
        gang = self.jobs.get(name)
        there = () if gang is None or gang.kind.job_label != label else gang.nodes
        return [_shown_of_gang(gang, node_id) for node_id in there if gang and self.at_work.get(node_id) is gang]

    def patch(self, path: str, change: Object) -> Object:
        """Carry out nodeheal's merge patch. Raises ApiError where others have written the object since, or the owner
        of a job does not consent.
        """
        target = self.read(path)
        if change["metadata"]["resourceVersion"] != target["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", path)
        if not path.startswith(NODES) and target["metadata"]["annotations"].get(AUTO_RESUME) != "true":
            raise ApiError(403, "Forbidden", "the owner of this job does not consent to restarts")
        return self._write(path, change, NODEHEAL)

    def evict(self, path: str, body: Object) -> Object:
        """Carry out an eviction. Raises ApiError, also where a disruption budget forbids it."""
        name, uid = path.split("/")[-2], body["deleteOptions"]["preconditions"]["uid"]
        for node_id, gang in self.at_work.items():
            if uid == _uid_of(gang, node_id):
                self.on_resumed(gang)
        pod = self.pods.get(name)
        if pod is None or uid != name:
            raise ApiError(404, "NotFound", path)
        if not pod.is_ending:
            if pod.service is not None and pod.service.ready - pod.is_ready < pod.service.floor:
                raise ApiError(429, "TooManyRequests", f"the budget of {pod.service.name}", (BUDGET_CAUSE,))
            self._trace.tell("kubernetes evicts", name, pod.node_id)
            self.on_stopped(pod.node_id, UnmanagedTask(name, name, may_be_stopped=pod.service is not None))
            self._end(pod)
            if pod.service is not None:
                self.on_evicted(pod.service)
        return body

    def _write(self, path: str, change: Object, manager: str) -> Object:
        before = self.read(path)
        after = _merged(before, change)
        after["metadata"]["resourceVersion"] = str(int(before["metadata"]["resourceVersion"]) + 1)
        if is_cordoned(before) != is_cordoned(after):
            owned = {"manager": manager, "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
            after["metadata"]["managedFields"] = [owned] if is_cordoned(after) else []
        if path.startswith(NODES):
            self._nodes[_key(path)] = after
            self._node_changed(before, after, manager)
        else:
            self._gangs[path] = after
            self._gang_changed(self.jobs[after["metadata"]["uid"]], before, after, manager)
        return after

    # Nodes

    def _register(self) -> None:
        """Have each kubelet register its node, and the nodes of machines that are gone deleted."""
        for node_id, node in self._fleet.nodes.items():
            if node_id not in self._nodes and node.is_up:
                metadata = {"name": _path_of(node_id).rpartition("/")[2], "resourceVersion": "1"}
                self._nodes[node_id] = {"metadata": metadata, "spec": {"providerID": f"aws:///zone/{node_id}"}}
        for node_id in self._nodes.keys() - self._fleet.nodes.keys():
            self.draining.discard(node_id)
            del self._nodes[node_id]

    def _takes_pods(self, node_id: str) -> bool:
        return node_id in self._nodes and _is_open(self._nodes[node_id])

    def _node_changed(self, before: Object, after: Object, manager: str) -> None:
        node_id, incident = machine_of(after), isolated_for(after)
        if incident is not None or (is_cordoned(after) and node_id not in self.cordoned):
            self.draining.add(node_id)
        else:
            self.draining.discard(node_id)
        if incident not in (None, isolated_for(before)):
            self.on_isolated(node_id, str(incident))
        if _is_open(after) and not _is_open(before):
            self.resumed(node_id)
            if manager == NODEHEAL:
                self.on_switched_on(node_id)

    def cordon(self, node_id: str, *, is_to_be: bool = True) -> None:
        """Have a person cordon or uncordon a node."""
        self._register()
        if node_id not in self._nodes or is_cordoned(self._nodes[node_id]) == is_to_be:
            return
        self._trace.tell("cordons" if is_to_be else "uncordons", node_id)
        (self.cordoned.add if is_to_be else self.cordoned.discard)(node_id)
        self._write(_path_of(node_id), {"spec": {"unschedulable": True if is_to_be else None}}, PERSON)

    def _somebody_cordons(self) -> None:
        node_id = self._people.choice(list(self._fleet.nodes))
        if node_id in self._nodes:
            self.cordon(node_id, is_to_be=not is_cordoned(self._nodes[node_id]))

    # Gangs

    def _make(self, job_id: str, size: int, seconds: float, may_requeue: bool) -> PodGang:
        name, most = f"gang-{job_id}", self._stream.choice(self._given.most_restarts)
        gang = PodGang(name, size, seconds, may_requeue, kind=self._stream.choice(GANG_KINDS), most_restarts=most)
        notes = {AUTO_RESUME: "true"} if may_requeue else {}
        notes |= {MAX_RETRIES: str(most)} if most is not None else {}
        metadata = {"namespace": _NAMESPACE, "name": name, "uid": name, "resourceVersion": "1", "annotations": notes}
        self._gangs[gang.path] = {"metadata": metadata, **patch_at(gang.kind.suspend, False)}
        return gang

    def _gang_changed(self, gang: PodGang, before: Object, after: Object, manager: str) -> None:
        was_suspended, is_suspended = (bool(field_at(version, gang.kind.suspend)) for version in (before, after))
        if is_suspended and not was_suspended:
            self._trace.tell("kubernetes suspends", gang.job_id, manager)
            gang.suspended_by = manager
            if manager == NODEHEAL:
                node_id = self.asked_on[after["metadata"]["annotations"][SUSPENDED_FOR]]
                self.on_stopped(node_id, self._task_of(gang))
                self.on_requeued(node_id, gang)
            else:
                gang.not_before = inf
            if gang.nodes and not gang.is_completing:
                self._leave(gang, self._is_out)
        if was_suspended and not is_suspended:
            self._trace.tell("kubernetes resumes", gang.job_id, manager)
            if manager == NODEHEAL:
                self.on_resumed(gang)
                gang.restarted_by_nodeheal += 1
            gang.restarts, gang.suspended_by, gang.not_before = gang.restarts + 1, "", self._agenda.now

    def _task_of(self, gang: PodGang) -> UnmanagedTask:
        """Return what nodeheal should know of it now."""
        notes = self._gangs[gang.path]["metadata"]["annotations"]
        spent = gang.most_restarts is not None and gang.restarted_by_nodeheal >= gang.most_restarts
        return UnmanagedTask(gang.job_id, gang.job_id, may_be_stopped=AUTO_RESUME in notes and not spent)

    def resume_later(self, job_id: str) -> None:
        """Have a person resume a gang that nodeheal has left suspended."""
        gang = self.jobs.get(job_id)
        if gang is not None and gang.suspended_by == NODEHEAL and gang.not_before <= self._agenda.now:
            seconds = lognormal(self._people, HELD_SECONDS, 0.5)
            gang.not_before = self._agenda.now + seconds
            self._agenda.after(seconds, partial(self._resume, gang, NODEHEAL))

    def _resume(self, gang: PodGang, suspended_by: str) -> None:
        if gang.suspended_by == suspended_by and gang.job_id in self.jobs:
            self._write(gang.path, patch_at(gang.kind.suspend, False), PERSON)

    def _an_owner_acts(self) -> None:
        running = [gang for gang in self.jobs.values() if gang.nodes and not gang.is_completing]
        if not running:
            return
        gang = self._people.choice(running)
        if self._people.random() < 0.3:
            self._trace.tell("withdraws consent", gang.job_id)
            self._write(gang.path, {"metadata": {"annotations": {AUTO_RESUME: None}}}, PERSON)
            return
        self._write(gang.path, patch_at(gang.kind.suspend, True), PERSON)
        self._agenda.after(lognormal(self._people, HELD_SECONDS, 0.5), partial(self._resume, gang, PERSON))

    def _may_start(self, job: PodGang) -> bool:
        return super()._may_start(job) and not job.suspended_by

    def _lose(self, job: PodGang) -> None:
        self._ends(job, "FAILED")

    def _ends(self, job: PodGang, how: str) -> None:
        ended = {"type": "Complete" if how == "COMPLETED" else "Failed", "status": "True"}
        self._write(job.path, {"status": {"conditions": [ended]}}, "controller")
        super()._ends(job, how)

    def _is_out(self, job: PodGang) -> None:
        job.not_before = max(job.not_before, self._agenda.now)

    def _is_over(self, job: PodGang) -> None:
        super()._is_over(job)
        del self._gangs[job.path]

    def _leave(self, job: PodGang, then: Callable[[PodGang], None]) -> None:
        if job.end is not None:
            job.end.call_off()
        job.is_completing = True
        for node_id in job.nodes:
            self._when_ended(node_id, partial(self._pod_left, job, node_id, then))

    def _pod_left(self, job: PodGang, node_id: str, then: Callable[[PodGang], None]) -> None:
        self._leaves(node_id)
        if not any(self.at_work.get(name) is job for name in job.nodes):
            job.nodes, job.is_completing = (), False
            then(job)

    def _when_ended(self, node_id: str, then: Callable[[], None]) -> None:
        """Call it when the kubelet has ended a pod, or the node is gone: until then a deleted pod is there."""

        def look() -> None:
            node = self._fleet.nodes.get(node_id)
            if node is None or node.is_up:
                then()
            else:
                self._agenda.after(DARK_SECONDS, look)

        self._agenda.after(lognormal(self._stream, GRACE_SECONDS, 0.5), look)

    # Pods of services, and of nobody

    def _pods_on(self, node_id: str) -> Iterator[Object]:
        gang = self.at_work.get(node_id)
        if gang is not None:
            yield _shown_of_gang(gang, node_id)
        for pod in [pod for pod in self.pods.values() if pod.node_id == node_id]:
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}
            owners = [{**owner, "name": pod.service.name, "uid": pod.service.name}] if pod.service is not None else []
            yield _shown(pod.name, pod.name, node_id, owners)

    def _schedule(self) -> None:
        self._register()
        super()._schedule()
        for pod in [pod for pod in self.pods.values() if pod.node_id not in self._fleet.nodes]:
            self._forget(pod)
        for service in self.services if not self._fleet.is_over else ():
            if len(service.pods) == REPLICAS:
                continue
            taken = {pod.node_id for pod in service.pods}
            free = [node.node_id for node in self._fleet.nodes.values() if node.is_up and node.node_id not in taken]
            free = [node_id for node_id in free if self._takes_pods(node_id)]
            for node_id in free[: REPLICAS - len(service.pods)]:
                self._starts(self._add_pod(node_id, service))

    def _add_pod(self, node_id: str, service: ReplicaSet | None = None) -> Pod:
        self._made += 1
        pod = Pod(f"pod-{self._made}", node_id, service)
        self.pods[pod.name] = pod
        if service is not None:
            service.pods.append(pod)
        return pod

    def _starts(self, pod: Pod) -> None:
        def is_ready() -> None:
            node = self._fleet.nodes.get(pod.node_id)
            pod.is_ready = node is not None and node.is_up

        pod.is_ready = False
        self._agenda.after(READY_SECONDS, is_ready)

    def _end(self, pod: Pod) -> None:
        pod.is_ending = True
        self._when_ended(pod.node_id, partial(self._forget, pod))

    def _forget(self, pod: Pod) -> None:
        self.pods.pop(pod.name, None)
        if pod.service is not None and pod in pod.service.pods:
            pod.service.pods.remove(pod)

    def node_down(self, node: GroundTruth) -> None:
        super().node_down(node)
        boot = node.boot

        def is_lost() -> None:
            if not node.is_up and node.boot == boot:
                for pod in [pod for pod in self.pods.values() if pod.node_id == node.node_id and not pod.is_ending]:
                    self._end(pod)

        for pod in self.pods.values():
            pod.is_ready = pod.is_ready and pod.node_id != node.node_id
        self._agenda.after(UNREACHABLE_SECONDS, is_lost)

    def node_up(self, node: GroundTruth) -> None:
        super().node_up(node)
        for pod in [pod for pod in self.pods.values() if pod.node_id == node.node_id]:
            self._starts(pod)

    def tasks_on(self, node_id: str) -> Iterator[UnmanagedTask]:
        """Yield what uses the node's accelerators."""
        gang = self.at_work.get(node_id)
        if gang is not None and not gang.is_completing:
            yield self._task_of(gang)


def _path_of(node_id: str) -> str:
    """Return where the API has a node: hybrid ones are named after their machine."""
    return f"{NODES}/{node_id if node_id.startswith('mi-') else f'ip-{node_id}'}"


def _key(path: str) -> str:
    """Return the machine of a node's path; any other path as it is."""
    return path.rpartition("/")[2].removeprefix("ip-") if path.startswith(NODES) else path


def _is_open(node: Object) -> bool:
    return not is_cordoned(node) and isolated_for(node) is None


def _uid_of(gang: PodGang, node_id: str) -> str:
    return f"{gang.job_id}-{gang.restarts}-{node_id}"


def _shown_of_gang(gang: PodGang, node_id: str) -> Object:
    owner = {"apiVersion": gang.kind.api_version, "kind": gang.kind.kind, "controller": True}
    owners = [{**owner, "name": gang.job_id, "uid": gang.job_id}]
    return _shown(f"{gang.job_id}-{node_id}", _uid_of(gang, node_id), node_id, owners)


def _shown(name: str, uid: str, node_id: str, owners: Sequence[Object]) -> Object:
    metadata = {"namespace": _NAMESPACE, "name": name, "uid": uid, "ownerReferences": owners}
    return {"metadata": metadata, "spec": {"nodeName": node_id}, "status": {"phase": "Running"}}


def _merged(base: Object, change: Object) -> dict[str, Any]:
    """Return an object after a JSON merge patch."""
    after = dict(base)
    for name, value in change.items():
        if value is None:
            after.pop(name, None)
        else:
            after[name] = _merged(after.get(name) or {}, value) if isinstance(value, Mapping) else value
    return after


class SimApi(KubernetesApi):
    """Stands in for the client of the cluster's API server, which throttles, and whose answers may be lost."""

    def __init__(self, cluster: KubernetesCluster, throttles: Throttles) -> None:
        self._cluster, self._throttles = cluster, throttles

    def get(self, path: str) -> Object:
        return self._answered(lambda: self._cluster.read(path))

    def pages(self, path: str, **selectors: str) -> Iterator[Object]:
        return iter(self._answered(lambda: self._cluster.listed(path, selectors)))

    def patch(self, path: str, change: Object) -> Object:
        return self._answered(lambda: self._cluster.patch(path, change))

    def post(self, path: str, body: Object) -> Object:
        return self._answered(lambda: self._cluster.evict(path, body))

    def _answered(self, carried_out: Callable[[], Answer]) -> Answer:
        self._throttles.take("kubernetes", "the API server of training")
        if self._cluster.is_refused():
            raise NotAccepted("the API server of training is overloaded")
        answer = carried_out()
        if self._cluster.is_refused():
            raise NotAccepted("the API server of training has not answered")
        return answer


class _Clusters(EksClusters):
    """The one cluster."""

    def __init__(self, api: KubernetesApi) -> None:
        super().__init__(lambda service: None)
        self._api = api

    def api(self, cluster: str) -> KubernetesApi:
        return self._api


def _unknown_to_ec2() -> Any:
    """An EC2 that knows no machine, so that none is proven to be off."""
    return SimpleNamespace(describe_instances=lambda **_: {"Reservations": []})


class SimKubernetes(SimScheduler):
    """Has the real adapter do what Kubernetes can do."""

    traits = TRAITS

    def __init__(self, throttles: Throttles, cluster: KubernetesCluster) -> None:
        super().__init__(throttles)
        self._cluster, self.draining = cluster, cluster.draining
        self._use(SimApi(cluster, throttles))
        cluster.on_isolated = lambda node_id, incident_id: self.on_act("isolate", node_id, incident_id)
        cluster.on_switched_on = lambda node_id: self.on_switched_on(node_id)
        cluster.on_stopped = lambda node_id, task: self.on_stop_unmanaged(node_id, task)

    def _use(self, api: KubernetesApi) -> None:
        self._api = api
        clusters = _Clusters(api)
        self._gate = KubernetesGate(clusters)
        self._workloads = KubernetesWorkloads(clusters, self._gate, _unknown_to_ec2)

    def with_faults(self, injector: Injector) -> "SimKubernetes":
        """Return the same scheduler, as functions have it: they may fail, or be overtaken, at each call of the API."""
        same = copy(self)
        same._use(cast("KubernetesApi", FaultInjectingPort("kubernetes", self._api, injector)))
        return same

    def as_scheduler(self, kind: SchedulerKind) -> Scheduler:
        return Scheduler(kind, self.traits, self, workloads=self, restarter=self)

    def placement_of(self, node: Node) -> NodePlacement:
        return self._gate.placement_of(node)

    def drain_all(self, nodes: Sequence[Node], placements: Sequence[str]) -> Mapping[str, Drained]:
        return self._gate.drain_all(nodes, placements)

    def undrain(self, node: Node, placement: NodePlacement) -> Holder | None:
        return self._gate.undrain(node, placement)

    def unmanaged_tasks(self, node: Node, placement: NodePlacement) -> Sequence[UnmanagedTask]:
        return self._workloads.unmanaged_tasks(node, placement)

    def stop_unmanaged_task(self, node: Node, task: UnmanagedTask, reason: str) -> bool:
        self._cluster.asked_on[reason] = node.node_id
        is_done = self._workloads.stop_unmanaged_task(node, task, reason)
        if is_done and task.is_held:
            self._cluster.resume_later(task.task_id)
        return is_done

    def restart_unmanaged_task(self, node: Node, task: UnmanagedTask) -> str:
        return self._workloads.restart_unmanaged_task(node, task)

    def drain_by_people(self, node_id: str) -> None:
        self._cluster.cordon(node_id)

    def tasks_of_others_on(self, node_id: str) -> list[UnmanagedTask]:
        return list(self._cluster.tasks_on(node_id))

    def node_down(self, node: GroundTruth) -> None:
        self._cluster.node_down(node)
