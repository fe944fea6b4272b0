"""Finds out which machine an agent speaks for that speaks as its pod: the pod's cluster says it.

Asked when the pod's first event comes; and by the sweep for pods that live and have said nothing but heartbeats since
the record of it has ended.
"""

from collections.abc import Mapping
from datetime import timedelta

from nodeheal.contract.agent_pod import AgentPod
from nodeheal.contract.signature import KEPT_SECONDS
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.liveness import Heartbeat
from nodeheal.ports import Ports

# What one run of the sweep may ask for: each costs two calls of an API server.
PODS_A_RUN = 100
# A pod that is silent for longer has ended: its item is there until nothing can arrive that it has signed.
LIVING_SECONDS = 600


def place_agent_pod(pod: AgentPod, ports: Ports) -> str | None:
    """Record which machine runs this pod of the agent, and return it; None: no cluster has such a pod now.

    Raises NotAccepted.
    """
    for scheduler in ports.schedulers.values():
        machine = scheduler.agent_pods.machine_of(pod) if scheduler.agent_pods is not None else None
        if machine is not None:
            ports.heartbeats.place(pod, machine, ports.clock() + timedelta(seconds=KEPT_SECONDS))
            return machine
    return None


def place_agent_pods(newest: Mapping[str, Heartbeat], ports: Ports) -> list[str]:
    """Record the machines of living pods that speak for none yet; these machines. A cluster that does not answer is
    left to the next run.
    """
    since, placed, unreachable = ports.clock() - timedelta(seconds=LIVING_SECONDS), list[str](), set[str]()
    unplaced = [beat.pod for beat in newest.values() if beat.pod and not beat.pod_machine and beat.at >= since]
    for pod in unplaced[:PODS_A_RUN]:
        if pod.cluster in unreachable:
            continue
        try:
            placed += filter(None, [place_agent_pod(pod, ports)])
        except NotAccepted:
            unreachable.add(pod.cluster)
    return placed
