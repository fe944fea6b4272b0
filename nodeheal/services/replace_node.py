"""Put another node in the broken one's place.

Hybrid nodes (ECS Anywhere) have no API that makes a new one: a warm spare of the pool takes over, and the broken node
stays out of service for a human.
"""

from dataclasses import replace

from nodeheal.contract.steps import StepRequest, StepResult
from nodeheal.contract.vocabulary import NodeState, Outcome, Provider
from nodeheal.domain.node import Node, moved
from nodeheal.ports import Ports
from nodeheal.services.reserve_attempt import refund_attempt, why_not_act
from nodeheal.services.steps import node_of, result_of, save_node, tell


def replace_node(request: StepRequest, ports: Ports) -> StepResult:
    """Claim a spare for this incident and quarantine the broken node. Repeating finds the spare that was claimed."""
    node = node_of(request.decision.node_id, ports)
    why_not = _why_not(node, request, ports)
    if why_not:
        return result_of(request, ports, Outcome.REFUSED, why_not)
    spare = claimed_spare(node, request.incident_id, ports) or _claim_spare(node, request.incident_id, ports)
    if spare is None:
        # Nothing was touched, so nothing is spent: the attempt is there again when a spare is.
        refund_attempt(request, ports)
        tell(request, ports, "attempt-refunded", "attempt given back: nothing was touched")
        return result_of(request, ports, Outcome.REFUSED, f"pool {node.pool} has no healthy spare without a job")
    return finish_swap(request, node, spare, ports)


def finish_swap(request: StepRequest, node: Node, spare: Node, ports: Ports) -> StepResult:
    """Put the broken node away once its spare is claimed."""
    quarantined = moved(node, NodeState.QUARANTINED, request.decision.reason)
    save_node(ports, node, state=quarantined.state, state_reason=quarantined.state_reason, job_id=None)
    tell(request, ports, "swapped", f"spare {spare.node_id} stands in for {node.node_id}, which is quarantined")
    reason = f"swapped for spare {spare.node_id}"
    return result_of(request, ports, Outcome.DONE, reason, boot_id=spare.boot_id, replacement_node_id=spare.node_id)


def claimed_spare(broken: Node, incident_id: str, ports: Ports) -> Node | None:
    """The spare that this incident holds already."""
    others = (ports.nodes.get(n.node_id) for n in ports.nodes.in_pool(broken.pool) if n.node_id != broken.node_id)
    return next((n for n in others if n is not None and n.open_incident == incident_id), None)


def _claim_spare(broken: Node, incident_id: str, ports: Ports) -> Node | None:
    for seen in ports.nodes.in_pool(broken.pool):
        node = ports.nodes.get(seen.node_id)  # the list lags; the claim is made on what is stored
        usable = node is not None and node.node_id != broken.node_id and node.is_available(ports.clock())
        if node is not None and usable and ports.nodes.save(replace(node, open_incident=incident_id)):
            return node
    return claimed_spare(broken, incident_id, ports)  # a claim whose answer was lost looks like a lost race


def _why_not(node: Node, request: StepRequest, ports: Ports) -> str:
    if node.provider is not Provider.hybrid:
        return f"replacing {node.provider} nodes is not built yet; only hybrid nodes are swapped for a spare"
    return why_not_act(node, request, ports, NodeState.QUARANTINED)
