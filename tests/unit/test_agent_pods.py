"""Which machine an agent's pod speaks for says its cluster, and nothing of another cluster."""

from dataclasses import replace

import pytest

from nodeheal.adapters.memory.heartbeats import MemoryHeartbeats
from nodeheal.adapters.memory.world import MemoryScheduler
from nodeheal.contract.agent_pod import AgentPod
from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.ports import Ports
from nodeheal.services.intake.agent_pods import place_agent_pod
from tests.support.builders import FrozenClock, memory_ports, node

NODE = "i-0aaaaaaaaaaaaaaaa"
POD = AgentPod("training", "nodeheal-agent-x7k2p")


@pytest.fixture
def ports() -> Ports:
    """A cluster of Kubernetes, in which the pod runs on the node."""
    made = memory_ports(FrozenClock())
    kubernetes = MemoryScheduler(agents={POD: NODE}).as_scheduler(SchedulerKind.KUBERNETES)
    return replace(made, schedulers={**made.schedulers, SchedulerKind.KUBERNETES: kubernetes})


def pods_of(ports: Ports, machine: str) -> tuple[AgentPod, ...]:
    assert isinstance(ports.heartbeats, MemoryHeartbeats)
    return ports.heartbeats.pods.get(machine, ())


def test_what_its_cluster_says_is_recorded(ports: Ports) -> None:
    assert place_agent_pod(POD, ports) == NODE
    assert pods_of(ports, NODE) == (POD,)


def test_what_no_cluster_knows_is_nobodys(ports: Ports) -> None:
    assert place_agent_pod(AgentPod("training", "nodeheal-agent-qq8zt"), ports) is None


def test_a_machine_on_record_in_the_same_cluster_is_its_own(ports: Ports) -> None:
    ports.nodes.save(node(NODE, scheduler=SchedulerKind.KUBERNETES, cluster="training"))

    assert place_agent_pod(POD, ports) == NODE


@pytest.mark.parametrize(
    ("scheduler", "cluster"), [(SchedulerKind.KUBERNETES, "other"), (SchedulerKind.ECS, "training")]
)
def test_no_cluster_places_a_pod_on_a_machine_of_another_one(
    ports: Ports, scheduler: SchedulerKind, cluster: str
) -> None:
    ports.nodes.save(node(NODE, scheduler=scheduler, cluster=cluster))

    assert place_agent_pod(POD, ports) is None
    assert pods_of(ports, NODE) == ()
