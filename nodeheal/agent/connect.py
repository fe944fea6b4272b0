"""Connections of `nodeheal-agent watch` beside the bus, which `compose` makes for all. Each thread has its own."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from nodeheal.agent.aws_client import AwsClient, endpoint
from nodeheal.agent.clock import Clock
from nodeheal.agent.compose import heartbeat_item, service
from nodeheal.agent.config import AgentConfig
from nodeheal.agent.credentials import CredentialChain
from nodeheal.agent.fallback import Fallback
from nodeheal.agent.heartbeat_thread import HeartbeatThread
from nodeheal.agent.signing import Signer

if TYPE_CHECKING:
    from nodeheal.agent.gauges import Sample
    from nodeheal.agent.metrics import NodeMetrics, Publisher


class Thread(Protocol):
    """What runs beside the agent and in nobody's way."""

    def start(self) -> None:
        """Begin."""

    def stop(self, patience_seconds: float) -> None:
        """End, soon."""


def beside(
    config: AgentConfig,
    clock: Clock,
    signer: Signer,
    say_alive: Callable[[], None],
    gauges: Callable[[], Mapping[str, float]],
    samples: Callable[[], Iterable["Sample"]],
) -> list[Thread]:
    """All that the configuration asks for."""
    heartbeats = heartbeat_thread(config, clock, signer, instead=say_alive)
    threads: list[Thread] = [heartbeats]
    if config.cloudwatch_metrics:
        threads.append(publisher(config, clock, gauges))
    if config.prometheus_port:
        from nodeheal.agent.prometheus import Exporter  # only where it is switched on: it would stay in memory

        exporter = Exporter(
            config.prometheus_port, config.identity, gauges, lambda: (*samples(), *heartbeats.samples())
        )
        threads.append(exporter)
    return threads


def heartbeat_thread(config: AgentConfig, clock: Clock, signer: Signer, instead: Callable[[], None]) -> HeartbeatThread:
    """What gives this node's heartbeats."""
    item = heartbeat_item(config, clock)
    return HeartbeatThread(item, signer.public, config.boot_id(), config.heartbeat_seconds, clock, instead)


def fallback(config: AgentConfig, clock: Clock, signer: Signer) -> Fallback:
    """What goes around the bus."""
    return Fallback(*service("sns", config, clock), signer)


def publisher(config: AgentConfig, clock: Clock, gauges: Callable[[], Mapping[str, float]]) -> "Publisher":
    """What tells CloudWatch of what is measured."""
    from nodeheal.agent.metrics import Publisher  # likewise

    return Publisher(node_metrics(config, clock), gauges, clock)


def node_metrics(config: AgentConfig, clock: Clock) -> "NodeMetrics":
    """Where it is told."""
    from nodeheal.agent.metrics import NodeMetrics

    region = config.region
    cloudwatch = AwsClient("monitoring", region, endpoint("monitoring", region), CredentialChain(clock), clock)
    return NodeMetrics(cloudwatch, config.node_id, each_gpu=config.cloudwatch_metrics == "gpus")
