"""A label on a HyperPod node is an order where only a group of people can set it, and an agent's word is none."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.gate import KubernetesGate
from nodeheal.adapters.kubernetes.hyperpod import FAULT_TYPES, HEALTH
from nodeheal.adapters.kubernetes.nodes import machine_in
from nodeheal.adapters.kubernetes.orders import POLICY, KubernetesOrders
from nodeheal.contract.vocabulary import Action, Provider, SchedulerKind
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.cluster import Cluster as InCluster
from nodeheal.domain.fleet.node_order import NodeOrder
from nodeheal.services.operators.take_orders import take_orders
from sandbox.kubernetes.api import Api, ApiError
from sandbox.kubernetes.control_plane import ControlPlane
from sandbox.kubernetes.kubelet import Kubelet
from tests.kubernetes import eks
from tests.kubernetes.cluster import Cluster
from tests.support.builders import ACT, behave_as, memory_ports, stored_node
from tests.support.hyperpod import PLACE

if TYPE_CHECKING:
    from tests.support.builders import FrozenClock

REBOOT, REPLACE = "UnschedulablePendingReboot", "UnschedulablePendingReplacement"
BINDING = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/{POLICY}"
POLICIES = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{POLICY}"
HERE = InCluster(SchedulerKind.KUBERNETES, eks.NAME)
RIGHTS = {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["create", "update", "patch", "get"]}


def labelled(**labels: str | None) -> dict[str, Any]:
    """A patch of these labels: `health` and `fault`."""
    names = {"health": HEALTH, "fault": FAULT_TYPES}
    return {"metadata": {"labels": {names[word]: value for word, value in labels.items()}}}


def label(api: Api, kubelet: Kubelet, part: str = "", **labels: str | None) -> None:
    api.patch(f"/api/v1/nodes/{kubelet.name}{part}", labelled(**labels))


def refused(api: Api, kubelet: Kubelet, part: str = "", **labels: str | None) -> str:
    """What the API server says to it."""
    with pytest.raises(ApiError) as error:
        label(api, kubelet, part, **labels)
    assert error.value.status == 403
    return str(error.value)


@pytest.fixture
def person(cluster: Cluster) -> Iterator[Callable[..., Api]]:
    """Somebody in these groups, who may write nodes and their status."""
    name = cluster.name("writer")
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": name}],
    }
    role = {"apiVersion": binding["apiVersion"], "kind": "ClusterRole", "metadata": {"name": name}, "rules": [RIGHTS]}
    cluster.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
    cluster.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    yield lambda user, *groups: cluster.plane.api_of(user, [name, *groups])


@pytest.fixture
def kubelet(cluster: Cluster) -> Kubelet:
    """A node of HyperPod, where the policy is in force: that takes a second or two."""
    kubelet = cluster.node(place=PLACE)
    cluster.wait(lambda: is_refused(cluster.api, kubelet), "the policy is in force")
    return kubelet


def pending(clusters: EksClusters, *kubelets: Kubelet) -> list[NodeOrder]:
    """The orders for these nodes."""
    machines = {machine_in(kubelet.machine.provider_id) for kubelet in kubelets}
    return [order for order in KubernetesOrders(clusters).pending(HERE) if order.machine_id in machines]


@pytest.mark.parametrize(("value", "action"), [(REBOOT, Action.REBOOT), (REPLACE, Action.REPLACE)])
def test_a_label_of_the_groups_is_an_order(
    person: Callable[..., Api], kubelet: Kubelet, clusters: EksClusters, value: str, action: Action
) -> None:
    label(person("ada", "nodeheal:operators"), kubelet, health=value)

    [order] = pending(clusters, kubelet)

    machine = machine_in(kubelet.machine.provider_id)
    who = "somebody who may label nodes of cluster training"
    assert order == NodeOrder(machine, action, who, f"{HEALTH}={value}", is_authorised=True)


@pytest.mark.parametrize("part", ["", "/status"])
@pytest.mark.parametrize("value", [REBOOT, REPLACE])
def test_nobody_else_can_order_neither_by_a_new_label_nor_by_another_value(
    person: Callable[..., Api], kubelet: Kubelet, clusters: EksClusters, part: str, value: str
) -> None:
    ada, eve = person("ada", "nodeheal:operators"), person("eve", "sre")
    other = {REBOOT: REPLACE, REPLACE: REBOOT}[value]

    assert "only a group of people orders" in refused(eve, kubelet, part, health=value)
    label(ada, kubelet, health=other)
    assert "only a group of people orders" in refused(eve, kubelet, part, health=value)
    label(eve, kubelet, part, health=other)  # as it is

    assert [order.how for order in pending(clusters, kubelet)] == [f"{HEALTH}={other}"]


def test_a_kubelet_orders_nothing_for_its_own_node_and_takes_an_order_back(
    cluster: Cluster, person: Callable[..., Api], kubelet: Kubelet, clusters: EksClusters
) -> None:
    for part in ("", "/status"):
        assert "only a group of people orders" in refused(kubelet.api, kubelet, part, health=REBOOT)
    name = cluster.name("node")
    metadata = {"name": name, "labels": {HEALTH: REPLACE}}
    with pytest.raises(ApiError) as new:
        cluster.plane.api_of_node(name).create("/api/v1/nodes", {"metadata": metadata})
    label(person("ada", "nodeheal:operators"), kubelet, health=REBOOT)
    label(kubelet.api, kubelet, health="Schedulable")

    assert (new.value.status, "only a group of people orders" in str(new.value)) == (403, True)
    assert pending(clusters, kubelet) == []


def test_what_an_agent_says_beside_a_fault_is_no_order_and_never_becomes_one(
    person: Callable[..., Api], kubelet: Kubelet, clusters: EksClusters
) -> None:
    agent = person("system:serviceaccount:aws-hyperpod:health-monitoring-agent")

    label(agent, kubelet, "/status", health=REPLACE, fault="NvidiaErrorTerminate")
    label(agent, kubelet, health=REBOOT)
    said = pending(clusters, kubelet)
    for part in ("", "/status"):
        assert "fault-types stay" in refused(agent, kubelet, part, fault=None)
        assert "fault-types stay" in refused(kubelet.api, kubelet, part, fault=None)
    refused(agent, kubelet, health=REPLACE, fault=None)
    label(agent, kubelet, health="Schedulable", fault=None)

    assert (said, pending(clusters, kubelet)) == ([], [])


def test_the_functions_and_the_admin_order_nothing(cluster: Cluster, kubelet: Kubelet, clusters: EksClusters) -> None:
    with pytest.raises(Exception, match="403"):
        clusters.api(eks.NAME).patch(f"/api/v1/nodes/{kubelet.name}", labelled(health=REBOOT))
    assert "only a group of people orders" in refused(cluster.api, kubelet, health=REBOOT)


def test_only_nodes_of_hyperpod_are_ordered_about(
    cluster: Cluster, person: Callable[..., Api], clusters: EksClusters
) -> None:
    plain = cluster.node()
    label(person("ada", "nodeheal:operators"), plain, health=REBOOT)

    assert pending(clusters, plain) == []


@contextmanager
def changed(cluster: Cluster, kubelet: Kubelet, path: str, change: dict[str, Any] | None) -> Iterator[None]:
    """The object is so, or is not there. Afterwards it is as before, and in force."""
    before = cluster.api.get(path)["spec"]
    try:
        if change is None:
            cluster.api.delete(path)
        else:
            cluster.api.patch(path, change)
        yield
    finally:
        cluster.forget(path)
        cluster.api.create(path.rpartition("/")[0], {"metadata": {"name": POLICY}, "spec": before})
        cluster.wait(lambda: is_refused(cluster.api, kubelet), "the policy is in force again")


def is_refused(api: Api, kubelet: Kubelet) -> bool:
    """Whether somebody outside of the group cannot order."""
    label(api, kubelet, health=None)
    try:
        label(api, kubelet, health=REPLACE)
    except ApiError as error:
        return error.status == 403
    return False


@pytest.mark.parametrize(
    ("path", "change"),
    [
        (BINDING, None),
        (BINDING, {"spec": {"validationActions": ["Audit"]}}),
        (BINDING, {"spec": {"matchResources": {"objectSelector": {"matchLabels": {"a": "b"}}}}}),
        (POLICIES, None),
        (POLICIES, {"spec": {"failurePolicy": "Ignore"}}),
    ],
    ids=["not bound", "only audits", "not of all nodes", "no policy", "lets pass where it fails"],
)
def test_where_the_policy_is_not_in_force_a_label_is_a_request_only(
    cluster: Cluster,
    person: Callable[..., Api],
    kubelet: Kubelet,
    clusters: EksClusters,
    path: str,
    change: dict[str, Any] | None,
) -> None:
    label(person("ada", "nodeheal:operators"), kubelet, health=REBOOT)

    with changed(cluster, kubelet, path, change):
        [order] = pending(clusters, kubelet)

    assert (order.is_authorised, order.who) == (False, "somebody who may write nodes of cluster training")


def test_a_cluster_that_does_not_admit_the_functions_is_asked_again(plane: ControlPlane) -> None:
    with pytest.raises(NotAccepted, match="nodes of cluster training: 401"):
        KubernetesOrders(eks.clusters(plane, eks.STRANGER)).pending(HERE)


def test_a_person_orders_the_same_again_once_the_node_is_back_and_not_before(
    person: Callable[..., Api], kubelet: Kubelet, clusters: EksClusters
) -> None:
    ports, gate = memory_ports(), KubernetesGate(clusters)
    behave_as(ports, orders=KubernetesOrders(clusters))
    ada, name = person("ada", "nodeheal:operators"), machine_in(kubelet.machine.provider_id)
    ports.nodes.save(replace(eks.record(name), provider=Provider.hyperpod))

    def look() -> list[str]:
        return take_orders([HERE], ports.clock() + timedelta(minutes=1), ports, ACT)

    def given_back() -> None:
        node = stored_node(ports, name)
        gate.drain_all([node], [name])
        gate.undrain(node, gate.placement_of(node))
        ports.nodes.save(replace(node, open_incident=None))

    taken = [look()]
    label(ada, kubelet, health=REBOOT)
    taken += [look(), look()]
    given_back()
    taken.append(look())
    label(ada, kubelet, health=REBOOT)
    cast("FrozenClock", ports.clock).advance(60)
    taken.append(look())

    assert taken == [[], [name], [], [], [name]]
