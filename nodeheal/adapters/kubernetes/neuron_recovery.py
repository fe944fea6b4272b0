"""Reads whether AWS's Neuron node-problem-detector replaces nodes by itself.

It marks the instance as unhealthy for its Auto Scaling group, and drains nothing. Whether that is on stands in its
DaemonSet alone, by the names of AWS's chart and manifest.
"""

from nodeheal.adapters.kubernetes.api import KubernetesApi

NAMESPACE, NAME, SWITCH = "neuron-healthcheck-system", "node-problem-detector", "ENABLE_RECOVERY"


def is_recovery_on(api: KubernetesApi) -> bool:
    """Whether it does in this cluster. Raises ApiError, NotAccepted."""
    daemon_set = api.find(f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{NAME}") or {}
    pod = daemon_set.get("spec", {}).get("template", {}).get("spec", {})
    variables = [each for container in pod.get("containers") or () for each in container.get("env") or ()]
    return any(each["name"] == SWITCH and str(each.get("value", "")).lower() == "true" for each in variables)
