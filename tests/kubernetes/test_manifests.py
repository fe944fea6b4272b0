"""A person's manifest is tried and created by a real API server, with that person's own rights."""

from typing import Any

import pytest

from nodeheal.adapters.kubernetes.api import ApiError
from nodeheal.adapters.kubernetes.manifests import KubernetesManifests
from nodeheal.contract.vocabulary import Provider, SchedulerKind
from sandbox.kubernetes.api import ApiError as NotThere
from sandbox.kubernetes.control_plane import ControlPlane
from sandbox.kubernetes.kubelet import Kubelet
from tests.kubernetes import eks
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.job_controllers import PYTORCH_JOBS, pytorch_job
from tests.support.builders import node

RULES = [
    {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]},
]


@pytest.fixture
def manifests(plane_with_jobs: ControlPlane) -> KubernetesManifests:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "researcher-jobs"}}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": eks.OPERATORS}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "researcher-jobs"}
    plane_with_jobs.apply(
        {**role, "kind": "ClusterRole", "rules": RULES},
        {**role, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]},
    )
    return KubernetesManifests(eks.clusters(plane_with_jobs, eks.OPERATOR))


def recorded(kubelet: Kubelet, cluster: Cluster) -> Any:
    """Our record of its node."""
    machine = cluster.api.get(f"/api/v1/nodes/{kubelet.name}")["spec"]["providerID"].rpartition("/")[2]
    return node(machine, scheduler=SchedulerKind.KUBERNETES, cluster=eks.NAME, provider=Provider.ec2)


def test_a_job_is_tried_without_a_trace_and_then_created_on_the_chosen_nodes_only(
    cluster: Cluster, manifests: KubernetesManifests
) -> None:
    cluster.node()
    chosen, name = cluster.node(), cluster.name("gang")
    nodes = [recorded(chosen, cluster)]

    tried = manifests.create(eks.NAME, pytorch_job(name), nodes, is_trial=True)

    assert tried == f"PyTorchJob default/{name}"
    with pytest.raises(NotThere):
        cluster.api.get(f"{PYTORCH_JOBS}/{name}")
    assert manifests.create(eks.NAME, pytorch_job(name), nodes, is_trial=False) == tried
    pods = f"training.kubeflow.org/job-name={name}"
    cluster.wait(lambda: len(cluster.pods(pods)) == 2, "both ranks have a pod")
    cluster.wait(
        lambda: {pod["spec"].get("nodeName") for pod in cluster.pods(pods)} == {chosen.name}, "both are on the node"
    )
    with pytest.raises(ApiError, match="already exists"):
        manifests.create(eks.NAME, pytorch_job(name), nodes, is_trial=False)
    cluster.forget(f"{PYTORCH_JOBS}/{name}")


def test_what_the_server_refuses_is_said_in_its_words(cluster: Cluster, manifests: KubernetesManifests) -> None:
    wrong = {**pytorch_job(cluster.name("gang")), "spec": {"pytorchReplicaSpecs": "many"}}
    with pytest.raises(ApiError, match="pytorchReplicaSpecs"):
        manifests.create(eks.NAME, wrong, [], is_trial=True)


def test_a_person_creates_what_the_cluster_lets_them_and_no_more(
    cluster: Cluster, manifests: KubernetesManifests
) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": cluster.name("job")},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}}},
    }
    with pytest.raises(ApiError, match="403"):
        manifests.create(eks.NAME, job, [], is_trial=True)
