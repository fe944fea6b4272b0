"""ISOLATE: a node gets no new work, and the gang that it holds up is stopped."""

from dataclasses import replace

from nodeheal.contract.results import Isolated, Refused, StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import NodeState, Outcome, Provider, Refusal, VerbName
from nodeheal.domain.errors import NotEnrolled, NotFound
from nodeheal.domain.fleet.machine import SWITCH_OFF, Remediator
from nodeheal.domain.fleet.node import Node, moved
from nodeheal.domain.humanize import counted
from nodeheal.domain.operation import Operation
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.operations.gang import (
    GangFacts,
    note,
    owner_of,
    ranks_left,
    read_gang,
    record_of,
    refresh_ranks,
    where_they_are,
)
from nodeheal.operations.handler import Handler, World, step_result
from nodeheal.operations.record import plan_step
from nodeheal.operations.stop_gang import stop_ranks
from nodeheal.ports import Ports
from nodeheal.ports.scheduler import NodePlacement
from nodeheal.services.jobs.runs import current_run
from nodeheal.services.recovery.new_node_places import has_place
from nodeheal.services.recovery.pool_size import slots_of
from nodeheal.services.recovery.queue import in_line_before, wake_queue
from nodeheal.services.recovery.unmanaged_tasks import stop_unmanaged_tasks
from nodeheal.services.saving import node_of, save_changed
from nodeheal.services.steps import add_timeline_entry, save_node

DRAINED = "isolated"
HOLDERS_TOLD = 5


def plan(request: StepRequest, ports: Ports) -> Operation:
    """The operation of this turn."""
    return plan_step(request, ports, VerbName.ISOLATE, owner_of(request))


def _start(operation: Operation, world: World) -> Operation | StepResult:
    """Claim a budget slot, drain the node, stop its gang."""
    ports, policy, request, now = world.ports, world.policy, operation.step, world.ports.clock()
    node = node_of(request.decision.node_id, ports)
    if node.open_incident != request.incident_id:
        why = f"it belongs to incident {node.open_incident or 'nobody'}"
        return step_result(operation, now, Outcome.REFUSED, why)
    if request.decision.boot_id not in ("", node.boot_id) and node.state is not NodeState.ISOLATED:
        told = f"it has booted since that was decided (boot {node.boot_id[:8]})"
        refused = Refused(code=Refusal.NEW_BOOT, boot_id=node.boot_id)
        return step_result(operation, now, Outcome.REFUSED, told, facts=refused)
    theirs = _other_owner(node, ports, policy)
    why_not = theirs or _other_job(node, request, ports)
    if why_not:
        facts = Refused(code=Refusal.EXTERNAL_REMEDIATOR) if theirs else None
        return step_result(operation, now, Outcome.REFUSED, why_not, facts=facts)
    try:
        placement = ports.scheduler_of(node).placement_of(node)
    except NotFound as gone:  # found out before anything is marked, so that nothing stays isolated by accident
        return step_result(operation, now, Outcome.FAILED, str(gone))
    moved(node, NodeState.ISOLATED, request.decision.reason, now)  # may raise: before anything is taken
    slots, why_not = 0, ""
    if not (request.decision.is_of_new_node and has_place(node, ports)):
        slots = slots_of(node.pool, ports, policy)
        why_not = _why_no_slot(node, slots, request, ports)
    if why_not:
        full = Refused(code=Refusal.BUDGET_FULL, slots=slots)
        return step_result(operation, now, Outcome.REFUSED, why_not, facts=full)
    operation = note(operation, ports)
    try:
        _switch_off(node, placement, request, ports)
    except NotEnrolled as denied:
        _undo(node, ports)
        return step_result(operation, now, Outcome.FAILED, str(denied))
    add_timeline_entry(request, ports, DRAINED, f"{node.node_id} takes no new work (draining)")
    aside = stop_unmanaged_tasks(request, node, placement, ports, policy)
    return stop_ranks(note(operation, ports, is_drained=True, aside=aside), world)


def _observe(operation: Operation, facts: GangFacts) -> StepResult | None:
    record, node = record_of(operation), facts.node
    left = ranks_left(record, facts.run)
    is_ours = node is not None and node.state is NodeState.ISOLATED and node.open_incident == operation.incident_id
    if facts.is_final and not (record.is_drained and is_ours):
        why = "it could not be drained"
        return step_result(operation, facts.now, Outcome.FAILED, why, facts=Isolated(is_drained=False))
    if record.is_asked and not left:
        why = f"drained, and its gang has stopped{record.aside}"
        return step_result(operation, facts.now, Outcome.DONE, why, facts=Isolated(is_drained=True))
    if not facts.is_final:
        return None
    why = f"not seen to stop within {operation.step.decision.deadline_seconds} s: {where_they_are(left)}"
    return step_result(operation, facts.now, Outcome.TIMED_OUT, why, facts=Isolated(is_drained=True))


def _why_no_slot(node: Node, slots: int, request: StepRequest, ports: Ports) -> str:
    """Take a slot for the node; empty: it has one. Whoever comes now does not pass those who stand in line."""
    ahead = in_line_before(request.incident_id, node.pool, ports)
    if ahead and node.node_id not in ports.pools.holders(node.pool):
        stand = counted(len(ahead), "incident stands", "incidents stand")
        return f"{stand} in line for the disruption budget of pool {node.pool}"
    if ports.pools.claim(node.pool, node.node_id, slots):
        return ""
    holders = ports.pools.holders(node.pool)
    shown = ", ".join(holders[:HOLDERS_TOLD]) + (", ..." if len(holders) > HOLDERS_TOLD else "")
    return f"the disruption budget of pool {node.pool} is full: {slots} of {slots} ({shown})"


def _other_owner(node: Node, ports: Ports, policy: RecoveryPolicy) -> str:
    """Who else repairs this node, and how to stop that; empty: nobody. Of hybrid nodes nobody could know."""
    if node.provider is Provider.hybrid:
        return ""
    machine = ports.machines.describe(node.instance_id)
    if machine is None or machine.external_remediator in (None, *policy.pool(node.pool).replacement.accept_owners):
        return ""  # of one that is gone, the scheduler has the last word
    owner = Remediator(str(machine.external_remediator))
    accept = f"or name {owner} in replacement.accept_owners of pool {node.pool}"
    return f"{owner} repairs {node.node_id} as well ({machine.remediator_detail}): {SWITCH_OFF[owner]}; {accept}"


def _other_job(node: Node, request: StepRequest, ports: Ports) -> str:
    """Which job has come to the node since its incident began; empty: none that runs. Nobody would bring it back."""
    if node.job_id in (None, request.decision.job_id):
        return ""
    _, run = current_run(node.job_id, ports)
    return f"{node.job_id} has been started on it since" if run is not None and not run.has_ended else ""


def _switch_off(node: Node, placement: NodePlacement, request: StepRequest, ports: Ports) -> None:
    """Switch the node off, unless somebody else has done so: only what we did is undone at its return.

    What was seen before is written before, over the very node that was read before the look. A repeated call sees a
    node that is off, and knows from the record by whom. Nobody can tell whose switch came first where an operator's
    falls between the look and ours: a scheduler has no conditional one.
    """

    def isolated(known: Node) -> Node:
        nonlocal placement
        if known is not node:  # written by others meanwhile, who may have drained it
            placement = ports.scheduler_of(known).placement_of(known)
        after = moved(known, NodeState.ISOLATED, request.decision.reason, ports.clock())
        return replace(after, drained_by_us=known.drained_by_us or placement.is_schedulable)

    marked = save_changed(node, lambda: node_of(node.node_id, ports), ports.nodes.save, isolated, node.node_id)
    if marked.drained_by_us:
        ports.scheduler_of(marked).drain(marked, placement, isolated_by=request.incident_id)


def _undo(node: Node, ports: Ports) -> None:
    """Take back what is on record of an isolation that was denied: `node` is as it was before."""
    was = node.state if node.state is not NodeState.ISOLATED else NodeState.SUSPECT  # a call that died has marked it
    save_node(ports, node, state=was, state_reason=node.state_reason, drained_by_us=False)
    ports.pools.release(node.pool, node.node_id)
    wake_queue(node.pool, ports)


def switch_on(node: Node, ports: Ports) -> None:
    """Undo the isolation. The caller forgets it afterwards, so that a crash between is made up for by a repeat."""
    placement = ports.scheduler_of(node).placement_of(node)
    try:
        ports.scheduler_of(node).undrain(node, placement)
    except NotEnrolled:
        if not placement.is_schedulable:
            raise
        # A call that died before its drain was denied has left a record, and nothing else: there is nothing to undo.


HANDLER = Handler(_start, _observe, read_gang, refresh_ranks, may_repeat=True)
