"""A page of the agent's metrics with every metric on it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from nodeheal.agent.checks.check_result import NodeCheckResult
from nodeheal.agent.identity.node_identity import Identity
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.transport.gauges import Sample
from nodeheal.agent.transport.heartbeat_client import HeartbeatContent, HeartbeatItem
from nodeheal.agent.transport.heartbeat_thread import HeartbeatThread
from nodeheal.agent.transport.metrics import PUBLISHED
from nodeheal.agent.transport.prometheus import metrics
from nodeheal.contract.training import NodeTraining
from nodeheal.contract.vocabulary import Provider, SchedulerKind
from tests.support.agent_fakes import NodeFolder, public_key
from tests.support.agent_loop import EVERY, REMAP, Run
from tests.unit.agent.exposition import Family, parse

WHO = Identity("mi-0a1b", "training", "a100", Provider.hybrid, SchedulerKind.ECS, None, {})

TRAINING = NodeTraining(
    "llama/3",
    500,
    idle_seconds=1.0,
    step_seconds=2.5,
    usual_step_seconds=2.0,
    slowest_compute_seconds=1.5,
    loss=2.25,
    saved_step=400,
    saved_seconds=210.0,
)


class Served:
    """What an exporter collects, without its HTTP."""

    def __init__(self, who: Identity, gauges: Mapping[str, float], samples: Iterable[Sample]) -> None:
        self._found = list(metrics(who, gauges, samples))

    def collect(self) -> Iterator[Metric]:
        """Return the metrics to prometheus_client."""
        return iter(self._found)


def exposition(who: Identity, gauges: Mapping[str, float], samples: Iterable[Sample]) -> str:
    registry = CollectorRegistry()
    registry.register(Served(who, gauges, samples))
    return generate_latest(registry).decode()


class AcceptingItem(HeartbeatItem):
    """The item of a table that takes every heartbeat, without a network."""

    def __init__(self) -> None:
        pass

    def write(self, heartbeat: HeartbeatContent) -> float | None:
        """Take it."""
        return None


def everything(node: NodeFolder) -> dict[str, Family]:
    """All that an agent serves whose checks measure all that they can, with a training job and a fault."""
    gauges = dict.fromkeys((f"{name}:0" if name.startswith("gpu_") else name for name in PUBLISHED), 1.0)
    del gauges["disk_used_percent"]
    gauges |= {"disk_used_percent:/": 1.0, "training_step_age_seconds:llama/3": 1.0}
    look = NodeCheckResult(
        gauges=gauges, called={"gpu:0": {"pci": "0000:10:00.0", "uuid": "GPU-0", "serial": "1651323000001"}}
    )
    run = Run(node)
    run.look(look, 2)
    run.look(replace(look, problems=(REMAP[0],)))
    run.agent._sender._note(1, 0)
    heartbeat_thread = HeartbeatThread(
        AcceptingItem(), public_key, "boot-1", EVERY, Clock(), lambda: None, lambda: [TRAINING]
    )
    heartbeat_thread.heartbeat()
    who = replace(WHO, product="H100")
    return parse(exposition(who, run.agent.gauges(), (*run.agent.samples(), *heartbeat_thread.samples())))
