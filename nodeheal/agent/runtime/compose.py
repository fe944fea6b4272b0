"""Creates what every command of the agent needs. What only `watch` needs is in `connect`, which other commands never
load.
"""

from pathlib import Path

from nodeheal.agent.identity.signing import Signer
from nodeheal.agent.identity.sts_identity import StsIdentity
from nodeheal.agent.kubernetes.own_pod import agent_pod
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.config import AgentConfig
from nodeheal.agent.transport.aws_client import AwsClient
from nodeheal.agent.transport.bus import EventBus
from nodeheal.agent.transport.credentials import CredentialChain
from nodeheal.agent.transport.endpoint import endpoint
from nodeheal.agent.transport.heartbeat_client import HeartbeatItem
from nodeheal.agent.transport.spool import Spool


def open_spool(config: AgentConfig) -> Spool:
    """Open the node's spool. The agent and its commands share it, perhaps as different users."""
    return Spool(Path(config.state_dir), config.spool_mib, Clock(), config.boot_id(), config.node_id)


def event_bus(config: AgentConfig, clock: Clock, signer: Signer | None = None) -> EventBus:
    """Create the bus client, with this node's credentials and its signing key."""
    url = config.endpoint_url or endpoint("events", config.region, {})
    service = AwsClient("events", config.region, url, CredentialChain(clock), clock)
    return EventBus(config.bus, service, signer or signer_of(config, clock))


def signer_of(config: AgentConfig, clock: Clock, *, may_rotate: bool = False) -> Signer:
    """Create the signer of this node's events. Only the watching agent may replace the key."""
    folder, item = Path(config.state_dir), heartbeat_item(config, clock)
    return Signer(folder, config.node_id, item, clock, may_rotate=may_rotate)


def heartbeat_item(config: AgentConfig, clock: Clock) -> HeartbeatItem:
    """Create the client of this node's item in the heartbeat table."""
    return HeartbeatItem(config.node_id, *service("dynamodb", config, clock), agent_pod(config.cluster))


def service(name: str, config: AgentConfig, clock: Clock) -> tuple[AwsClient, StsIdentity]:
    """Create the client of an AWS service, and the lookup of this node's identity there."""
    credentials, region = CredentialChain(clock), config.region
    sts = AwsClient("sts", region, endpoint("sts", region), credentials, clock)
    return AwsClient(name, region, endpoint(name, region), credentials, clock), StsIdentity(sts)
