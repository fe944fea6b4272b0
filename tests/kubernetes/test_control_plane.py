"""The control plane is a real one: RBAC, NodeRestriction, and the controllers that judge a node by its lease."""

import time
from typing import Any

import pytest

from sandbox.kubernetes.api import MERGE, STRATEGIC_MERGE, Api, ApiError
from tests.kubernetes.cluster import Cluster

NODES = "/api/v1/nodes"
UNREACHABLE = "node.kubernetes.io/unreachable"


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"providerID": "aws:///us-east-1a/i-1"}}


def refusal(api: Api, method: str, path: str, body: dict[str, Any], kind: str = MERGE) -> tuple[int, str]:
    with pytest.raises(ApiError) as refused:
        api.call(method, path, body, kind if method == "PATCH" else "application/json")
    return refused.value.status, str(refused.value)


def test_the_admin_reads_everything_and_a_user_without_a_role_nothing(cluster: Cluster) -> None:
    found = {one["metadata"]["name"] for one in cluster.told("get", "namespaces")["items"]}

    assert {"default", "kube-system", "kube-node-lease"} <= found
    status, reason = refusal(cluster.plane.api_of("ada", ["researchers"]), "GET", NODES, {})
    assert (status, 'User "ada" cannot list resource "nodes"' in reason) == (403, True)


def test_a_kubelet_registers_its_own_node_and_no_other(cluster: Cluster) -> None:
    own, other = cluster.name("node"), cluster.name("node")
    kubelet = cluster.plane.api_of_node(own)

    kubelet.create(NODES, node(own))

    status, reason = refusal(kubelet, "POST", NODES, node(other))
    assert (status, f'node "{own}" is not allowed to modify node "{other}"' in reason) == (403, True)
    cluster.create(NODES, node(other))
    status, _ = refusal(kubelet, "PATCH", f"{NODES}/{other}/status", {"status": {"capacity": {"cpu": "1"}}})
    assert status == 403
    cluster.forget(f"{NODES}/{own}")


def test_a_kubelet_may_uncordon_its_node_and_not_take_a_taint_off(cluster: Cluster) -> None:
    name = cluster.name("node")
    taint = {"key": "nodeheal.io/broken", "value": "xid-79", "effect": "NoSchedule"}
    cluster.create(NODES, {**node(name), "spec": {"taints": [taint], "unschedulable": True}})
    kubelet = cluster.plane.api_of_node(name)

    kubelet.patch(f"{NODES}/{name}", {"spec": {"unschedulable": None}})
    status, reason = refusal(kubelet, "PATCH", f"{NODES}/{name}", {"spec": {"taints": []}})

    assert (status, "is not allowed to modify taints" in reason) == (403, True)
    assert "unschedulable" not in cluster.api.get(f"{NODES}/{name}")["spec"]
    assert ("nodeheal.io/broken", "NoSchedule") in cluster.taints(name)


def test_a_silent_node_is_unknown_and_unreachable_until_it_is_back(cluster: Cluster) -> None:
    kubelet = cluster.node()
    cluster.node()  # one that is ready: see the next test

    kubelet.power_off()

    cluster.wait(lambda: cluster.condition(kubelet.name) == "Unknown", "the node is Unknown")
    both = {(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")}
    cluster.wait(lambda: both <= cluster.taints(kubelet.name), "the node has the taints")
    kubelet.power_on()
    cluster.wait(lambda: cluster.is_ready(kubelet.name), "the node is back")


def test_where_no_node_is_ready_none_gets_the_taint_that_evicts(cluster: Cluster) -> None:
    kubelet = cluster.node()

    kubelet.power_off()

    cluster.wait(lambda: (UNREACHABLE, "NoSchedule") in cluster.taints(kubelet.name), "the node is unreachable")
    time.sleep(3)  # three rounds of the controller, which else adds it in the next one
    assert (UNREACHABLE, "NoExecute") not in cluster.taints(kubelet.name)
    cluster.node()
    cluster.wait(lambda: (UNREACHABLE, "NoExecute") in cluster.taints(kubelet.name), "another node is ready")


def test_a_token_that_is_bound_to_a_pod_names_the_pods_node(cluster: Cluster) -> None:
    kubelet = cluster.node()
    pod = cluster.run(kubelet.name, "sleep 60")

    token = cluster.plane.token("default", pod=pod)

    review = cluster.plane.api_with_token(token).create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    extra = review["status"]["userInfo"]["extra"]
    assert extra["authentication.kubernetes.io/pod-name"] == [pod]
    assert extra["authentication.kubernetes.io/node-name"] == [kubelet.name]
    assert (
        cluster.api.get(f"{NODES}/{kubelet.name}")["metadata"]["uid"] in extra["authentication.kubernetes.io/node-uid"]
    )


def test_a_condition_of_our_own_stays_beside_the_kubelets(cluster: Cluster) -> None:
    kubelet = cluster.node()
    broken = {"type": "nodeheal.io/Accelerator", "status": "True", "reason": "Xid79"}

    cluster.api.patch(f"{NODES}/{kubelet.name}/status", {"status": {"conditions": [broken]}}, STRATEGIC_MERGE)
    kubelet.reboot(boot_seconds=0)

    cluster.wait(lambda: cluster.boot_id(kubelet.name) == kubelet.boot_id, "the node has rebooted")
    assert cluster.condition(kubelet.name, "nodeheal.io/Accelerator") == "True"
