"""Spend an attempt before a destructive step. What is denied spends nothing."""

from nodeheal.contract.steps import Reservation, StepRequest
from nodeheal.contract.vocabulary import NodeState
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.recovery import attempt_budget
from nodeheal.domain.recovery.timeline import AttemptReserved
from nodeheal.ports import Ports
from nodeheal.services.recovery.new_node_places import has_place
from nodeheal.services.steps import add_timeline_entry


def reserve_for_node_or_why_not(node: Node, request: StepRequest, ports: Ports, *more_states: NodeState) -> str:
    """Returns why a destructive step must not run: it needs our isolation, a slot and an attempt. Empty: it may.

    Every destructive service asks, whatever the workflow did before. `more_states`: where a repeated call may find it.
    """
    states = (NodeState.ISOLATED, NodeState.RECOVERING, *more_states)
    if node.open_incident != request.incident_id or node.state not in states:
        return f"{node.node_id} is {node.state} and not isolated by {request.incident_id}"
    if node.node_id not in ports.pools.holders(node.pool) and not has_place(node, ports):
        return f"{node.node_id} holds no slot of pool {node.pool}'s disruption budget"
    return reserve_or_why_not(request, ports)


def reserve_or_why_not(request: StepRequest, ports: Ports) -> str:
    """Reserve the attempts of this turn; empty: they are reserved. Asking again for the same turn spends nothing."""
    granted, attempts = _reserve(request, ports)
    if not granted:
        return f"{attempts} are spent"
    add_timeline_entry(request, ports, "attempt-reserved", f"attempt reserved: {attempts}", AttemptReserved())
    return ""


def refund_attempt(request: StepRequest, ports: Ports) -> None:
    """Give back what this turn reserved: provably nothing was done with it."""
    for reservation in _reservations(request):
        ports.attempts.refund(reservation.scope, _attempt_id(request), reservation.limit)


def give_attempt_back(request: StepRequest, ports: Ports, why: str = "") -> None:
    """The same, and say so in the incident. `why`: where it is not that nothing was touched."""
    refund_attempt(request, ports)
    add_timeline_entry(request, ports, "attempt-refunded", f"attempt given back: {why or 'nothing was touched'}")


def _reserve(request: StepRequest, ports: Ports) -> tuple[bool, str]:
    """(granted, in words). All scopes or none: one that is full gives back what the others have granted."""
    attempts = ""
    for reservation in _reservations(request):
        granted, spent = ports.attempts.reserve(reservation.scope, _attempt_id(request), reservation.limit)
        if not granted:
            refund_attempt(request, ports)
            return False, attempt_budget.attempts_text(reservation, spent)
        attempts = attempts or attempt_budget.attempts_text(reservation, spent)
    return True, attempts


def _attempt_id(request: StepRequest) -> str:
    """One attempt for one turn of one incident."""
    return f"{request.incident_id}/{request.operation_turn}"


def _reservations(request: StepRequest) -> tuple[Reservation, ...]:
    """What the decision wants reserved. Raises ValueError: a destructive step was decided without any."""
    if not request.decision.reserve:
        raise ValueError(f"{request.decision.step} of {request.incident_id} carries no attempt limit")
    return request.decision.reserve
