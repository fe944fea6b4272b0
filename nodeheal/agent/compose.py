"""What every command of the agent is made of. What only `watch` has beside it is in `connect`: others never load it."""

from pathlib import Path

from nodeheal.agent.bus import EventBus, endpoint
from nodeheal.agent.clock import Clock
from nodeheal.agent.config import AgentConfig
from nodeheal.agent.credentials import CredentialChain
from nodeheal.agent.spool import Spool


def open_spool(config: AgentConfig) -> Spool:
    """The node's spool, which the agent and its orders share, though they may not be the same user's."""
    return Spool(Path(config.state_dir), config.spool_mib, Clock(), config.boot_id())


def event_bus(config: AgentConfig, clock: Clock) -> EventBus:
    """The bus, with this node's credentials."""
    url = config.endpoint_url or endpoint(config.region)
    return EventBus(config.bus, config.region, url, CredentialChain(clock), clock)
