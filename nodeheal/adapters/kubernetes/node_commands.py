"""Implements NodeCommands by Jobs: each is pinned to its node, and runs one command of the agent there.

The chart's PodTemplate says what such a Job's pod may be, and the API server refuses any other.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.api import ApiError, Object, refusals_named
from nodeheal.adapters.kubernetes.gangs import controller_of
from nodeheal.contract import names
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import Node
from nodeheal.ports.clock import Clock
from nodeheal.ports.commands import Command, CommandStatus

TEMPLATE = "nodeheal-node-command"
# The agent's command for each document. A reboot and what nodeheal's own jobs need are asked for otherwise.
VERBS = {
    "checkpoint-now": "checkpoint",
    "freeze-evidence": "evidence",
    "inject-dcgm": "inject-dcgm",
    "inject-fault": "inject",
    "reset-gpu": "reset-gpu",
    "run-diagnostics": "diag",
}
# Parameters that are no options. The ticket of an upload is not for everybody on the node to read.
VARIABLES = {"Accused": names.ACCUSED, "Upload": "NODEHEAL_UPLOAD"}
_KEPT_SECONDS = 3600  # how long an ended Job can be looked at
_UPPER = re.compile(r"(?<!^)(?=[A-Z])")


class KubernetesNodeCommands:
    """Implements NodeCommands."""

    def __init__(self, clusters: EksClusters, clock: Clock) -> None:
        self._clusters, self._clock = clusters, clock

    def send(self, node: Node, command: Command, expires_at: datetime) -> str:
        if command.document not in VERBS:
            raise NotFound(f"{node.node_id} is a node of Kubernetes, where nodeheal has no Job for {command.document}")
        api = self._clusters.api(node.cluster.name)
        with refusals_named(f"{command.document} on {node.node_id}"):
            name = self._clusters.nodes(node.cluster.name).find(node)["metadata"]["name"]
            template = api.find(f"/api/v1/namespaces/{names.KUBERNETES_NAMESPACE}/podtemplates/{TEMPLATE}")
            if template is None:
                raise NotFound(f"cluster {node.cluster.name} has no PodTemplate {TEMPLATE}: install nodeheal's chart")
            left = max(1, int((expires_at - self._clock()).total_seconds()))
            job = _job(template["template"], name, command, node.boot_id, expires_at, left)
            try:
                api.post(_jobs(), job)
            except ApiError as error:
                if error.reason != "AlreadyExists":  # the answer to an earlier call was lost
                    raise
        return str(job["metadata"]["name"])

    def send_to_all(self, nodes: Sequence[Node], command: Command, expires_at: datetime) -> Sequence[str]:
        return [self.send(node, command, expires_at) for node in nodes]

    def look(self, node: Node, command_id: str) -> CommandStatus:
        api = self._clusters.api(node.cluster.name)
        with refusals_named(command_id):
            job = api.find(f"{_jobs()}/{command_id}")
            if job is None:
                return CommandStatus("UNKNOWN")
            selected = f"batch.kubernetes.io/job-name={command_id}"
            pods = list(api.pages(f"/api/v1/namespaces/{names.KUBERNETES_NAMESPACE}/pods", labelSelector=selected))
        own = [pod for pod in pods if _is_of(pod, job)]
        end = next((end for pod in own if (end := _end_of(pod)) is not None), None)
        if end is not None:
            state = "SUCCEEDED" if end["exitCode"] == 0 else "FAILED"
            return CommandStatus(state, str(end.get("message", "")), int(end["exitCode"]))
        conditions = job.get("status", {}).get("conditions") or ()
        has_failed = any(each["type"] == "Failed" and each["status"] == "True" for each in conditions)
        return CommandStatus("FAILED" if has_failed else "PENDING")


def options(command: Command, boot_id: str, expires_at: datetime) -> list[str]:
    """Return the command line of the agent's `run` for a command of one boot."""
    given = {**command.parameters, "BootId": boot_id, "ExpiresAt": str(int(expires_at.timestamp()))}
    words = {f"--{_UPPER.sub('-', name).lower()}={value}" for name, value in given.items() if name not in VARIABLES}
    ticket = ["--upload=-"] if "Upload" in given else []
    return [VERBS[command.document], *sorted(words), *ticket]


def _jobs() -> str:
    return f"/apis/batch/v1/namespaces/{names.KUBERNETES_NAMESPACE}/jobs"


def _job(
    template: Mapping[str, Any], node: str, command: Command, boot_id: str, expires_at: datetime, seconds: int
) -> dict[str, Any]:
    """Return the Job. Its name is that of what is asked for: asked twice, it is one."""
    arguments = options(command, boot_id, expires_at)
    digest = hashlib.sha256("\n".join([node, *arguments]).encode()).hexdigest()[:16]
    [container] = template["spec"]["containers"]
    variables = [
        {"name": VARIABLES[name], "value": value} for name, value in command.parameters.items() if name in VARIABLES
    ]
    container = {**container, "args": arguments, "env": [*container.get("env", ()), *variables]}
    pod = {
        "metadata": template.get("metadata", {}),
        "spec": {**template["spec"], "nodeName": node, "containers": [container]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"nodeheal-{VERBS[command.document]}-{digest}",
            **({"annotations": {"nodeheal.io/why": command.comment}} if command.comment else {}),
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": seconds,
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "template": pod,
        },
    }


def _is_of(pod: Object, job: Object) -> bool:
    """Whether the Job has made this pod, for its node: a kubelet can make a pod of the same label on its own."""
    owner = controller_of(pod) or {}
    node = job["spec"]["template"]["spec"].get("nodeName")
    return bool(owner.get("uid") == job["metadata"]["uid"] and pod["spec"].get("nodeName") == node)


def _end_of(pod: Object) -> Mapping[str, Any] | None:
    """Return how the pod's container has ended; None: it has not."""
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    ends = (status.get("state", {}).get("terminated") for status in statuses)
    return next((end for end in ends if end is not None), None)
