"""An operator asks for something by hand: a health event like any other, so that workflow, ledger and audit are too."""

from nodeheal.contract.health_event import EVIDENCE_BYTES, HealthEvent
from nodeheal.contract.names import DIAGNOSTICS_LEVEL, NEEDS_APPROVAL, OPERATOR_REQUEST, OPERATOR_SOURCE
from nodeheal.contract.vocabulary import Action, Family, IncidentState, NodeState, Provider, Verdict
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node
from nodeheal.domain.fleet.pause import Pauses
from nodeheal.domain.recovery.incident import incident_id_of, short_id
from nodeheal.ports import Ports
from nodeheal.services.intake.finding_about import finding_about
from nodeheal.services.saving import node_of


def taken_by(request: HealthEvent, ports: Ports) -> str | None:
    """The incident that has taken the request: its own, or one that came before it. None: none has."""
    own = incident_id_of(request)
    node = node_of(request.node_id, ports)
    for incident_id in (own, node.open_incident):
        if incident_id is not None and _holds(request, incident_id, ports):
            return incident_id
    return None


def begun_by(key: str, node_id: str, ports: Ports) -> HealthEvent | None:
    """The request of this key, where the node's open incident has begun with it."""
    node = node_of(node_id, ports)
    if node.open_incident is None:
        return None
    try:
        root = ports.incidents.incident(node.open_incident).root
    except NotFound:
        return None
    return root if root.event_id == event_id_of(key) else None


def event_id_of(key: str) -> str:
    """The event of the request with this key."""
    return f"by-hand-{key}"


def _holds(request: HealthEvent, incident_id: str, ports: Ports) -> bool:
    try:
        return any(event.event_id == request.event_id for event in ports.incidents.history(incident_id).events)
    except NotFound:
        return False


def has_replacement_node(node: Node, pauses: Pauses, ports: Ports) -> bool:
    """Whether another node of its pool is free to take its place."""
    now = ports.clock()
    others = (other for other in ports.nodes.in_pool(node.pool) if other.node_id != node.node_id)
    return any(other.is_available(now, pauses) for other in others)


def why_busy(node: Node, ports: Ports) -> str:
    """Why nothing else is begun on the node: its incident, and the way on. Empty: it has no open incident."""
    if node.open_incident is None:
        return ""
    show = f"`nodeheal incidents show {short_id(node.open_incident)}`"
    reason = f"{node.node_id} has an open incident, {node.open_incident}: see {show}"
    return f"{reason}; {_way_on(node, node.open_incident, ports)}"


def _way_on(node: Node, incident_id: str, ports: Ports) -> str:
    try:
        incident = ports.incidents.incident(incident_id)
    except NotFound:
        return "it is not on record yet, try again"
    if incident.is_under_way:
        waits = incident.state is IncidentState.WAITING
        return f"it {'waits, and that says for what' if waits else 'is under way: wait until it has ended'}"
    if node.state in OUT_OF_SERVICE:
        return (
            f"then `nodeheal nodes release {node.node_id} --why …`, or `nodeheal nodes retire {node.node_id} --why …`"
        )
    return f"then `nodeheal incidents close {short_id(incident_id)} --why …`"


def check_action(node: Node, action: Action, ports: Ports) -> None:
    """Raises ValueError for a node that is busy or lifeless, or whose place nothing could take."""
    node_id = node.node_id
    if node.state is NodeState.RETIRED:
        raise ValueError(f"{node_id} is retired")
    if node.state is NodeState.UNENROLLED:
        raise ValueError(f"{node_id} is not enrolled: see `nodeheal nodes enroll --help`")
    if not node.has_reported:
        raise ValueError(f"{node_id} is enrolled, but its agent has never been heard: nothing it does could be proven")
    if busy := why_busy(node, ports):
        raise ValueError(busy)
    needs_another = action is Action.REPLACE and node.provider is Provider.hybrid
    if needs_another and not has_replacement_node(node, ports.pauses.read(), ports):
        # Machines of EC2 are made; of all others there is one only if it is there, and this one may be the last.
        raise ValueError(
            f"pool {node.pool} has no free node that could take the place of {node_id}: add one, or isolate it"
        )


def request_action(
    node: Node,
    action: Action,
    why: str,
    ports: Ports,
    *,
    key: str,
    kind: str = "",
    level: int | None = None,
    needs_approval: bool = False,
) -> HealthEvent:
    """The event that asks for it, named after the request's `key`.

    `kind`: DRAIN or DIAGNOSE, where isolation is only a part of what is asked for. `level`: of the diagnostics.
    `needs_approval`: whatever the pool's mode is.
    """
    event_id = event_id_of(key)
    labels = {} if level is None else {DIAGNOSTICS_LEVEL: str(level)}
    return finding_about(
        node,
        event_id,
        ports.clock(),
        source=OPERATOR_SOURCE,
        family=Family.host,
        code=OPERATOR_REQUEST,
        subcode=kind or action.value,
        component=event_id,  # each request is its own: the second one is no repeat of the first
        verdict=Verdict.FAILED,
        suggested_action=action,
        evidence=why[:EVIDENCE_BYTES],
        labels={**labels, **({NEEDS_APPROVAL: "true"} if needs_approval else {})},
    )
