"""Connections of `nodeheal-agent watch` beside the bus. Each thread has its own."""

from collections.abc import Callable

from nodeheal.agent.beat import HeartbeatItem
from nodeheal.agent.caller import Caller
from nodeheal.agent.clock import Clock
from nodeheal.agent.config import AgentConfig
from nodeheal.agent.credentials import CredentialChain
from nodeheal.agent.fallback import Fallback
from nodeheal.agent.pulse import Pulse
from nodeheal.agent.signed_post import SignedPost, endpoint


def pulse(config: AgentConfig, clock: Clock, instead: Callable[[], None]) -> Pulse:
    """What gives this node's signs of life."""
    table, caller = _service("dynamodb", config, clock)
    item = HeartbeatItem(config.instance_id or config.node_id, table, caller)
    return Pulse(item, config.boot_id(), config.heartbeat_seconds, clock, instead)


def fallback(config: AgentConfig, clock: Clock) -> Fallback:
    """What goes around the bus."""
    return Fallback(*_service("sns", config, clock))


def _service(name: str, config: AgentConfig, clock: Clock) -> tuple[SignedPost, Caller]:
    credentials, region = CredentialChain(clock), config.region
    sts = SignedPost("sts", region, endpoint("sts", region), credentials, clock)
    return SignedPost(name, region, endpoint(name, region), credentials, clock), Caller(sts)
