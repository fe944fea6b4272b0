"""The controllers of training jobs are real ones: what suspends a gang, and who undoes it."""

from collections.abc import Callable
from typing import Any

import pytest

from sandbox.kubernetes.api import ApiError
from sandbox.kubernetes.control_plane import ControlPlane
from tests.kubernetes.cluster import Cluster, shell

PYTORCH_JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


def pytorch_job(name: str, container: str = "pytorch") -> dict[str, Any]:
    template = {"spec": {"containers": [{**shell("sleep 60"), "name": container}]}}
    replicas = {role: {"replicas": 1, "template": template} for role in ("Master", "Worker")}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": replicas},
    }


def job_set(name: str, replicas: int = 2) -> dict[str, Any]:
    pods = {"spec": {"restartPolicy": "Never", "containers": [shell("sleep 60")]}}
    job = {"spec": {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": pods}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [{"name": "ranks", "replicas": replicas, "template": job}]},
    }


def queued_job(name: str, queue: str) -> dict[str, Any]:
    container = {**shell("sleep 60"), "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


@pytest.mark.usefixtures("plane_with_jobs")
def test_a_suspended_pytorch_jobs_pods_are_deleted_and_made_again_when_it_resumes(cluster: Cluster) -> None:
    name = cluster.name("pytorch")
    pods = f"training.kubeflow.org/job-name={name}"
    cluster.create(PYTORCH_JOBS, pytorch_job(name))
    cluster.wait(lambda: len(cluster.pods(pods)) == 2, "both ranks have a pod")

    cluster.api.patch(f"{PYTORCH_JOBS}/{name}", {"spec": {"runPolicy": {"suspend": True}}})

    cluster.wait(lambda: not cluster.pods(pods), "the pods are deleted")
    cluster.api.patch(f"{PYTORCH_JOBS}/{name}", {"spec": {"runPolicy": {"suspend": False}}})
    cluster.wait(lambda: len(cluster.pods(pods)) == 2, "both ranks have a pod again")


@pytest.mark.usefixtures("plane_with_jobs")
def test_a_suspended_job_sets_pods_are_deleted_and_made_again_when_it_resumes(cluster: Cluster) -> None:
    name = cluster.name("jobset")
    pods = f"jobset.sigs.k8s.io/jobset-name={name}"
    cluster.create(JOB_SETS, job_set(name))
    cluster.wait(lambda: len(cluster.pods(pods)) == 2, "both jobs have a pod")

    cluster.api.patch(f"{JOB_SETS}/{name}", {"spec": {"suspend": True}})

    cluster.wait(lambda: not cluster.pods(pods), "the pods are deleted")
    cluster.api.patch(f"{JOB_SETS}/{name}", {"spec": {"suspend": False}})
    cluster.wait(lambda: len(cluster.pods(pods)) == 2, "both jobs have a pod again")


@pytest.mark.usefixtures("plane_with_jobs")
@pytest.mark.parametrize(
    ("collection", "body", "reason"),
    [
        (
            PYTORCH_JOBS,
            lambda name: pytorch_job(name, container="main"),
            "must have at least one container with name pytorch",
        ),
        (JOB_SETS, lambda name: job_set(f"{name}-{'x' * 60}"), "JobSet name is too long"),
    ],
)
def test_the_controllers_webhooks_refuse_what_they_cannot_run(
    cluster: Cluster, collection: str, body: Callable[[str], dict[str, Any]], reason: str
) -> None:
    with pytest.raises(ApiError) as refused:
        cluster.api.create(collection, body(cluster.name("refused")))

    assert "admission webhook" in str(refused.value)
    assert reason in str(refused.value)


@pytest.mark.usefixtures("plane_with_kueue")
def test_kueue_undoes_a_suspend_of_an_admitted_job_and_evicts_a_workload_that_is_not_active(
    cluster: Cluster, plane: ControlPlane
) -> None:
    queue, name = queue_of(cluster), cluster.name("job")
    uid = cluster.create(JOBS, queued_job(name, queue))["metadata"]["uid"]
    job, workloads = f"{JOBS}/{name}", f"{KUEUE}/namespaces/default/workloads"

    def runs() -> bool:
        return not cluster.api.get(job)["spec"]["suspend"]

    cluster.wait(runs, "Kueue has admitted the job")

    assert cluster.api.patch(job, {"spec": {"suspend": True}})["spec"]["suspend"]

    cluster.wait(runs, "Kueue has undone the suspend")
    [workload] = cluster.api.get(workloads, labelSelector=f"kueue.x-k8s.io/job-uid={uid}")["items"]
    path = f"{workloads}/{workload['metadata']['name']}"
    cluster.api.patch(path, {"spec": {"active": False}})
    cluster.wait(lambda: "Evicted" in true_conditions(cluster, path), "the workload is evicted")
    cluster.wait(lambda: not runs() and not cluster.pods(f"job-name={name}"), "the job has no pods")


def queue_of(cluster: Cluster) -> str:
    """A queue with room for eight processors; its name, which its ClusterQueue has as well."""
    queue = cluster.name("queue")
    resources = [{"name": "cpu", "nominalQuota": 8}]
    group = {"coveredResources": ["cpu"], "flavors": [{"name": queue, "resources": resources}]}
    cluster.create(f"{KUEUE}/resourceflavors", kueue("ResourceFlavor", queue, {}))
    cluster.create(
        f"{KUEUE}/clusterqueues", kueue("ClusterQueue", queue, {"namespaceSelector": {}, "resourceGroups": [group]})
    )
    local = f"{KUEUE}/namespaces/default/localqueues"
    cluster.create(local, kueue("LocalQueue", queue, {"clusterQueue": queue}))
    return queue


def kueue(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}


def true_conditions(cluster: Cluster, path: str) -> set[str]:
    return {one["type"] for one in cluster.api.get(path)["status"]["conditions"] if one["status"] == "True"}
