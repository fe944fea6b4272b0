"""Connections of `nodeheal-agent watch` beside the bus, which `compose` makes for all. Each thread has its own."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from nodeheal.agent.beat import HeartbeatItem
from nodeheal.agent.caller import Caller
from nodeheal.agent.clock import Clock
from nodeheal.agent.config import AgentConfig
from nodeheal.agent.credentials import CredentialChain
from nodeheal.agent.fallback import Fallback
from nodeheal.agent.pulse import Pulse
from nodeheal.agent.signed_post import SignedPost, endpoint

if TYPE_CHECKING:
    from nodeheal.agent.metrics import NodeMetrics, Publisher


class Thread(Protocol):
    """What runs beside the agent and in nobody's way."""

    def start(self) -> None:
        """Begin."""

    def stop(self, patience_seconds: float) -> None:
        """End, soon."""


def beside(
    config: AgentConfig, clock: Clock, say_alive: Callable[[], None], gauges: Callable[[], Mapping[str, float]]
) -> list[Thread]:
    """All that the configuration asks for."""
    threads: list[Thread] = [pulse(config, clock, instead=say_alive)]
    if config.cloudwatch_metrics:
        threads.append(publisher(config, clock, gauges))
    if config.prometheus_port:
        from nodeheal.agent.prometheus import Exporter  # only where it is switched on: it would stay in memory

        threads.append(Exporter(config.prometheus_port, config.node_id, gauges))
    return threads


def pulse(config: AgentConfig, clock: Clock, instead: Callable[[], None]) -> Pulse:
    """What gives this node's signs of life."""
    item = heartbeat_item(config, clock)
    return Pulse(item, config.boot_id(), config.heartbeat_seconds, clock, instead)


def heartbeat_item(config: AgentConfig, clock: Clock) -> HeartbeatItem:
    """Where they are written."""
    return HeartbeatItem(config.instance_id or config.node_id, *_service("dynamodb", config, clock))


def fallback(config: AgentConfig, clock: Clock) -> Fallback:
    """What goes around the bus."""
    return Fallback(*_service("sns", config, clock))


def publisher(config: AgentConfig, clock: Clock, gauges: Callable[[], Mapping[str, float]]) -> "Publisher":
    """What tells CloudWatch of what is measured."""
    from nodeheal.agent.metrics import Publisher  # likewise

    return Publisher(node_metrics(config, clock), gauges, clock)


def node_metrics(config: AgentConfig, clock: Clock) -> "NodeMetrics":
    """Where it is told."""
    from nodeheal.agent.metrics import NodeMetrics

    region = config.region
    cloudwatch = SignedPost("monitoring", region, endpoint("monitoring", region), CredentialChain(clock), clock)
    return NodeMetrics(cloudwatch, config.node_id)


def _service(name: str, config: AgentConfig, clock: Clock) -> tuple[SignedPost, Caller]:
    credentials, region = CredentialChain(clock), config.region
    sts = SignedPost("sts", region, endpoint("sts", region), credentials, clock)
    return SignedPost(name, region, endpoint(name, region), credentials, clock), Caller(sts)
