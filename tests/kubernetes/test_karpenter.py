"""A NodeClaim is deleted only where nodeheal has isolated its node and the operator has given it.

Karpenter itself is not here: its finalizer is taken off by hand.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.api import ApiError
from nodeheal.adapters.kubernetes.gate import KubernetesGate
from nodeheal.adapters.kubernetes.machines import MANAGED_LABEL, NODE_CLAIMS, KarpenterMachines
from nodeheal.domain.errors import PlacementRefused
from nodeheal.domain.fleet.machine import ClusterReplacement
from nodeheal.domain.fleet.node import Node
from sandbox.kubernetes.api import ApiError as SandboxApiError
from sandbox.kubernetes.control_plane import ControlPlane
from sandbox.kubernetes.kubelet import Kubelet
from tests.kubernetes import eks
from tests.kubernetes.cluster import Cluster, Object
from tests.kubernetes.node_records import record_of

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FINALIZER = "karpenter.sh/termination"
OURS = {MANAGED_LABEL: "true", "karpenter.sh/capacity-type": "on-demand"}
HOW = ClusterReplacement.delete_node_claim
KIND = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim"}
TERMINATE_AT = {"karpenter.sh/nodeclaim-termination-timestamp": "2026-11-29T00:00:00Z"}
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
# The names, scope and subresource of Karpenter's own definition, without its rules for a NodeClaim's fields.
NODE_CLAIM = {
    "metadata": {"name": "nodeclaims.karpenter.sh"},
    "spec": {
        "group": "karpenter.sh",
        "scope": "Cluster",
        "names": {"kind": "NodeClaim", "listKind": "NodeClaimList", "plural": "nodeclaims", "singular": "nodeclaim"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": ANYTHING, "status": ANYTHING}}},
            }
        ],
    },
}


class Karpenter:
    """A cluster that knows NodeClaims, and an isolated node with one."""

    def __init__(self, cluster: Cluster, clusters: EksClusters) -> None:
        self.cluster, self.api = cluster, clusters.api(eks.NAME)
        self.machines, self.gate = KarpenterMachines(clusters), KubernetesGate(clusters)
        self.kubelet = cluster.node()
        self.node = record_of(self.kubelet)

    def isolates(self) -> Node:
        self.gate.drain_all([self.node], [self.node.node_id])
        return self.node

    def claims(self, kubelet: Kubelet, **labels: str) -> str:
        """The NodeClaim of a node, held by Karpenter's finalizer; its path."""
        name = self.cluster.name("claim")
        metadata = {"name": name, "labels": labels, "finalizers": [FINALIZER]}
        self.cluster.create(NODE_CLAIMS, {**KIND, "metadata": metadata, "spec": {}})
        path = f"{NODE_CLAIMS}/{name}"
        self.cluster._stack.callback(self.ends, path)
        self.cluster.api.patch(f"{path}/status", {"status": {"providerID": kubelet.machine.provider_id}})
        return path

    def ends(self, path: str) -> None:
        """The machine has ended, and Karpenter takes its finalizer off."""
        try:
            self.cluster.api.patch(path, {"metadata": {"finalizers": None}})
        except SandboxApiError as error:
            assert error.status == 404

    def is_ending(self, path: str) -> bool:
        return "deletionTimestamp" in self.cluster.api.get(path)["metadata"]


@pytest.fixture(scope="module")
def definition(plane: ControlPlane) -> Iterator[None]:
    plane.api.create(DEFINITIONS, NODE_CLAIM)
    yield
    plane.api.delete(f"{DEFINITIONS}/nodeclaims.karpenter.sh", {})


@pytest.fixture
def karpenter(cluster: Cluster, clusters: EksClusters, definition: None) -> Karpenter:
    def are_served() -> bool:
        try:
            return bool(cluster.api.get(NODE_CLAIMS))
        except SandboxApiError:  # its storage is being made
            return False

    cluster.wait(are_served, "NodeClaims are served")
    return Karpenter(cluster, clusters)


def test_the_claim_of_an_isolated_nodes_machine_is_deleted_and_no_other(karpenter: Karpenter) -> None:
    path, other = karpenter.claims(karpenter.kubelet, **OURS), karpenter.claims(karpenter.cluster.node(), **OURS)
    node = karpenter.isolates()

    for _ in range(2):
        karpenter.machines.have_replaced(node, HOW, ())

    assert (karpenter.is_ending(path), karpenter.is_ending(other)) == (True, False)
    assert "annotations" not in karpenter.cluster.api.get(path)["metadata"]


def test_once_node_and_claim_are_gone_it_is_not_asked_again(karpenter: Karpenter) -> None:
    path, node = karpenter.claims(karpenter.kubelet, **OURS), karpenter.isolates()
    karpenter.machines.have_replaced(node, HOW, ())
    karpenter.kubelet.power_off()
    karpenter.cluster.forget(f"/api/v1/nodes/{karpenter.kubelet.name}")
    karpenter.ends(path)

    karpenter.machines.have_replaced(node, HOW, ())

    assert karpenter.api.find(NODE_CLAIMS) is not None


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ({**OURS, "karpenter.sh/capacity-type": "reserved"}, "is reserved"),
        ({"karpenter.sh/capacity-type": "on-demand"}, "lacks the label nodeheal.io/managed"),
        ({**OURS, MANAGED_LABEL: "yes"}, "lacks the label nodeheal.io/managed"),
    ],
    ids=json.dumps,
)
def test_a_claim_that_is_not_nodeheals_to_delete_is_left(
    karpenter: Karpenter, labels: dict[str, str], told: str
) -> None:
    path, node = karpenter.claims(karpenter.kubelet, **labels), karpenter.isolates()

    with pytest.raises(PlacementRefused, match=told):
        karpenter.machines.have_replaced(node, HOW, ())
    with pytest.raises(ApiError) as refused:  # and the API server refuses it, whatever our code believes
        karpenter.api.delete(path, karpenter.cluster.api.get(path)["metadata"]["uid"])

    assert (refused.value.status, karpenter.is_ending(path)) == (403, False)


@pytest.mark.parametrize("change", [{"open_incident": "inc-other"}, {"open_incident": None}])
def test_a_node_that_is_not_isolated_for_this_incident_keeps_its_machine(
    karpenter: Karpenter, change: dict[str, Any]
) -> None:
    path = karpenter.claims(karpenter.kubelet, **OURS)
    karpenter.isolates()

    with pytest.raises(PlacementRefused, match="is not isolated for"):
        karpenter.machines.have_replaced(Node(**{**vars(karpenter.node), **change}), HOW, ())

    assert not karpenter.is_ending(path)


def test_a_node_that_a_person_has_keeps_its_machine(karpenter: Karpenter) -> None:
    path = karpenter.claims(karpenter.kubelet, **OURS)
    karpenter.cluster.plane.kubectl("cordon", karpenter.kubelet.name)

    with pytest.raises(PlacementRefused, match="kubectl"):
        karpenter.machines.have_replaced(karpenter.node, HOW, ())

    assert not karpenter.is_ending(path)


def test_what_karpenter_did_not_make_or_another_way_is_refused(karpenter: Karpenter) -> None:
    node = karpenter.isolates()

    with pytest.raises(PlacementRefused, match="Karpenter has no NodeClaim of i-"):
        karpenter.machines.have_replaced(node, HOW, ())
    with pytest.raises(PlacementRefused, match="power_down, which Kubernetes does not know"):
        karpenter.machines.have_replaced(node, ClusterReplacement.power_down, ())


@pytest.mark.parametrize(
    ("suffix", "change"),
    [
        ("", {"metadata": {"annotations": TERMINATE_AT}}),
        ("", {"metadata": {"labels": {MANAGED_LABEL: "true"}}}),
        ("", {"metadata": {"finalizers": None}}),
        ("/status", {"status": {"providerID": "aws:///us-east-1a/i-1"}}),
    ],
    ids=json.dumps,
)
def test_the_functions_change_no_claim(karpenter: Karpenter, suffix: str, change: Object) -> None:
    path = karpenter.claims(karpenter.kubelet, **OURS)

    with pytest.raises(ApiError) as refused:
        karpenter.api.patch(f"{path}{suffix}", change)

    assert refused.value.status == 403


@pytest.mark.parametrize(
    ("options", "status"), [({}, 403), ({"preconditions": {"uid": "another"}}, 409)], ids=["any", "another"]
)
def test_the_functions_delete_no_claim_that_they_have_not_read(
    karpenter: Karpenter, options: Object, status: int
) -> None:
    path = karpenter.claims(karpenter.kubelet, **OURS)

    with pytest.raises(ApiError) as refused:
        karpenter.api._call("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})

    assert (refused.value.status, karpenter.is_ending(path)) == (status, False)
