"""Take a node out of service: no new work, and the gang that it holds up is stopped."""

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import NodeState, Outcome
from nodeheal.domain.errors import NotFound
from nodeheal.domain.node import Node, moved
from nodeheal.domain.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.steps import node_of, result_of, save_node, tell, token_of
from nodeheal.services.stop_gang import stop_and_resume

DRAINED = "isolated"


def isolate_node(request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> None:
    """Claim a budget slot, drain the node, stop its gang. The workflow resumes when the gang has stopped."""
    node = node_of(request.decision.node_id, ports)
    if node.open_incident != request.incident_id:
        _answer(request, ports, Outcome.REFUSED, f"it belongs to incident {node.open_incident or 'nobody'}")
        return
    try:
        ports.scheduler.placement(node)
    except NotFound as gone:  # found out before anything is marked, so that nothing stays isolated by accident
        _answer(request, ports, Outcome.FAILED, str(gone))
        return
    isolated = moved(node, NodeState.ISOLATED, request.decision.reason)  # may raise: before anything is taken
    slots = policy.pool(node.pool).budget.slots(len(ports.nodes.in_pool(node.pool)))
    if not ports.budget.claim(node.pool, node.node_id, slots):
        held = ", ".join(ports.budget.holders(node.pool))
        _answer(
            request,
            ports,
            Outcome.REFUSED,
            f"the disruption budget of pool {node.pool} is full: {slots} of {slots} ({held})",
        )
        return
    save_node(ports, node, state=isolated.state, state_reason=isolated.state_reason)
    _drain(node, ports)
    tell(request, ports, DRAINED, f"{node.node_id} takes no new work (draining)")
    done = result_of(request, ports, Outcome.DONE, "drained, and its gang has stopped", evidence={"drained": "true"})
    stop_and_resume(request, ports, policy, done)


def _answer(request: StepRequest, ports: Ports, outcome: Outcome, why: str) -> None:
    ports.workflows.resume(token_of(request), result_of(request, ports, outcome, why))


def _drain(node: Node, ports: Ports) -> None:
    """Drain, and remember whether it was us, so that only what we did is undone.

    The intent is written first: a crash after the call must not leave a node draining for ever.
    """
    save_node(ports, node, drained_by_us=True)
    was_active = ports.scheduler.drain(node)
    if not was_active and not node.drained_by_us:
        save_node(ports, node, drained_by_us=False)
