"""Begins a wait for news, and ends it when there is news."""

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Awaited, Refusal, VerbName
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node
from nodeheal.domain.operation import Operation, OperationState, incident_owner, node_owner
from nodeheal.operations import wait
from nodeheal.operations.engine import begin, reconcile_all, signal
from nodeheal.operations.handler import VerbContext
from nodeheal.ports import Ports
from nodeheal.services.recovery.queue import wake_queue
from nodeheal.services.saving import node_of


def wait_for_news(request: StepRequest, ports: Ports) -> None:
    """Begin to wait. The workflow resumes with DONE when there is news; its deadline is the decision's."""
    begin(wait.plan(request, ports), VerbContext(ports))
    if request.decision.awaits is Awaited.BUDGET:
        _call_for_a_free_slot(request, ports)


def bring_news(incident_id: str, ports: Ports, awaited: Awaited | None = None) -> None:
    """End the incident's wait, if it waits; where `awaited` is given, only a wait for that."""
    waiting = waiting_for_news(incident_id, ports)
    if waiting is not None and awaited in (None, waiting.step.decision.awaits):
        signal(waiting, wait.NEWS, ports)


def tell_of_boot(node: Node, ports: Ports) -> None:
    """Resume what waits for another boot of the node, once that is recorded: our own reboot, or a repair by others."""
    reconcile_all(node_owner(node.node_id), ports)
    if node.open_incident is not None and node.state not in OUT_OF_SERVICE:
        bring_news(node.open_incident, ports, Awaited.EXTERNAL_REPAIR)


def waiting_for_news(incident_id: str, ports: Ports) -> Operation | None:
    """The wait of the incident's present turn, while its workflow has no result of it."""
    try:
        incident = ports.incidents.incident(incident_id)
    except NotFound:
        return None
    known = ports.operations.get(incident_owner(incident_id), wait.operation_id_of(incident_id, incident.turn))
    if known is None or known.verb is not VerbName.WAIT or known.state is OperationState.DELIVERED:
        return None
    return known


def _call_for_a_free_slot(request: StepRequest, ports: Ports) -> None:
    """Wakes the first in line: a slot that became free between the refusal and the wait has woken no incident."""
    history = ports.incidents.history(request.incident_id)
    pool = node_of(history.incident.node_id, ports).pool
    refusals = (t.result.refused_for(Refusal.BUDGET_FULL) for t in reversed(history.turns) if t.result)
    slots = next((refused.slots for refused in refusals if refused is not None), 0)
    if len(ports.pools.holders(pool)) < (slots or 0):
        wake_queue(pool, ports)
