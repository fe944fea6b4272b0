"""A role of AWS reaches the API server by a token that it signs itself, and may do what its access entry says."""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import pytest
from botocore.session import Session

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.api import ApiError, Endpoint, KubernetesApi
from nodeheal.adapters.kubernetes.nodes import ISOLATED_TAINT, OUT_OF_SERVICE, OUT_OF_SERVICE_MARK
from nodeheal.adapters.schedulers import schedulers
from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.domain.errors import NotAccepted
from sandbox.kubernetes.control_plane import ControlPlane
from tests.kubernetes import eks
from tests.kubernetes.cluster import Cluster

if TYPE_CHECKING:
    from nodeheal.ports.compute import Machines

REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def may(api: KubernetesApi, verb: str, resource: str, group: str = "") -> bool:
    """What the API server says of one act, as `kubectl auth can-i` asks it."""
    attributes = {"verb": verb, "resource": resource.partition("/")[0], "group": group}
    if "/" in resource:
        attributes["subresource"] = resource.partition("/")[2]
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    return bool(api.post(REVIEW, {**body, "spec": {"resourceAttributes": attributes}})["status"]["allowed"])


def test_the_functions_role_reads_nodes_and_a_strangers_is_refused(plane: ControlPlane, clusters: EksClusters) -> None:
    assert clusters.api(eks.NAME).get("/api/v1/nodes")["kind"] == "NodeList"

    with pytest.raises(ApiError) as refused:
        eks.clusters(plane, eks.STRANGER).api(eks.NAME).get("/api/v1/nodes")

    assert refused.value.status == 401


def test_a_token_that_is_refused_is_replaced_once(clusters: EksClusters) -> None:
    tokens = ["k8s-aws-v1.c3RhbGU", clusters.token(eks.NAME)]
    api = KubernetesApi(lambda: clusters.endpoint(eks.NAME), lambda: tokens.pop(0))

    assert api.get("/api/v1/nodes")["kind"] == "NodeList"
    assert tokens == []


def test_a_token_is_a_presigned_request_that_names_the_cluster(clusters: EksClusters) -> None:
    token = clusters.token(eks.NAME)

    encoded = token.removeprefix("k8s-aws-v1.")
    address = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    assert "=" not in token
    assert address.startswith("https://sts.eu-central-1.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15")
    assert "X-Amz-SignedHeaders=host%3Bx-k8s-aws-id" in address
    assert "X-Amz-Expires=60" in address


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("us-gov-west-1", "sts.us-gov-west-1.amazonaws.com"),
        ("cn-north-1", "sts.cn-north-1.amazonaws.com.cn"),
        ("eusc-de-east-1", "sts.eusc-de-east-1.amazonaws.eu"),
    ],
)
def test_a_token_is_for_the_host_of_its_partition(region: str, host: str) -> None:
    session = Session()
    session.set_credentials("AKIAFUNCTIONS", "secret")
    sts = session.create_client("sts", region_name=region)

    encoded = EksClusters(lambda _: sts).token(eks.NAME).removeprefix("k8s-aws-v1.")

    assert f"https://{host}/?".encode() in base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))


def test_the_scheduler_and_its_commands_share_one_connection(cluster: Cluster, clusters: EksClusters) -> None:
    asked: list[str] = []

    def client(service: str) -> Any:
        asked.append(service)
        return clusters._make(service)

    served = schedulers(client, client, client, lambda: datetime.now(UTC), cast("Machines", None))
    node = eks.record(cluster.node().machine.provider_id.rpartition("/")[2])

    served[SchedulerKind.KUBERNETES].gate.placement_of(node)
    served.node_commands[SchedulerKind.KUBERNETES]().look(node, "nodeheal-diag-0")

    assert asked == ["eks", "sts"]


def test_no_error_holds_the_token(clusters: EksClusters) -> None:
    token, authority = clusters.token(eks.NAME), clusters.endpoint(eks.NAME).authority
    nobody = KubernetesApi(lambda: Endpoint("https://127.0.0.1:9", authority), lambda: token)

    with pytest.raises(NotAccepted, match="has not answered") as silent:
        nobody.get("/api/v1/nodes")
    with pytest.raises(ApiError) as forbidden:
        clusters.api(eks.NAME).get("/api/v1/secrets")

    assert token not in f"{silent.value!r} {forbidden.value!r} {silent.value.__cause__!r}"


@pytest.mark.parametrize(
    ("verb", "resource", "group", "is_allowed"),
    [
        ("list", "nodes", "", True),
        ("patch", "nodes", "", True),
        ("patch", "nodes/status", "", True),  # its own conditions: test_conditions.py
        ("update", "nodes/status", "", False),
        ("delete", "nodes", "", False),
        ("list", "pods", "", True),
        ("create", "pods/eviction", "", True),
        ("delete", "pods", "", True),  # those of services: test_workloads.py
        ("deletecollection", "pods", "", False),
        ("create", "pods", "", False),
        ("get", "secrets", "", False),
        ("patch", "jobs", "batch", True),
        ("delete", "jobs", "batch", False),
        ("patch", "pytorchjobs", "kubeflow.org", True),
        ("create", "pytorchjobs", "kubeflow.org", False),
        ("patch", "workloads", "kueue.x-k8s.io", True),
        ("patch", "workloads/status", "kueue.x-k8s.io", False),
        ("delete", "workloads", "kueue.x-k8s.io", False),
        ("get", "daemonsets", "apps", False),  # but one by its name: test_neuron_recovery.py
        ("get", "statefulsets", "apps", True),
        ("patch", "statefulsets", "apps", False),
        ("get", "leaderworkersets", "leaderworkerset.x-k8s.io", True),
        ("patch", "leaderworkersets", "leaderworkerset.x-k8s.io", False),
        ("get", "clusterrolebindings", "rbac.authorization.k8s.io", False),  # but for one: test_workloads.py
        ("impersonate", "users", "", False),
        ("patch", "deployments", "apps", False),
        ("delete", "nodeclaims", "karpenter.sh", True),
        ("patch", "nodeclaims", "karpenter.sh", False),
        ("deletecollection", "nodeclaims", "karpenter.sh", False),
        ("get", "nodepools", "karpenter.sh", False),
    ],
)
def test_the_group_may_do_what_it_needs_and_nothing_else(
    clusters: EksClusters, verb: str, resource: str, group: str, is_allowed: bool
) -> None:
    assert may(clusters.api(eks.NAME), verb, resource, group) is is_allowed


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {"sagemaker.amazonaws.com/node-health-status": "UnschedulablePendingReplacement"}}},
        {"metadata": {"annotations": {"weave.works/kured-node-lock": "mine"}}},
        {"metadata": {"annotations": {"nodeheal.io/any": "mine"}}},
        {"spec": {"taints": [{"key": "nodeheal.io/isolated", "effect": "NoExecute"}]}},
        {"spec": {"taints": [{"key": "nodeheal.io/any", "effect": "NoSchedule"}]}},
        {"metadata": {"finalizers": ["nodeheal.io/stay"]}},
        {"spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]}},
        {"spec": {"taints": [OUT_OF_SERVICE]}},
        {"spec": {"taints": [OUT_OF_SERVICE, OUT_OF_SERVICE_MARK]}},
        {"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}},
    ],
    ids=json.dumps,
)
def test_of_a_node_the_group_changes_its_own_marks_only(
    cluster: Cluster, clusters: EksClusters, change: dict[str, object]
) -> None:
    node = cluster.node()

    with pytest.raises(ApiError) as refused:
        clusters.api(eks.NAME).patch(f"/api/v1/nodes/{node.name}", change)

    is_said = any(word in refused.value.message for word in ("nodeheal changes", "nodeheal sets", "a group of people"))
    assert (refused.value.status, is_said) == (403, True)


def test_of_an_isolated_node_the_group_sets_the_very_taint_out_of_service_with_its_mark_and_no_other(
    cluster: Cluster, clusters: EksClusters
) -> None:
    path = f"/api/v1/nodes/{cluster.node().name}"
    isolated = {"key": ISOLATED_TAINT, "value": "inc-1", "effect": "NoSchedule"}
    functions = clusters.api(eks.NAME)

    def refused(*taints: Mapping[str, str]) -> str:
        with pytest.raises(ApiError) as error:
            functions.patch(path, {"spec": {"taints": [*taints]}})
        assert error.value.status == 403
        return error.value.message

    functions.patch(path, {"spec": {"taints": [isolated]}})
    for other in ({"value": "maintenance"}, {"effect": "NoSchedule"}, {"key": "node.kubernetes.io/unreachable"}):
        assert "taints of nodeheal.io only" in refused(isolated, OUT_OF_SERVICE_MARK, {**OUT_OF_SERVICE, **other})
    assert "with its mark beside it" in refused(isolated, OUT_OF_SERVICE)
    cluster.api.patch(path, {"spec": {"taints": [isolated, OUT_OF_SERVICE]}})  # by a person
    assert "with its mark beside it" in refused(isolated)
    cluster.api.patch(path, {"spec": {"taints": [isolated]}})
    functions.patch(path, {"spec": {"taints": [isolated, OUT_OF_SERVICE, OUT_OF_SERVICE_MARK]}})
    functions.patch(path, {"spec": {"taints": []}})
