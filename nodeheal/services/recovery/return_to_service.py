"""Give a proven node back: undo our isolation, free the budget slot, start its probation."""

from dataclasses import replace
from datetime import datetime, timedelta

from nodeheal.contract.results import Returned, StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import NodeState, Outcome
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.holder import person_holding
from nodeheal.domain.fleet.node import Node, moved
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.situation import Situation
from nodeheal.operations.engine import with_decision
from nodeheal.operations.isolate import switch_on
from nodeheal.ports import Ports
from nodeheal.services.recovery.queue import wake_queue
from nodeheal.services.recovery.retire_broken import retire_broken
from nodeheal.services.saving import node_of
from nodeheal.services.scheduling import records_holder
from nodeheal.services.steps import add_timeline_entry, result_of, save_node


def return_to_service(request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> StepResult:
    """Give the node back, if the incident's own history proves it healthy, for any caller. Then decide what follows."""
    return with_decision(request, _return(request, ports, policy), ports)


def _return(request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> StepResult:
    node = node_of(request.decision.node_id, ports)
    if node.open_incident != request.incident_id:
        return result_of(request, ports, Outcome.REFUSED, f"it belongs to incident {node.open_incident or 'nobody'}")
    situation = Situation(ports.incidents.history(request.incident_id), policy)
    incident, progress, proof = situation.history.incident, situation.progress, situation.progress.proof
    if not progress.is_proven or proof is None or proof.boot_id != node.boot_id:
        return result_of(request, ports, Outcome.REFUSED, f"boot {node.boot_id[:8]} has passed no diagnostics")
    if node.node_id != incident.node_id:
        return _join(request, node, incident.node_id, proof.finished_at, ports, policy)
    # A node that was only diagnosed has nothing to show on probation.
    is_new = incident.needs_proof_only and not progress.tried
    until = ports.clock() + timedelta(seconds=0 if is_new else policy.probation_seconds)
    state = NodeState.HEALTHY if is_new else NodeState.PROBATION
    back = moved(node, state, request.decision.reason, ports.clock())
    _save_proven(replace(back, probation_until=until), proof.finished_at, ports)
    kept = _let_work(node, ports)
    ports.pools.release(node.pool, node.node_id)
    wake_queue(node.pool, ports)
    where = "in service" if is_new else f"back in service, on probation until {until:%H:%M:%S} UTC"
    reason = where.split(",")[0]
    if kept:
        reason = f"healed; its scheduler still gives it no work ({kept})"
        where = f"{reason}; on probation until {until:%H:%M:%S} UTC"
    add_timeline_entry(request, ports, "returned", f"{node.node_id} is {where}")
    facts = Returned(is_broken_left=False, kept_out=kept) if kept else None
    return result_of(request, ports, Outcome.DONE, reason, boot_id=node.boot_id, facts=facts)


def _save_proven(node: Node, passed_at: datetime, ports: Ports) -> None:
    """Over the very node that was read: on a boot that came since, nothing has passed."""
    if not ports.nodes.save(replace(node, healthy_since=passed_at, passed_at=passed_at)):
        raise NotAccepted(f"{node.node_id} is being written by others; it is given back later")


def _let_work(node: Node, ports: Ports) -> str:
    """Undo our isolation, after it is written that the node is in service, and forget it then: a crash between leaves
    a node that takes no work, and is made up for by the repeated call or by `nodes release`.

    Who keeps it out of service all the same, and why; empty: nobody, or nobody says.
    """
    if node.drained_by_us:
        kept = switch_on(node, ports)
        save_node(ports, node, drained_by_us=False)
        return kept
    scheduler = ports.scheduler_of(node)
    return person_holding(scheduler.gate.placement_of(node).held_by) if records_holder(scheduler) else ""


def _join(
    request: StepRequest, new: Node, broken_id: str, healthy_since: datetime, ports: Ports, policy: RecoveryPolicy
) -> StepResult:
    """A new machine has shown that it is fit: it serves, and the one that it replaces is given back."""
    _save_proven(new, healthy_since, ports)
    _let_work(new, ports)
    kept = retire_broken(broken_id, request, ports, policy)
    wake_queue(new.pool, ports)
    add_timeline_entry(request, ports, "returned", f"{new.node_id} serves in the place of {broken_id}")
    left = f"; {broken_id} could not be given back and stays for a human: {kept}" if kept else ""
    reason = f"{new.node_id} is in service{left}"
    return result_of(
        request, ports, Outcome.DONE, reason, boot_id=new.boot_id, facts=Returned(is_broken_left=bool(kept))
    )
