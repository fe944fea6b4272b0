"""An operator asks for something by hand: a health event like any other, so that workflow, ledger and audit are too."""

from uuid import uuid4

from nodeheal.contract.health_event import EVIDENCE_BYTES, HealthEvent
from nodeheal.contract.names import OPERATOR_REQUEST
from nodeheal.contract.vocabulary import Action, Family, NodeState, Verdict
from nodeheal.ports import Ports
from nodeheal.services.steps import node_of

ASKABLE = (Action.ISOLATE, Action.REBOOT, Action.REPLACE)


def request_action(node_id: str, action: Action, why: str, ports: Ports) -> HealthEvent:
    """The event that asks for it. Raises NotFound for an unknown node, ValueError for one that is busy or lifeless."""
    node = node_of(node_id, ports)
    if node.state is NodeState.RETIRED:
        raise ValueError(f"{node_id} is retired")
    if not node.is_heard:
        raise ValueError(f"{node_id} is enrolled, but its agent has never been heard: nothing it does could be proven")
    if node.open_incident is not None:
        raise ValueError(f"{node_id} has an open incident, {node.open_incident}: see `nodeheal incidents show`")
    event_id = f"by-hand-{uuid4().hex}"
    return HealthEvent(
        schema_version=1,
        event_id=event_id,
        node_id=node.node_id,
        cluster=node.cluster,
        pool=node.pool,
        provider=node.provider,
        instance_id=node.instance_id,
        boot_id=node.boot_id,
        observed_at=ports.clock(),
        source="operator",
        family=Family.host,
        code=OPERATOR_REQUEST,
        subcode=action.value,
        component=event_id,  # each request is its own: the second one is no repeat of the first
        verdict=Verdict.FAILED,
        suggested_action=action,
        evidence=why[:EVIDENCE_BYTES],
        agent_version=node.agent_version or "none",
    )
