"""What closing and escalating have in common: write the ending, let go of the nodes, tell people."""

from dataclasses import replace

from nodeheal.contract.names import INCIDENT_CLOSED, INCIDENT_ESCALATED
from nodeheal.contract.steps import StepRequest, StepResult
from nodeheal.contract.vocabulary import IncidentState, NodeState, Outcome
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.incident import History, fingerprint
from nodeheal.domain.node import Node, moved
from nodeheal.ports import Ports
from nodeheal.services.compose import compose
from nodeheal.services.steps import SAVE_TRIES, node_of, result_of

_OUT_OF_SERVICE = (NodeState.ISOLATED, NodeState.RECOVERING, NodeState.QUARANTINED)


def end_incident(request: StepRequest, ports: Ports, state: IncidentState) -> StepResult:
    """End it as the decision says. Each part may be repeated after a crash; the email comes last and is folded."""
    ending = request.decision.ending
    if ending is None:
        raise ValueError(f"{request.decision.step} of {request.incident_id} does not say how it ends")
    history = ports.incidents.history(request.incident_id)
    closed = replace(
        history.incident, state=state, ending=ending, summary=request.decision.reason, closed_at=ports.clock()
    )
    if history.incident.ending is None:
        ports.incidents.finish(closed)
    # From the history, and not from the pool's list, which lags: a spare that is forgotten is never free again.
    spares = {turn.result.replacement_node_id for turn in history.turns if turn.result} - {None, closed.node_id}
    for spare in spares:
        _let_go(str(spare), history, ports)
    node = _let_go(closed.node_id, history, ports)
    detail_type = INCIDENT_ESCALATED if state is IncidentState.ESCALATED else INCIDENT_CLOSED
    ports.messenger.announce(detail_type, compose(history, ending, request.decision.reason, node))
    return result_of(request, ports, Outcome.DONE, request.decision.reason)


def _let_go(node_id: str, history: History, ports: Ports) -> Node:
    """A node in service is free for the next incident; one that is out of service stays with this one until a human
    says so. What the incident dealt with is settled for this boot: its repeats are history, not news."""
    incident_id = history.incident.incident_id
    for _ in range(SAVE_TRIES):
        node = node_of(node_id, ports)
        if node.open_incident != incident_id:
            return node
        if node.state in _OUT_OF_SERVICE:
            after = moved(node, NodeState.QUARANTINED, node.state_reason)
        else:
            mine = {fingerprint(e): incident_id for e in history.events if e.node_id == node_id}
            after = replace(node, open_incident=None, settled={**node.settled, **mine})
        if ports.nodes.save(after):
            return after
    raise NotAccepted(f"{node_id} is being written by others; the ending is written later")
