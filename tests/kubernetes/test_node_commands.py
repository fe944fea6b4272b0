"""A command reaches a node as a Job of the chart's pod, runs once, and nothing else can be run that way."""

import base64
import copy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.api import ApiError
from nodeheal.adapters.kubernetes.node_commands import TEMPLATE, KubernetesNodeCommands, _is_of
from nodeheal.contract import names
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import Node
from nodeheal.ports.commands import Command, CommandStatus
from sandbox.kubernetes.eks import agent_config
from sandbox.toml import toml
from tests.kubernetes import eks
from tests.kubernetes.cluster import Cluster, Object
from tests.kubernetes.node_records import record_of

JOBS = f"/apis/batch/v1/namespaces/{names.KUBERNETES_NAMESPACE}/jobs"
TEMPLATES = f"/api/v1/namespaces/{names.KUBERNETES_NAMESPACE}/podtemplates"
BOOT = "6f1c9a1e-0000-4000-8000-000000000001"
LINE = f"NVRM: Xid (PCI:0000:b9:00): 79, {names.DRILL_MARK}"
INJECT = Command("inject-fault", {"Line": base64.urlsafe_b64encode(LINE.encode()).decode().rstrip("=")})


class Machine:
    """A node of a pool, and the way by which the functions send commands to it."""

    def __init__(self, cluster: Cluster, clusters: EksClusters, folder: Path) -> None:
        self.cluster, self.api = cluster, clusters.api(eks.NAME)
        self.kubelet = cluster.node(labels={names.KUBERNETES_POOL_LABEL: "h100"})
        self.logs = folder / self.kubelet.name / "host" / "var" / "log"
        self.logs.mkdir(parents=True, exist_ok=True)
        (self.logs / "boot_id").write_text(BOOT)
        (self.logs / "kernel.log").touch()
        self.node = record_of(self.kubelet, boot_id=BOOT)
        self.commands = KubernetesNodeCommands(clusters, lambda: datetime.now(UTC))

    def send(self, command: Command = INJECT, node: Node | None = None) -> str:
        return self.commands.send(node or self.node, command, _SOON)

    def result(self, name: str) -> CommandStatus:
        self.cluster.wait(lambda: self.commands.look(self.node, name).state != "PENDING", f"{name} has ended")
        return self.commands.look(self.node, name)


_SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)


@pytest.fixture
def machine(cluster: Cluster, clusters: EksClusters, tmp_path: Path) -> Machine:
    cluster.plane.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "nodeheal-agent", "namespace": names.KUBERNETES_NAMESPACE},
            "data": {"agent.toml": toml(agent_config(eks.NAME, "http://127.0.0.1:9", 2, ["disk"]))},
        }
    )
    return Machine(cluster, clusters, tmp_path)


def test_a_command_runs_on_its_node_once_however_often_it_is_sent(machine: Machine) -> None:
    sent = {machine.send() for _ in range(2)}

    status = machine.result(*sent)
    log = (machine.logs / "kernel.log").read_text()
    assert (status.state, status.exit_code, LINE in status.output, log.count(LINE)) == ("SUCCEEDED", 0, True, 1)


def test_a_node_that_is_out_of_service_takes_its_commands(machine: Machine) -> None:
    machine.cluster.plane.kubectl("cordon", machine.kubelet.name)
    machine.cluster.plane.kubectl("taint", "node", machine.kubelet.name, "nodeheal.io/isolated=inc:NoExecute")

    assert machine.result(machine.send()).state == "SUCCEEDED"


def test_a_command_for_another_boot_is_refused_by_the_node(machine: Machine) -> None:
    status = machine.result(machine.send(node=record_of(machine.kubelet, boot_id="another-boot")))

    assert (status.state, status.exit_code, status.has_script_failed) == ("FAILED", 3, True)


def test_what_has_no_job_is_not_sent(machine: Machine) -> None:
    with pytest.raises(NotFound, match="no Job for reboot-node"):
        machine.send(Command("reboot-node"))


def test_a_command_that_the_cluster_does_not_know_is_unknown(machine: Machine) -> None:
    assert machine.commands.look(machine.node, "nodeheal-diag-0").state == "UNKNOWN"


def _job(machine: Machine, pod: Object, **spec: Any) -> Object:
    """A Job as the functions make it, but for what is given."""
    container = pod["containers"][0]
    own = {**pod, "nodeName": machine.kubelet.name}
    own["containers"] = [{"args": ["diag"], **container}, *pod["containers"][1:]]
    once = {"backoffLimit": 0, "activeDeadlineSeconds": 60}
    return {"metadata": {"name": machine.cluster.name("job")}, "spec": {**once, "template": {"spec": own}, **spec}}


def _with(pod: Object, **changes: Any) -> Object:
    [container] = pod["containers"]
    return {**pod, "containers": [{**container, **changes}]}


_HOST = {"name": "host", "hostPath": {"path": "/"}}
_SECRET = {"secretKeyRef": {"name": "any", "key": "token"}}


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: _with(pod, image="attacker/shell"),
        lambda pod: _with(pod, command=["sh", "-c", "reboot"]),
        lambda pod: _with(pod, lifecycle={"postStart": {"exec": {"command": ["sh"]}}}),
        lambda pod: _with(
            pod, volumeMounts=[*pod["containers"][0]["volumeMounts"], {"name": "tmp", "mountPath": "/x"}]
        ),
        lambda pod: _with(pod, env=[*pod["containers"][0]["env"], {"name": "LD_PRELOAD", "value": "/tmp/x.so"}]),
        lambda pod: _with(pod, env=[*pod["containers"][0]["env"], {"name": names.ACCUSED, "valueFrom": _SECRET}]),
        lambda pod: _with(pod, env=[]),
        lambda pod: {**pod, "volumes": [*pod["volumes"], _HOST]},
        lambda pod: {**pod, "serviceAccountName": "default"},
        lambda pod: {**pod, "automountServiceAccountToken": True},
        lambda pod: {**pod, "initContainers": []},
        lambda pod: _with(pod, args=["reboot"]),
        lambda pod: {**pod, "containers": [*pod["containers"], {**pod["containers"][0], "name": "second"}]},
    ],
    ids=[
        *("image", "command", "hook", "mount", "preload", "secret", "no-variables"),
        *("volume", "account", "token", "no-init", "reboot", "second-container"),
    ],
)
def test_the_functions_run_no_other_pod(machine: Machine, change: Any) -> None:
    pod = copy.deepcopy(machine.cluster.api.get(f"{TEMPLATES}/{TEMPLATE}")["template"]["spec"])

    with pytest.raises(ApiError) as refused:
        machine.api.post(JOBS, _job(machine, change(pod)))

    assert (refused.value.status, "nodeheal-node-commands" in refused.value.message) == (403, True)


def test_the_functions_run_no_job_in_another_namespace(machine: Machine) -> None:
    pod = machine.cluster.api.get(f"{TEMPLATES}/{TEMPLATE}")["template"]["spec"]

    with pytest.raises(ApiError) as refused:
        machine.api.post(JOBS.replace(names.KUBERNETES_NAMESPACE, "default"), _job(machine, dict(pod)))

    assert refused.value.status == 403


def test_a_researcher_can_neither_send_commands_nor_read_them(machine: Machine) -> None:
    plane = machine.cluster.plane
    researcher = plane.user("ada")
    plane.kubectl(
        "create", "rolebinding", machine.cluster.name("edit"), "--clusterrole=edit", "--user=ada", "-n", "default"
    )

    answers = {
        verb: machine.cluster.can_i(*verb.split(), "-n", names.KUBERNETES_NAMESPACE, user=researcher)
        for verb in ("create jobs", "get jobs", "get pods", "patch configmaps", "create podtemplates")
    }

    assert {verb for verb, answer in answers.items() if answer != "no"} == set()


@pytest.mark.parametrize(
    "spec",
    [
        {"parallelism": 20},
        {"completions": 2},
        {"backoffLimit": 100},
        {"activeDeadlineSeconds": None},
    ],
    ids=str,
)
def test_a_command_runs_once_and_not_for_ever(machine: Machine, spec: dict[str, Any]) -> None:
    pod = machine.cluster.api.get(f"{TEMPLATES}/{TEMPLATE}")["template"]["spec"]

    with pytest.raises(ApiError) as refused:
        machine.api.post(JOBS, _job(machine, dict(pod), **spec))

    assert (refused.value.status, "a command runs once" in refused.value.message) == (403, True)


def test_a_pod_that_a_kubelet_has_made_up_is_no_answer(machine: Machine) -> None:
    name = machine.send()
    assert machine.result(name).state == "SUCCEEDED"
    other = machine.cluster.node()
    job = machine.cluster.api.get(f"{JOBS}/{name}")
    forged = {
        "metadata": {
            "name": machine.cluster.name("mirror"),
            "namespace": names.KUBERNETES_NAMESPACE,
            "labels": {"batch.kubernetes.io/job-name": name},
            "annotations": {"kubernetes.io/config.mirror": "any"},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "name": other.name,
                    "uid": machine.cluster.api.get(f"/api/v1/nodes/{other.name}")["metadata"]["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": {"nodeName": other.name, "containers": [{"name": "main", "image": "none", "command": ["true"]}]},
    }
    other.api.create(f"/api/v1/namespaces/{names.KUBERNETES_NAMESPACE}/pods", forged)

    found = machine.cluster.api.get(
        f"/api/v1/namespaces/{names.KUBERNETES_NAMESPACE}/pods", labelSelector=f"batch.kubernetes.io/job-name={name}"
    )["items"]

    assert [_is_of(pod, job) for pod in sorted(found, key=lambda pod: "mirror" in pod["metadata"]["name"])] == [
        True,
        False,
    ]
