"""Put another node in the broken one's place: a warm spare of the pool, or a new machine."""

from nodeheal.contract.results import Refused
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import NodeState, Outcome, Provider, Refusal
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.jobs.runs import nodes_of_gang
from nodeheal.services.recovery.replace_machine import give_up, is_under_way, replace_machine
from nodeheal.services.recovery.reserve_attempt import give_attempt_back, why_not_act
from nodeheal.services.recovery.stand_in import claim_spare, claimed_spare, put_in_place
from nodeheal.services.steps import node_of, result_of, token_of


def replace_node(request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> None:
    """Resumes at once where a spare is swapped in, else when the new machine's node has come up. Safe to repeat.

    Hybrid nodes (ECS Anywhere) have no API that makes a new one: for them there are spares, or there is nothing.
    """
    token = token_of(request)
    node = node_of(request.decision.node_id, ports)
    why_not = why_not_act(node, request, ports, NodeState.QUARANTINED)
    if why_not:
        if not is_under_way(request, ports):  # a call that comes again may find its own work undone by a human
            give_attempt_back(request, ports)
        ports.workflows.resume(token, result_of(request, ports, Outcome.REFUSED, why_not))
        return
    if _has_come_back(request, node, ports):
        give_attempt_back(request, ports, "it has booted by itself")
        told = f"boot {request.decision.boot_id[:8]}, on which it failed, had ended before it was replaced"
        back = result_of(
            request, ports, Outcome.REFUSED, told, facts=Refused(code=Refusal.NEW_BOOT, boot_id=node.boot_id)
        )
        ports.workflows.resume(token, back)
        return
    knobs = policy.pool(node.pool).replacement
    is_hybrid = node.provider is Provider.hybrid
    wants_spare = is_hybrid or (knobs.prefer_spare and not is_under_way(request, ports))
    if wants_spare and _swap(request, node, ports, policy):
        return
    if is_hybrid:
        give_up(request, ports, f"pool {node.pool} has no healthy spare without a job")
        return
    replace_machine(request, node, ports, knobs)


def _has_come_back(request: StepRequest, node: Node, ports: Ports) -> bool:
    """Whether it is on another boot than the one that gave the reason, and nothing was done for its replacement yet."""
    if request.decision.boot_id in ("", node.boot_id) or is_under_way(request, ports):
        return False
    return claimed_spare(node, request.incident_id, ports) is None


def _swap(request: StepRequest, node: Node, ports: Ports, policy: RecoveryPolicy) -> bool:
    """Resume with a spare. Repeating finds the spare that was claimed. False: there is none."""
    incident_id = request.incident_id
    gang = nodes_of_gang(request.decision.job_id, ports)
    spare = claimed_spare(node, incident_id, ports) or claim_spare(node, incident_id, ports, policy, gang)
    if spare is None:
        return False
    ports.workflows.resume(token_of(request), put_in_place(request, node, spare, ports))
    return True
