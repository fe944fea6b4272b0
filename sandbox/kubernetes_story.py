"""Plays a story on Kubernetes: the job is a PyTorchJob, and training-operator restarts it when nodeheal has suspended
and resumed it.
"""

import json
import shlex
import time
from pathlib import Path
from typing import Any

import yaml

from nodeheal.adapters.kubernetes.nodes import machine_of
from nodeheal.contract import names
from nodeheal.contract.vocabulary import JobState
from sandbox.client import NodeHandle, free_port
from sandbox.job_file import EXAMPLES
from sandbox.kubernetes import programs
from sandbox.kubernetes.api import Api
from sandbox.kubernetes.control_plane import run_kubectl
from sandbox.script import GANG_NODES, Script
from sandbox.story import READY_SECONDS, Story
from sandbox.training import Training

MANIFEST = EXAMPLES / "kubernetes" / "pytorchjob.yaml"
TRAINER = EXAMPLES / "numpy-trainer" / "train.py"
CLUSTER = "training"
RESTARTS = "nodeheal.io/restarts"
_JOBS, _PODS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs", "/api/v1/namespaces/default/pods"
_COLUMNS = "POD:.metadata.name,STATUS:.status.phase,NODE:.spec.nodeName"
_STATES = {"Succeeded": JobState.COMPLETED, "Failed": JobState.FAILED}


def why_missing() -> str:
    """Return why Kubernetes cannot be played here; empty: it can."""
    return programs.why_missing(*programs.WITH_JOBS)


class KubernetesStory(Story):
    """One playing of a script on an EKS cluster."""

    _kubeconfig = Path()
    _is_suspended = False
    _restarts = _shown = 0
    _has_shown_end = False
    _api: Api

    @property
    def _nodes_shown(self) -> tuple[str, ...]:
        """Return the command that shows the nodes."""
        return "get", "nodes"

    @property
    def _pods_shown(self) -> tuple[str, ...]:
        """Return the command that shows the pods."""
        return "get", "pods"

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables by which kubectl finds this cluster, and where kubectl is."""
        return {"KUBECONFIG": str(self._kubeconfig), "KUBECTL": str(programs.program("kubectl"))}

    @property
    def own_commands(self) -> tuple[str, ...]:
        """Return the commands that show the cluster's nodes and pods, and the job."""
        return ("  $KUBECTL get nodes,pods", "  $KUBECTL describe pytorchjobs")

    @property
    def owner_mails(self) -> tuple[str, ...]:
        """Return none: the job's object does not say who submitted it."""
        return ()

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as the cluster's administrator; returns what it prints. Raises KubectlError."""
        return run_kubectl(self._kubeconfig, arguments, stdin)

    def _show(self, *arguments: str) -> None:
        """Show a command of kubectl's, and what it prints."""
        at = time.time()
        self._line(at, "kubectl", f"kubectl {shlex.join(arguments)}")
        for line in self.kubectl(*arguments).rstrip().splitlines():
            self._line(at, "output", line)

    def _made_nodes(self) -> list[NodeHandle]:
        script = self.script
        is_hyperpod = script.provider == "hyperpod"
        nodes, self._kubeconfig = self.sandbox.add_kubernetes(
            CLUSTER, script.pool, script.nodes, checks=(*script.checks, "kubernetes_node"), hyperpod=is_hyperpod
        )
        self._api = Api.of_kubeconfig(self._kubeconfig)
        self._await(self._are_ready, READY_SECONDS, "all nodes of the cluster are Ready")
        return nodes

    def _are_ready(self) -> bool:
        return len(self._names()) == self.script.nodes

    def _names(self) -> dict[str, str]:
        """Return the machine of each ready node, by the node's name."""
        return {node["metadata"]["name"]: machine_of(node) for node in self.nodes_of_pool() if _is_ready(node)}

    def nodes_of_pool(self) -> list[dict[str, Any]]:
        """Return the Node objects of the story's pool."""
        return self.nodes_of(self.script.pool)

    def nodes_of(self, pool: str) -> list[dict[str, Any]]:
        """Return the Node objects of a pool."""
        selector = f"{names.KUBERNETES_POOL_LABEL}={pool}"
        return list(self._api.get("/api/v1/nodes", labelSelector=selector)["items"])

    def name_of(self, node_id: str) -> str:
        """Return the name of a machine's Node object."""
        return next(name for name, machine in self._names().items() if machine == node_id)

    def _start_training(self) -> None:
        script = self.script
        directory = self.sandbox.directory / "shared" / script.job
        directory.mkdir(parents=True, exist_ok=True)
        job = pytorch_job(script, directory)
        self._line(time.time(), "command", f"kubectl apply -f {MANIFEST.name}")
        self._say(self.kubectl("apply", "-f", "-", stdin=json.dumps(job)).strip())
        self.told.training = Training(directory)
        self._await_training()

    def _gang(self) -> list[str] | None:
        """Return the nodes of the job's pods, that of rank 0 first."""
        placed = self._placed()
        return [placed[role] for role in sorted(placed)] if len(placed) == GANG_NODES else None

    def _placed(self) -> dict[str, str]:
        """Return the machine of each running pod of the job, by its role: master or worker."""
        pods = self._api.get(_PODS, labelSelector=f"training.kubeflow.org/job-name={self.script.job}")["items"]
        names = self._names()
        return {
            pod["metadata"]["labels"]["training.kubeflow.org/replica-type"]: names[pod["spec"]["nodeName"]]
            for pod in pods
            if pod["status"].get("phase") == "Running" and pod["spec"].get("nodeName") in names
        }

    def _job_state(self) -> JobState | None:
        job = self._api.get(f"{_JOBS}/{self.script.job}")
        is_suspended = bool(job["spec"].get("runPolicy", {}).get("suspend"))
        restarts = int(job["metadata"].get("annotations", {}).get(RESTARTS, 0))
        if is_suspended and not self._is_suspended:
            self._line(time.time(), "training", f"nodeheal suspends PyTorchJob {self.script.job}: its pods end")
            self._show(*self._nodes_shown)
        if restarts > self._restarts:
            self._line(time.time(), "training", f"nodeheal resumes it (restart {restarts}), without the broken node")
        self._is_suspended, self._restarts = is_suspended, restarts
        if restarts > self._shown and len(self._placed()) == GANG_NODES:
            self._shown = restarts
            self._show(*self._pods_shown, f"--output=custom-columns={_COLUMNS}")
        conditions = job.get("status", {}).get("conditions", [])
        ended = [each["type"] for each in conditions if each["status"] == "True"]
        state = next((state for kind, state in _STATES.items() if kind in ended), JobState.RUNNING)
        if state is JobState.COMPLETED and not self._has_shown_end and self._has_recovered():
            self._has_shown_end = True
            self._show(*self._nodes_shown)
            self._show(*self._pods_shown)
        return state

    def _has_recovered(self) -> bool:
        return self.told.incident is not None and self.told.incident.ending is not None


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = node["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def pytorch_job(script: Script, directory: Path) -> dict[str, Any]:
    """Return the example's job with what the sandbox sets: its pool, the trainer's file, options, and a free port."""
    job: dict[str, Any] = yaml.safe_load(MANIFEST.read_text("utf-8"))
    job["metadata"]["name"] = script.job
    options = {
        "TRAINER_STEPS": str(script.steps),
        "TRAINER_STEP_SECONDS": str(script.step_seconds),
        "TRAINER_CHECKPOINT_EVERY": str(script.checkpoint_every),
        "TRAINER_DIRECTORY": str(directory),
    }
    port = free_port()
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["spec"]["nodeSelector"] = {names.KUBERNETES_POOL_LABEL: script.pool}
        [container] = replica["template"]["spec"]["containers"]
        container["command"] = ["python3", str(TRAINER)]
        container["env"] = [{"name": key, "value": value} for key, value in options.items()]
        container["ports"] = [{"name": "pytorchjob-port", "containerPort": port}]
    return job
