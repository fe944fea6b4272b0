"""A group of a LeaderWorkerSet goes with its leader. Its own controller is not here: the test makes what it makes."""

from typing import Any

import pytest

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.notes import MAX_RETRIES
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from sandbox.kubernetes.control_plane import ControlPlane
from tests.kubernetes.cluster import Cluster, Object, shell
from tests.kubernetes.workloads import CONSENT, REASON, Place

SETS = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets"
STATEFUL_SETS = "/apis/apps/v1/namespaces/default/statefulsets"
_SET, _INDEX = "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"


@pytest.fixture(autouse=True)
def _kind_is_served(plane: ControlPlane) -> None:
    """The API server takes any object of the kind."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"kind": "LeaderWorkerSet", "plural": "leaderworkersets"}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    group = "leaderworkerset.x-k8s.io"
    plane.apply(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"leaderworkersets.{group}"},
            "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
        }
    )
    plane.kubectl("wait", "--for=condition=Established", f"crd/leaderworkersets.{group}", "--timeout=60s")


def reference(api_version: str, kind: str, found: Object) -> Object:
    named = {key: found["metadata"][key] for key in ("name", "uid")}
    return {"apiVersion": api_version, "kind": kind, "controller": True, **named}


def stateful_set(cluster: Cluster, name: str, owner: Object, start: int, labels: dict[str, str]) -> None:
    template = {"metadata": {"labels": labels}, "spec": {"containers": [shell("sleep 60")]}}
    spec: dict[str, Any] = {
        "replicas": 1,
        "serviceName": "none",
        "ordinals": {"start": start},
        "selector": {"matchLabels": labels},
        "template": template,
    }
    cluster.create(STATEFUL_SETS, {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec})


class Grouped(Place):
    """One group of a leader and a worker, as the set's controller makes it."""

    group: str
    leader: Object

    def starts(self, *, on_broken: str, **notes: str) -> None:
        """`on_broken`: which of the two is on the first node: leader or worker."""
        cluster, name = self.cluster, self.cluster.name("lws")
        self.name, self.group = name, f"{_SET}={name}"
        body = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
        owner = cluster.create(
            SETS, {**body, "metadata": {"name": name, "annotations": notes}, "spec": {"replicas": 1}}
        )
        labels = {_SET: name, _INDEX: "0", "leaderworkerset.sigs.k8s.io/worker-index": "0"}
        places = {"leader": self.broken, "worker": self.other}
        if on_broken == "worker":
            places = {"leader": self.other, "worker": self.broken}
        self.only(places["leader"].name)
        set_reference = reference("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", owner)
        stateful_set(cluster, name, set_reference, 0, labels)
        cluster.wait(lambda: cluster.phase(f"{name}-0") == "Running", "the leader runs")
        self.leader = cluster.pod(f"{name}-0")
        self.only(places["worker"].name)
        labels = {**labels, "leaderworkerset.sigs.k8s.io/worker-index": "1"}
        stateful_set(cluster, f"{name}-0", reference("v1", "Pod", self.leader), 1, labels)
        cluster.wait(lambda: cluster.phase(f"{name}-0-1") == "Running", "the worker runs")
        self.only("")

    def only(self, node: str) -> None:
        """New pods go to this node; empty: to any."""
        for kubelet in (self.broken, self.other):
            self.cluster.plane.kubectl("uncordon" if node in ("", kubelet.name) else "cordon", kubelet.name)


@pytest.fixture
def grouped(cluster: Cluster, clusters: EksClusters) -> Grouped:
    return Grouped(cluster, clusters)


@pytest.mark.parametrize("on_broken", ["leader", "worker"])
def test_a_group_goes_with_its_leader_and_is_made_again_elsewhere(grouped: Grouped, on_broken: str) -> None:
    grouped.starts(on_broken=on_broken, **CONSENT)
    task, cluster = grouped.isolates(), grouped.cluster

    assert (task.may_be_stopped, task.name) == (True, f"group 0 of LeaderWorkerSet default/{grouped.name}")
    assert grouped.stops(task)

    cluster.wait(lambda: cluster.phase(f"{grouped.name}-0-1") == "", "the worker went with its leader")
    cluster.wait(lambda: grouped.running(grouped.group, grouped.other) == 1, "the leader runs on the other node")
    assert cluster.pod(f"{grouped.name}-0")["metadata"]["uid"] != grouped.leader["metadata"]["uid"]
    assert not grouped.stops(task)  # asked again: the new leader is another pod


@pytest.mark.parametrize("notes", [{}, {**CONSENT, MAX_RETRIES: "3"}], ids=["no consent", "a limit nobody counts"])
def test_a_group_whose_owner_does_not_consent_is_named_and_left(grouped: Grouped, notes: dict[str, str]) -> None:
    grouped.starts(on_broken="worker", **notes)

    task = grouped.isolates()

    assert (task.may_be_stopped, task.name) == (False, f"group 0 of LeaderWorkerSet default/{grouped.name}")


def test_a_group_whose_restarts_are_spent_is_not_evicted(grouped: Grouped) -> None:
    """Its controller would make it again at once, whatever we hold."""
    grouped.starts(on_broken="leader", **CONSENT)
    held = UnmanagedTask(**{**vars(grouped.isolates()), "is_held": True})

    with pytest.raises(NotAccepted, match="left to run: its restarts are spent"):
        grouped.workloads.stop_unmanaged_task(grouped.node, held, REASON)

    assert "deletionTimestamp" not in grouped.cluster.pod(f"{grouped.name}-0")["metadata"]


def test_a_pod_that_only_bears_the_label_of_a_set_is_no_group(grouped: Grouped) -> None:
    name = grouped.name = grouped.cluster.name("pod")
    body = {"nodeName": grouped.broken.name, "containers": [shell("sleep 60")]}
    metadata = {"name": name, "labels": {_SET: name, _INDEX: "0"}}
    grouped.cluster.create("/api/v1/namespaces/default/pods", {"metadata": metadata, "spec": body})
    grouped.cluster.wait(lambda: grouped.cluster.phase(name) == "Running", "the pod runs")

    assert not grouped.isolates().may_be_stopped
