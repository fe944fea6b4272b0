"""The sandbox's kubelet does what a kubelet does, with a node's rights: the API server refuses none of its requests."""

from typing import Any

from sandbox.kubernetes.containers import UNSEEN_END
from tests.kubernetes.cluster import Cluster, end_of, is_on, shell

JOBS = "/apis/batch/v1/namespaces/default/jobs"


def job(name: str, node: str, script: str) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "nodeSelector": is_on(node), "containers": [shell(script)]}
    return {"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": {"spec": pod}}}


def status_of(cluster: Cluster, name: str) -> dict[str, Any]:
    return dict(cluster.api.get(f"{JOBS}/{name}")["status"])


def test_a_jobs_pod_runs_on_its_node_and_its_exit_code_arrives(cluster: Cluster) -> None:
    node = cluster.node()
    good, bad = cluster.name("job"), cluster.name("job")

    cluster.create(JOBS, job(good, node.name, "echo step 1"))
    cluster.create(JOBS, job(bad, node.name, "exit 3"))

    cluster.wait(lambda: status_of(cluster, good).get("succeeded") == 1, "the first job has succeeded")
    cluster.wait(lambda: status_of(cluster, bad).get("failed") == 1, "the second job has failed")
    [pod] = cluster.pods(f"job-name={bad}")
    assert (pod["spec"]["nodeName"], end_of(pod)["exitCode"]) == (node.name, 3)
    [pod] = cluster.pods(f"job-name={good}")
    assert "step 1" in node.log_of(pod["metadata"]["name"], "main").read_text()
    assert node.problems == []


def test_a_taint_of_the_registration_keeps_pods_off_until_it_is_taken_away(cluster: Cluster) -> None:
    node = cluster.node({"key": "nodeheal.io/unchecked", "value": "new", "effect": "NoSchedule"})
    name = cluster.name("job")

    cluster.create(JOBS, job(name, node.name, "true"))

    cluster.wait(lambda: "Unschedulable" in str(cluster.pods(f"job-name={name}")), "the scheduler finds no node")
    cluster.api.patch(f"/api/v1/nodes/{node.name}", {"spec": {"taints": None}})
    cluster.wait(lambda: status_of(cluster, name).get("succeeded") == 1, "the job has succeeded")


def test_a_deleted_pod_is_asked_to_end_and_has_its_grace(cluster: Cluster) -> None:
    node = cluster.node()
    name = cluster.run(node.name, "trap 'sleep 0.5; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.1; done")
    output = node.log_of(name, "main")
    cluster.wait(lambda: output.exists() and "ready" in output.read_text(), "the pod runs")

    cluster.plane.kubectl("delete", "pod", name, "--wait=false")

    cluster.wait(lambda: not cluster.pod(name), "the pod is gone")
    assert output.read_text().endswith("saved\n")
    assert node.problems == []


def test_a_pod_that_does_not_end_is_killed_after_its_grace(cluster: Cluster) -> None:
    node = cluster.node()
    name = cluster.run(node.name, "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    output = node.log_of(name, "main")
    cluster.wait(lambda: output.exists() and "ready" in output.read_text(), "the pod runs")

    cluster.plane.kubectl("delete", "pod", name, "--grace-period=1", "--wait=false")

    cluster.wait(lambda: not cluster.pod(name), "the pod is gone")


def test_kubectl_drain_evicts_the_nodes_pods(cluster: Cluster) -> None:
    node = cluster.node()
    name = cluster.name("job")
    cluster.create(JOBS, job(name, node.name, "sleep 60"))
    cluster.wait(lambda: "running" in str(cluster.pods(f"job-name={name}")), "the pod runs")

    cluster.plane.kubectl("drain", node.name, "--timeout=30s", "--grace-period=2")

    assert cluster.api.get(f"/api/v1/nodes/{node.name}")["spec"]["unschedulable"]
    running = cluster.api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={node.name}")["items"]
    assert [pod["metadata"]["name"] for pod in running if pod["status"]["phase"] == "Running"] == []
    assert node.problems == []


def test_a_reboot_has_a_new_boot_id_and_the_pods_of_before_have_failed(cluster: Cluster) -> None:
    node = cluster.node()
    before = node.boot_id
    name = cluster.run(node.name, "sleep 60")
    cluster.wait(lambda: cluster.phase(name) == "Running", "the pod runs")

    node.reboot(boot_seconds=0.5)

    cluster.wait(lambda: cluster.phase(name) == "Failed", "the pod has failed")
    assert end_of(cluster.pod(name))["exitCode"] == UNSEEN_END
    assert before != cluster.boot_id(node.name) == node.boot_id


def test_a_pod_that_restarts_counts_its_restarts(cluster: Cluster) -> None:
    node = cluster.node()
    name = cluster.run(node.name, "exit 7", restartPolicy="OnFailure")

    cluster.wait(
        lambda: any(one["restartCount"] for one in cluster.pod(name)["status"].get("containerStatuses", [])),
        "the container has started again",
    )
    [status] = cluster.pod(name)["status"]["containerStatuses"]
    assert status["lastState"]["terminated"]["exitCode"] == 7


# Up to 20 s: so often the controller looks for such pods.
def test_a_pod_on_a_node_without_power_stays_until_the_node_is_out_of_service(cluster: Cluster) -> None:
    node = cluster.node()
    name = cluster.run(node.name, "sleep 60")
    cluster.wait(lambda: cluster.phase(name) == "Running", "the pod runs")
    node.power_off()
    cluster.wait(lambda: cluster.condition(node.name) == "Unknown", "the node is Unknown")
    cluster.plane.kubectl("delete", "pod", name, "--wait=false")

    assert "deletionTimestamp" in cluster.pod(name)["metadata"]
    cluster.plane.kubectl("taint", "node", node.name, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")

    cluster.wait(lambda: not cluster.pod(name), "the pod is gone")
