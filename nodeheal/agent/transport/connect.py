"""Creates the connections of `nodeheal-agent watch` other than the bus, which `compose` creates. Each thread has its
own.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Protocol

from nodeheal.agent.identity.signing import Signer
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.compose import heartbeat_item, service
from nodeheal.agent.runtime.config import AgentConfig
from nodeheal.agent.runtime.trainings import Trainings
from nodeheal.agent.transport.aws_client import AwsClient
from nodeheal.agent.transport.credentials import CredentialChain
from nodeheal.agent.transport.endpoint import endpoint
from nodeheal.agent.transport.fallback import Fallback
from nodeheal.agent.transport.heartbeat_thread import HeartbeatThread
from nodeheal.agent.transport.metrics import NodeMetrics, Publisher
from nodeheal.contract.training import NodeTraining

if TYPE_CHECKING:
    from nodeheal.agent.transport.gauges import Sample


class Thread(Protocol):
    """A background thread of the agent."""

    def start(self) -> None:
        """Start the thread."""

    def stop(self, patience_seconds: float) -> None:
        """Request the end of the thread; returns at once."""


def beside(
    config: AgentConfig,
    clock: Clock,
    signer: Signer,
    say_alive: Callable[[], None],
    report_alert: Callable[[NodeTraining], None],
    slowed_by: Callable[[], str | None],
    gauges: Callable[[], Mapping[str, float]],
    samples: Callable[[], Iterable["Sample"]],
) -> list[Thread]:
    """Create the threads that the configuration enables."""
    heartbeats = heartbeat_thread(config, clock, signer, say_alive, report_alert, slowed_by)
    threads: list[Thread] = [heartbeats]
    if config.cloudwatch_metrics:
        threads.append(publisher(config, clock, gauges))
    if config.prometheus_port:
        from nodeheal.agent.transport.prometheus import Exporter  # only where it is enabled: it would stay in memory

        exporter = Exporter(
            config.prometheus_port, config.identity, gauges, lambda: (*samples(), *heartbeats.samples())
        )
        threads.append(exporter)
    return threads


def heartbeat_thread(
    config: AgentConfig,
    clock: Clock,
    signer: Signer,
    instead: Callable[[], None],
    report_alert: Callable[[NodeTraining], None],
    slowed_by: Callable[[], str | None],
) -> HeartbeatThread:
    """Create the thread that writes this node's heartbeats."""
    trainings = Trainings(Path(config.progress_dir), clock.monotonic, time, slowed_by)
    return HeartbeatThread(
        heartbeat_item(config, clock),
        signer.public,
        config.boot_id(),
        config.heartbeat_seconds,
        clock,
        instead,
        trainings.look,
        trainings.alerts,
        report_alert,
    )


def fallback(config: AgentConfig, clock: Clock, signer: Signer) -> Fallback:
    """Create the SNS fallback for a bus out of reach."""
    return Fallback(*service("sns", config, clock), signer)


def publisher(config: AgentConfig, clock: Clock, gauges: Callable[[], Mapping[str, float]]) -> Publisher:
    """Create the thread that publishes metrics to CloudWatch."""
    return Publisher(node_metrics(config, clock), gauges, clock)


def node_metrics(config: AgentConfig, clock: Clock) -> NodeMetrics:
    """Create the client of this node's CloudWatch metrics."""
    region = config.region
    cloudwatch = AwsClient("monitoring", region, endpoint("monitoring", region), CredentialChain(clock), clock)
    return NodeMetrics(cloudwatch, config.node_id, each_gpu=config.cloudwatch_metrics == "gpus")
