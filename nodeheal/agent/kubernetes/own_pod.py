"""Tells whether the agent speaks as its pod: where its service account has credentials by EKS Pod Identity."""

import os
from collections.abc import Mapping

from nodeheal.agent.transport.credentials import ENV_CONTAINER_URI
from nodeheal.contract.agent_pod import AgentPod

ENV_POD = "NODEHEAL_POD_NAME"  # of the DaemonSet, by the chart: the Job of a command leaves its events to the agent


def agent_pod(cluster: str, environment: Mapping[str, str] = os.environ) -> AgentPod | None:
    """Return the pod as which the agent speaks; None: it speaks as its machine."""
    name = environment.get(ENV_POD, "")
    return AgentPod(cluster, name) if name and environment.get(ENV_CONTAINER_URI) else None
