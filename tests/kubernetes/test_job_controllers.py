"""The controllers of training jobs are real ones: what suspends a gang, and who undoes it."""

from collections.abc import Callable
from typing import Any

import pytest

from sandbox.kubernetes.api import ApiError
from sandbox.kubernetes.control_plane import ControlPlane
from tests.kubernetes.cluster import Cluster, shell
from tests.kubernetes.job_controllers import (
    JOB_SETS,
    JOBS,
    KUEUE,
    PYTORCH_JOBS,
    job_set,
    pytorch_job,
    queue_of,
    true_conditions,
)


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
