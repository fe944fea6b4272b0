"""Take a node out of service: no new work, and the gang that it holds up is stopped."""

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Awaited, NodeState, Outcome, Provider
from nodeheal.domain.errors import NotFound
from nodeheal.domain.machine import SWITCH_OFF, Owner
from nodeheal.domain.node import Node, moved
from nodeheal.domain.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.steps import node_of, result_of, save_node, tell, token_of
from nodeheal.services.stop_gang import current_run, stop_and_resume

DRAINED = "isolated"
HELD = "held_by"  # who had the slots, in the evidence of a refusal


def isolate_node(request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> None:
    """Claim a budget slot, drain the node, stop its gang. The workflow resumes when the gang has stopped."""
    node = node_of(request.decision.node_id, ports)
    if node.open_incident != request.incident_id:
        _answer(request, ports, Outcome.REFUSED, f"it belongs to incident {node.open_incident or 'nobody'}")
        return
    theirs = _other_owner(node, ports, policy) or _other_job(node, request, ports)
    if theirs:
        _answer(request, ports, Outcome.REFUSED, theirs)
        return
    try:
        ports.scheduler.placement(node)
    except NotFound as gone:  # found out before anything is marked, so that nothing stays isolated by accident
        _answer(request, ports, Outcome.FAILED, str(gone))
        return
    isolated = moved(node, NodeState.ISOLATED, request.decision.reason)  # may raise: before anything is taken
    slots = policy.pool(node.pool).budget.slots(len(ports.nodes.in_pool(node.pool)))
    if not ports.pools.claim(node.pool, node.node_id, slots):
        held = ", ".join(ports.pools.holders(node.pool))
        full = f"the disruption budget of pool {node.pool} is full: {slots} of {slots} ({held})"
        _answer(request, ports, Outcome.REFUSED, full, {"wait_for": Awaited.BUDGET.value, HELD: held})
        return
    save_node(ports, node, state=isolated.state, state_reason=isolated.state_reason)
    _drain(node, ports)
    tell(request, ports, DRAINED, f"{node.node_id} takes no new work (draining)")
    done = result_of(request, ports, Outcome.DONE, "drained, and its gang has stopped", evidence={"drained": "true"})
    stop_and_resume(request, ports, policy, done)


def _other_owner(node: Node, ports: Ports, policy: RecoveryPolicy) -> str:
    """Who else repairs this node, and how to stop that; empty: nobody. Of hybrid nodes nobody could know."""
    if node.provider is Provider.hybrid:
        return ""
    machine = ports.machines.describe(node.instance_id)
    if machine is None or machine.other_owner in (None, *policy.pool(node.pool).replacement.accept_owners):
        return ""  # of one that is gone, the scheduler has the last word
    owner = Owner(str(machine.other_owner))
    accept = f"or name {owner} in replacement.accept_owners of pool {node.pool}"
    return f"{owner} repairs {node.node_id} as well ({machine.owner_detail}): {SWITCH_OFF[owner]}; {accept}"


def _other_job(node: Node, request: StepRequest, ports: Ports) -> str:
    """Which job has come to the node since its incident began; empty: none that runs. Nobody would bring it back."""
    if node.job_id in (None, request.decision.job_id):
        return ""
    _, run = current_run(node.job_id, ports)
    return f"{node.job_id} has been started on it since" if run is not None and not run.has_ended else ""


def _answer(
    request: StepRequest, ports: Ports, outcome: Outcome, why: str, evidence: dict[str, str] | None = None
) -> None:
    ports.workflows.resume(token_of(request), result_of(request, ports, outcome, why, evidence=evidence))


def _drain(node: Node, ports: Ports) -> None:
    """Drain, and remember whether it was us, so that only what we did is undone.

    The intent is written first: a crash after the call must not leave a node draining for ever.
    """
    save_node(ports, node, drained_by_us=True)
    was_active = ports.scheduler.drain(node)
    if not was_active and not node.drained_by_us:
        save_node(ports, node, drained_by_us=False)
