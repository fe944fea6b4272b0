"""Finds out which machine an agent speaks for that speaks as its pod: the pod's cluster says it."""

from collections.abc import Mapping
from datetime import timedelta

from nodeheal.contract.signature import KEPT_SECONDS
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.liveness import Heartbeat
from nodeheal.ports import Ports

# What one run of the sweep may ask for: each costs two calls of an API server, the first time of a pod.
PODS_A_RUN = 100
# A pod that is silent for longer has ended: its item is there until nothing can arrive that it has signed.
LIVING_SECONDS = 600


def place_agent_pods(newest: Mapping[str, Heartbeat], ports: Ports) -> list[str]:
    """Record the machines of living pods that speak for none yet; these machines. A cluster that does not answer is
    left to the next run.
    """
    now, placed, unreachable = ports.clock(), list[str](), set[str]()
    since = now - timedelta(seconds=LIVING_SECONDS)
    unplaced = [beat.pod for beat in newest.values() if beat.pod and not beat.pod_machine and beat.at >= since]
    readers = [each.agent_pods for each in ports.schedulers.values() if each.agent_pods] if unplaced else []
    for pod in unplaced[:PODS_A_RUN]:
        for reader in readers:
            if pod.cluster in unreachable:
                continue
            try:
                machine = reader.machine_of(pod)
            except NotAccepted:
                unreachable.add(pod.cluster)
                continue
            if machine is not None:
                ports.heartbeats.place(pod, machine, now + timedelta(seconds=KEPT_SECONDS))
                placed.append(machine)
    return placed
