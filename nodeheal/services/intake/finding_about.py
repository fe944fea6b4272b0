"""A finding about a node that its agent has not sent: what the control plane, or an operator, has to say of it."""

from datetime import datetime

from nodeheal.contract.health_event import HealthEvent
from nodeheal.domain.fleet.node import Node

_NO_AGENT = "none"


def finding_about(node: Node, event_id: str, at: datetime, **fields: object) -> HealthEvent:
    """The event, of the node's current boot. `said`: source, family, code, verdict and whatever else an event has."""
    known: dict[str, object] = {
        "schema_version": 1,
        "event_id": event_id,
        "node_id": node.node_id,
        "cluster": node.cluster.name,
        "pool": node.pool,
        "provider": node.provider,
        "scheduler": node.cluster.kind,
        "instance_id": node.instance_id,
        "boot_id": node.boot_id,
        "observed_at": at,
        "agent_version": node.agent_version or _NO_AGENT,
    }
    return HealthEvent.model_validate({**known, **fields})
