"""Give a proven node back: undo our isolation, free the budget slot, start its probation."""

from datetime import timedelta

from nodeheal.contract.steps import StepRequest, StepResult
from nodeheal.contract.vocabulary import NodeState, Outcome
from nodeheal.domain.node import moved
from nodeheal.domain.policy import RecoveryPolicy
from nodeheal.domain.progress import read_progress
from nodeheal.ports import Ports
from nodeheal.services.queue import wake_queue
from nodeheal.services.steps import node_of, result_of, save_node, tell


def return_to_service(request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> StepResult:
    """Only on proof: the incident's own history must show it, whoever calls."""
    node = node_of(request.decision.node_id, ports)
    if node.open_incident != request.incident_id:
        return result_of(request, ports, Outcome.REFUSED, f"it belongs to incident {node.open_incident or 'nobody'}")
    proof = read_progress(ports.incidents.history(request.incident_id), policy)
    if not proof.is_proven or proof.proof is None or proof.proof.boot_id != node.boot_id:
        return result_of(request, ports, Outcome.REFUSED, f"boot {node.boot_id[:8]} has passed no diagnostics")
    if node.drained_by_us:
        ports.scheduler.activate(node)
    back = moved(node, NodeState.PROBATION, request.decision.reason)
    until = ports.clock() + timedelta(seconds=policy.probation_seconds)
    save_node(
        ports,
        node,
        state=back.state,
        state_reason=back.state_reason,
        probation_until=until,
        drained_by_us=False,
        good_since=proof.proof.finished_at,
    )
    ports.pools.release(node.pool, node.node_id)
    wake_queue(node.pool, ports)
    tell(request, ports, "returned", f"{node.node_id} is back in service, on probation until {until:%H:%M:%S} UTC")
    return result_of(request, ports, Outcome.DONE, "back in service", boot_id=node.boot_id)
