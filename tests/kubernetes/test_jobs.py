"""`nodeheal jobs list` asks a real API server with an operator's own credentials."""

from typing import Any

import pytest

from nodeheal.adapters.kubernetes.api import ApiError
from nodeheal.adapters.kubernetes.jobs import KubernetesJob, KubernetesJobs
from nodeheal.adapters.kubernetes.notes import AUTO_RESUME, OWNER_EMAIL, RESTARTS
from nodeheal.contract import names
from sandbox.kubernetes.control_plane import ControlPlane
from tests.kubernetes import eks
from tests.kubernetes.cluster import Cluster, shell
from tests.kubernetes.job_controllers import JOB_SETS, JOBS, PYTORCH_JOBS, job_set, pytorch_job

# What an operator needs to see all kinds: docs/adr/0097.
RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list"]},
    {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["list"]},
    {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs", "mpijobs"], "verbs": ["list"]},
    {"apiGroups": ["trainer.kubeflow.org"], "resources": ["trainjobs"], "verbs": ["list"]},
    {"apiGroups": ["ray.io"], "resources": ["rayjobs"], "verbs": ["list"]},
    {"apiGroups": ["leaderworkerset.x-k8s.io"], "resources": ["leaderworkersets"], "verbs": ["list"]},
]


@pytest.fixture
def jobs(plane_with_jobs: ControlPlane) -> KubernetesJobs:
    """As the command has them."""
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "sre-jobs"}}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": eks.OPERATORS}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "sre-jobs"}
    plane_with_jobs.apply(
        {**role, "kind": "ClusterRole", "rules": RULES},
        {**role, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]},
    )
    return KubernetesJobs(eks.clusters(plane_with_jobs, eks.OPERATOR))


def job(name: str, script: str, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [shell(script)]}}
    return {"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": template, **spec}}


def one(jobs: KubernetesJobs, kind: str, name: str) -> KubernetesJob:
    [found] = [each for each in jobs.all(eks.NAME) if (each.kind, each.namespace, each.name) == (kind, "default", name)]
    return found


def test_jobs_are_listed_by_their_root_owners_with_the_nodes_of_their_pods(
    cluster: Cluster, jobs: KubernetesJobs
) -> None:
    node, gang, whole = cluster.node(), cluster.name("gang"), cluster.name("set")
    notes = {AUTO_RESUME: "true", RESTARTS: "2", OWNER_EMAIL: "Ada <ada@example.com>"}
    body = pytorch_job(gang)
    body["metadata"]["annotations"] = notes
    cluster.create(PYTORCH_JOBS, body)
    cluster.create(JOB_SETS, job_set(whole))
    cluster.wait(lambda: len(one(jobs, "PyTorchJob", gang).nodes) == 2, "both pods run")
    cluster.wait(lambda: len(one(jobs, "JobSet", whole).nodes) == 2, "both pods run")

    found, bare = one(jobs, "PyTorchJob", gang), one(jobs, "JobSet", whole)

    assert (found.state, found.nodes, found.is_over) == ("RUNNING", (node.name, node.name), False)
    assert (found.restarts, found.owner, found.consents) == (2, "ada@example.com", True)
    assert (bare.state, bare.restarts, bare.owner, bare.consents) == ("RUNNING", 0, "", False)
    assert not [each for each in jobs.all(eks.NAME) if each.kind == "Job" and each.name.startswith(whole)]
    assert found.created_at <= bare.created_at


@pytest.mark.parametrize(
    ("script", "spec", "state"),
    [
        ("true", {}, "COMPLETED"),
        ("false", {}, "FAILED"),
        ("true", {"suspend": True}, "SUSPENDED"),
        ("true", {"parallelism": 0}, "PENDING"),
    ],
)
def test_a_job_is_in_the_state_that_kubernetes_says(
    cluster: Cluster, jobs: KubernetesJobs, script: str, spec: dict[str, Any], state: str
) -> None:
    cluster.node()
    name = cluster.name("job")
    cluster.create(JOBS, job(name, script, **spec))

    cluster.wait(lambda: one(jobs, "Job", name).state == state, f"the job is {state}")


def test_nodeheals_own_jobs_are_not_listed(cluster: Cluster, jobs: KubernetesJobs) -> None:
    name = cluster.name("command")
    own = f"/apis/batch/v1/namespaces/{names.KUBERNETES_NAMESPACE}/jobs"
    cluster.create(own, job(name, "true", suspend=True))

    assert name not in {each.name for each in jobs.all(eks.NAME)}


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(
    ("key", "why"),
    [(eks.STRANGER, "401 Unauthorized: the caller's role has no access entry there"), (eks.FUNCTIONS, "cannot list")],
    ids=["no entry", "no right"],
)
def test_who_may_not_list_them_is_refused_in_words(plane: ControlPlane, key: str, why: str) -> None:
    with pytest.raises(ApiError, match=why):
        KubernetesJobs(eks.clusters(plane, key)).all(eks.NAME)
