"""Plays a story on Kubernetes: the job is a PyTorchJob, and training-operator restarts it when nodeheal has suspended
and resumed it.
"""

import json
import time
from pathlib import Path
from typing import Any

import yaml

from nodeheal.contract.vocabulary import JobState
from sandbox.client import NodeHandle, free_port
from sandbox.job_file import EXAMPLES
from sandbox.kubernetes import programs
from sandbox.kubernetes.control_plane import run_kubectl
from sandbox.script import GANG_NODES
from sandbox.story import READY_SECONDS, Story
from sandbox.training import Training

MANIFEST = EXAMPLES / "kubernetes" / "pytorchjob.yaml"
TRAINER = EXAMPLES / "numpy-trainer" / "train.py"
CLUSTER = "training"
RESTARTS = "nodeheal.io/restarts"
_STATES = {"Succeeded": JobState.COMPLETED, "Failed": JobState.FAILED}


def why_missing() -> str:
    """Return why Kubernetes cannot be played here; empty: it can."""
    return programs.why_missing(*programs.WITH_JOBS)


class KubernetesStory(Story):
    """One playing of a script on an EKS cluster."""

    _kubeconfig = Path()
    _is_suspended = False
    _restarts = 0

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables by which kubectl finds this cluster, and where kubectl is."""
        return {"KUBECONFIG": str(self._kubeconfig), "KUBECTL": str(programs.program("kubectl"))}

    @property
    def owner_mails(self) -> tuple[str, ...]:
        """Return none: the job's object does not say who submitted it."""
        return ()

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as the cluster's administrator; returns what it prints. Raises KubectlError."""
        return run_kubectl(self._kubeconfig, arguments, stdin)

    def shown(self, what: str) -> list[str]:
        """Return what kubectl prints of these kinds of objects, line by line."""
        return self.kubectl("get", what, "--output=wide", "--show-kind").rstrip().splitlines()

    def _made_nodes(self) -> list[NodeHandle]:
        script = self.script
        nodes, self._kubeconfig = self.sandbox.add_kubernetes(CLUSTER, script.pool, script.nodes, checks=script.checks)
        self._await(self._are_ready, READY_SECONDS, "all nodes of the cluster are Ready")
        return nodes

    def _are_ready(self) -> bool:
        return len(self._names()) == self.script.nodes

    def _names(self) -> dict[str, str]:
        """Return the machine of each ready node, by the node's name."""
        nodes = json.loads(self.kubectl("get", "nodes", "--output=json"))["items"]
        return {
            node["metadata"]["name"]: node["spec"]["providerID"].rpartition("/")[2] for node in nodes if _is_ready(node)
        }

    def _start_training(self) -> None:
        script = self.script
        directory = self.sandbox.directory / "shared" / script.job
        directory.mkdir(parents=True, exist_ok=True)
        job = _job(script.job, directory, script.steps, script.step_seconds, script.checkpoint_every)
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
        selector = f"--selector=training.kubeflow.org/job-name={self.script.job}"
        pods = json.loads(self.kubectl("get", "pods", selector, "--output=json"))["items"]
        names = self._names()
        return {
            pod["metadata"]["labels"]["training.kubeflow.org/replica-type"]: names[pod["spec"]["nodeName"]]
            for pod in pods
            if pod["status"].get("phase") == "Running" and pod["spec"].get("nodeName") in names
        }

    def _job_state(self) -> JobState | None:
        job = json.loads(self.kubectl("get", "pytorchjob", self.script.job, "--output=json"))
        is_suspended = bool(job["spec"].get("runPolicy", {}).get("suspend"))
        restarts = int(job["metadata"].get("annotations", {}).get(RESTARTS, 0))
        if is_suspended and not self._is_suspended:
            self._line(time.time(), "training", f"nodeheal suspends PyTorchJob {self.script.job}: its pods end")
        if restarts > self._restarts:
            self._line(time.time(), "training", f"nodeheal resumes it (restart {restarts}), without the broken node")
        self._is_suspended, self._restarts = is_suspended, restarts
        ended = [each["type"] for each in job.get("status", {}).get("conditions", []) if each["status"] == "True"]
        return next((state for kind, state in _STATES.items() if kind in ended), JobState.RUNNING)


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = node["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _job(name: str, directory: Path, steps: int, step_seconds: float, checkpoint_every: int) -> dict[str, Any]:
    """Return the example's job with what the sandbox sets: the trainer's file, its options, and a port that is free."""
    job: dict[str, Any] = yaml.safe_load(MANIFEST.read_text("utf-8"))
    job["metadata"]["name"] = name
    options = {
        "TRAINER_STEPS": str(steps),
        "TRAINER_STEP_SECONDS": str(step_seconds),
        "TRAINER_CHECKPOINT_EVERY": str(checkpoint_every),
        "TRAINER_DIRECTORY": str(directory),
    }
    port = free_port()
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        [container] = replica["template"]["spec"]["containers"]
        container["command"] = ["python3", str(TRAINER)]
        container["env"] = [{"name": key, "value": value} for key, value in options.items()]
        container["ports"] = [{"name": "pytorchjob-port", "containerPort": port}]
    return job
