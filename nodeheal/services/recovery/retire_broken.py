"""Terminates a broken machine, now that another node is proven in its place."""

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import NodeState, Provider
from nodeheal.domain.errors import MachineRefused
from nodeheal.domain.fleet.machine import Termination
from nodeheal.domain.fleet.node import Node, moved
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.guardrails import keep_machine_reason
from nodeheal.ports import Ports
from nodeheal.services.operators.describe_answer import why_paused
from nodeheal.services.saving import node_of
from nodeheal.services.steps import add_timeline_entry, save_node


def retire_broken(broken_id: str, request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> str:
    """Terminate the machine, if it is there still, retire its node and free its slot of the disruption budget.

    The caller must have proof of the replacement node. A repeated call changes nothing. Returns an empty string if the
    machine is gone, else the reason why a human must see to it: it is a hybrid node, it belongs to another incident, a
    person has asked for no action on it, or EC2 refuses to terminate it.
    """
    node = node_of(broken_id, ports)
    if node.state is NodeState.RETIRED:
        ports.pools.release(node.pool, node.node_id)
        return ""
    if node.provider is not Provider.ec2:  # HyperPod has taken its machine back before
        return f"it is a {node.provider} node"
    if node.open_incident != request.incident_id:
        return "it is not this incident's"
    quarantined = moved(
        node, NodeState.QUARANTINED, node.state_reason, ports.clock()
    )  # may raise: before anything is touched
    kept = _held(request, ports, policy) or _terminate(node, request, ports)
    if kept:
        add_timeline_entry(request, ports, "not-given-back", f"{broken_id} could not be given back: {kept}")
        return kept
    retired = moved(quarantined, NodeState.RETIRED, "replaced by a proven node", ports.clock())
    save_node(ports, node, state=retired.state, state_reason=retired.state_reason, job_id=None)
    ports.pools.release(node.pool, node.node_id)
    return ""


def _held(request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> str:
    incident = ports.incidents.incident(request.incident_id)
    return keep_machine_reason(incident, why_paused(incident, ports), policy, ports.clock())


def _terminate(node: Node, request: StepRequest, ports: Ports) -> str:
    """Why EC2 will not give it up; empty: it has, or it is gone."""
    machine = ports.machines.describe(node.instance_id)
    if machine is None:
        return ""
    try:
        ports.machines.terminate_instance(machine, Termination.TERMINATE)
    except MachineRefused as refusal:
        return str(refusal)
    add_timeline_entry(
        request, ports, "given-back", f"{node.node_id} terminated, now that another node is proven in its place"
    )
    return ""
