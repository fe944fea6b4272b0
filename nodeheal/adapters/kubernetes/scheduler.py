"""What Kubernetes can do: a node is tainted and cordoned, a gang on it is suspended and resumed, which restarts it."""

from collections.abc import Callable
from typing import Any

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.agent_pods import KubernetesAgentPods
from nodeheal.adapters.kubernetes.conditions import KubernetesConditions
from nodeheal.adapters.kubernetes.gate import KubernetesGate
from nodeheal.adapters.kubernetes.machines import KarpenterMachines
from nodeheal.adapters.kubernetes.orders import KubernetesOrders
from nodeheal.adapters.kubernetes.workloads import KubernetesWorkloads
from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.ports.clock import Clock
from nodeheal.ports.scheduler import OwnTools, Scheduler, SchedulerTraits

OWN_TOOLS = OwnTools(
    drain="Kubernetes drains it itself: kubectl drain NODE --ignore-daemonsets",
    submit="Kubernetes starts the jobs of its nodes itself: submit with kubectl apply",
    logs="Kubernetes keeps a pod's output: kubectl logs POD",
)
TRAITS = SchedulerTraits(
    restarts_stopped=True,
    owner_consents_alone=True,
    fills_idle_nodes=True,
    records_holder=True,
    drain_keeps_holder=True,
    runs_commands=True,
)


def kubernetes_scheduler(clusters: EksClusters, ec2: Callable[[], Any], clock: Clock) -> Scheduler:
    """Return what Kubernetes can do. Its controllers start and restart its jobs themselves."""
    gate = KubernetesGate(clusters)
    workloads = KubernetesWorkloads(clusters, gate, ec2)
    return Scheduler(
        SchedulerKind.KUBERNETES,
        TRAITS,
        gate,
        liveness=gate,
        agent_pods=KubernetesAgentPods(clusters),
        workloads=workloads,
        restarter=workloads,
        machines=KarpenterMachines(clusters),
        orders=KubernetesOrders(clusters),
        conditions=KubernetesConditions(clusters, clock),
        own_tools=OWN_TOOLS,
    )
