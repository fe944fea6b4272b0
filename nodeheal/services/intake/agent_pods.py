"""Finds out which machine an agent speaks for that speaks as its pod: the pod's cluster says it, at its first event."""

from nodeheal.contract.agent_pod import AgentPod
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.ports import Ports


def place_agent_pod(pod: AgentPod, ports: Ports) -> str | None:
    """Record which machine runs this pod of the agent, and return it. None: no cluster has such a pod now, or what it
    names is on record as a machine of another cluster. Raises NotAccepted.
    """
    for scheduler in ports.schedulers.values():
        machine = scheduler.agent_pods.machine_of(pod) if scheduler.agent_pods is not None else None
        if machine is None:
            continue
        node = ports.nodes.get(machine)
        if node is not None and node.cluster != Cluster(scheduler.kind, pod.cluster):
            return None
        ports.heartbeats.place(pod, machine)
        return machine
    return None
