"""Give a broken machine up, now that another node is proven in its place."""

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import NodeState, Provider
from nodeheal.domain.errors import MachineRefused
from nodeheal.domain.machine import GiveBack
from nodeheal.domain.node import moved
from nodeheal.ports import Ports
from nodeheal.services.consequences import why_paused
from nodeheal.services.steps import node_of, save_node, tell


def retire_broken(broken_id: str, request: StepRequest, ports: Ports) -> bool:
    """Terminate the machine, if it is there still, retire its node and free its slot of the disruption budget.

    Only where the caller has proof of the stand-in. Repeating it changes nothing. False: it stays for a human, because
    it is a hybrid node (nobody can give it back), is not this incident's, a human has it or its pool paused meanwhile,
    or EC2 will not give it up.
    """
    node = node_of(broken_id, ports)
    if node.state is NodeState.RETIRED:
        ports.pools.release(node.pool, node.node_id)
        return True
    if node.provider is Provider.hybrid or node.open_incident != request.incident_id:
        return False
    paused = why_paused(ports.incidents.history(request.incident_id).incident, ports)
    if paused:
        tell(request, ports, "not-given-back", f"{broken_id} is not terminated: {paused}")
        return False
    quarantined = moved(node, NodeState.QUARANTINED, node.state_reason)  # may raise: before anything is touched
    machine = ports.machines.describe(node.instance_id)
    if machine is not None:
        try:
            ports.machines.give_back(machine, GiveBack.TERMINATE)
        except MachineRefused as refusal:
            tell(request, ports, "not-given-back", f"{broken_id} could not be given back: {refusal}")
            return False
        tell(request, ports, "given-back", f"{broken_id} terminated, now that another node is proven in its place")
    retired = moved(quarantined, NodeState.RETIRED, "replaced by a proven node")
    save_node(ports, node, state=retired.state, state_reason=retired.state_reason, job_id=None)
    ports.pools.release(node.pool, node.node_id)
    return True
