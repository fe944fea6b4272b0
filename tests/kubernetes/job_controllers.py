"""Jobs of Kubernetes' job controllers."""

from typing import Any

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
