"""ISOLATE: drains a node and stops the gang that it blocks. Meanwhile the node saves its evidence."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from nodeheal.contract.names import isolation_line
from nodeheal.contract.results import Isolated, Refused, StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import NodeState, Outcome, Provider, Refusal, VerbName
from nodeheal.domain.errors import NodehealError, NotAccepted, NotEnrolled, NotFound
from nodeheal.domain.fleet.holder import person_holding
from nodeheal.domain.fleet.machine import IN_CHARGE, SWITCH_OFF, Machine, Remediator
from nodeheal.domain.fleet.node import Node, moved
from nodeheal.domain.fleet.pool import Slots
from nodeheal.domain.humanize import counted
from nodeheal.domain.operation import Operation, OperationState
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.timeline import NodeDrained
from nodeheal.operations.freeze_evidence import ask_ahead
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
from nodeheal.operations.handler import Handler, VerbContext, step_result
from nodeheal.operations.record import plan_step, update
from nodeheal.operations.stop_gang import stop_ranks
from nodeheal.ports import Ports
from nodeheal.ports.scheduler import Drained, NodePlacement, Scheduler
from nodeheal.services.jobs.runs import current_run
from nodeheal.services.recovery.new_node_places import has_place
from nodeheal.services.recovery.pool_size import slots_of
from nodeheal.services.recovery.queue import in_line_before, is_worked_on, wake_queue
from nodeheal.services.recovery.unmanaged_tasks import note_unknown, stop_unmanaged_tasks
from nodeheal.services.saving import node_of, save_changed
from nodeheal.services.scheduling import drains_at_once, is_behind_a_machine, is_looked_at_before_drain
from nodeheal.services.steps import add_timeline_entry, save_node

HOLDERS_TOLD = 5
_IN_SERVICE = NodePlacement("", is_schedulable=True)  # of a node that is looked at together with others
_TOGETHER = 10  # nodes that one call switches off: as many as AWS takes


def plan(request: StepRequest, ports: Ports) -> Operation:
    """The operation of this turn."""
    return plan_step(request, ports, VerbName.ISOLATE, owner_of(request))


@dataclass(frozen=True)
class _Isolation:
    """An isolation under way: its operation, its node as it was last read or written, and where that was seen."""

    operation: Operation
    node: Node
    placement: NodePlacement = _IN_SERVICE
    machine: Machine | None = None  # None: there is none any more, or no API knows it

    @property
    def holds_node(self) -> bool:
        """Whether the node is on record as isolated by it."""
        return self.node.state is NodeState.ISOLATED and self.node.open_incident == self.operation.incident_id


def _start(operation: Operation, world: VerbContext) -> Operation | StepResult:
    """Claim a budget slot, drain the node, stop its gang, ask for the evidence."""
    ports, request = world.ports, operation.step
    node = node_of(request.decision.node_id, ports)
    mine = _Isolation(operation, node, machine=_machine_of(node, ports))
    refused = _why_refused(mine, world)
    if refused is not None:
        return refused
    if not (record_of(operation).placement and mine.holds_node):  # a call or a batch before has not drained it
        try:
            drained = _drain(mine, world)
        except NotAccepted as error:
            _stand_in_line(mine, ports)
            if is_behind_a_machine(ports.scheduler_of(mine.node)):  # a throttled call is no news, and a storm has many
                add_timeline_entry(request, ports, "not-drained-yet", f"not drained yet, to be tried again: {error}")
            raise
        if isinstance(drained, StepResult):
            return drained
        operation = drained
    record = record_of(operation)
    placement = NodePlacement(record.placement, is_schedulable=False)
    if request.decision.is_of_idle_node and _has_work(node, placement, record.has_tasks, ports):
        return _give_back(operation, node, ports)
    if record.by_us:
        registry = ports.scheduler_of(node).registry
        with suppress(NotEnrolled, NotAccepted):  # only people read the tag: the gang is stopped without it
            if registry is not None:
                registry.show_isolation(node, placement, request.incident_id)
    add_timeline_entry(request, ports, "isolated", f"{node.node_id} takes no new work (draining)", NodeDrained())
    aside = _stop_others(operation, node, placement, world) if record.has_tasks else ""
    operation = stop_ranks(operation, world, aside)
    ask_ahead(request, world)
    return operation


def _has_work(node: Node, placement: NodePlacement, has_tasks: bool, ports: Ports) -> bool:
    """Whether tasks of others run on the drained node. Raises NotAccepted."""
    workloads = ports.scheduler_of(node).workloads
    return has_tasks and workloads is not None and bool(workloads.unmanaged_tasks(node, placement))


def _give_back(operation: Operation, node: Node, ports: Ports) -> StepResult:
    """Give the node back to the work that has begun there. That it is in service is written first: a call that breaks
    off leaves a node that takes no work, and the next one completes it.
    """
    node = save_node(ports, node, state=NodeState.HEALTHY, state_reason=node.state_reason)
    if node.drained_by_us:
        switch_on(node, ports)
        save_node(ports, node, drained_by_us=False)
    _free_slot(node, ports)
    return step_result(operation, ports.clock(), Outcome.REFUSED, "work of others has begun there")


def _stop_others(operation: Operation, node: Node, placement: NodePlacement, world: VerbContext) -> str:
    """Stop the tasks of others that may be stopped. The workflow asks a scheduler again that does not answer, for as
    long as an isolation may take; then the node is isolated all the same, and pods are deleted where the pool says so.
    """
    ports, request, drained_at = world.ports, operation.step, record_of(operation).drained_at or world.ports.clock()
    is_late = (ports.clock() - drained_at).total_seconds() >= request.decision.deadline_seconds
    listed = record_of(operation).tasks
    try:
        return stop_unmanaged_tasks(request, node, placement, ports, world.policy, listed, is_late=is_late)
    except NotAccepted as error:
        if not is_late:
            raise
        return note_unknown(request, node, str(error), ports)


def _why_refused(it: _Isolation, world: VerbContext) -> StepResult | None:
    """Returns the refusal of this isolation, before it claims anything. None: it may begin."""
    ports, request, node, now = world.ports, it.operation.step, it.node, world.ports.clock()
    if node.open_incident != request.incident_id:
        why = f"it belongs to incident {node.open_incident or 'nobody'}"
        return step_result(it.operation, now, Outcome.REFUSED, why)
    if request.decision.boot_id not in ("", node.boot_id) and node.state is not NodeState.ISOLATED:
        reason = f"it has booted since that was decided (boot {node.boot_id[:8]})"
        refused = Refused(code=Refusal.NEW_BOOT, boot_id=node.boot_id)
        return step_result(it.operation, now, Outcome.REFUSED, reason, facts=refused)
    remediator, theirs = _other_owner(it, ports, world.policy)
    why_not = theirs or _other_job(node, request, ports)
    if not why_not:
        return None
    facts = Refused(code=Refusal.EXTERNAL_REMEDIATOR, is_in_charge=remediator in IN_CHARGE) if theirs else None
    return step_result(it.operation, now, Outcome.REFUSED, why_not, facts=facts)


def _drain(mine: _Isolation, world: VerbContext) -> Operation | StepResult:
    """Switch the node off: by a call of its own, and together with others if it was throttled before."""
    ports, node = world.ports, mine.node
    scheduler = ports.scheduler_of(node)
    at_once = drains_at_once(scheduler)
    if at_once is not None:
        mine = replace(mine, operation=_wait_for_turn(mine, at_once, ports))
    if mine.operation.line is not None:
        with suppress(NotFound, NotEnrolled):  # the node's own call, below, shows whether it is this node
            together = _drain_together(mine, world)
            if together is not None:
                return together
    try:
        is_looked_at = is_looked_at_before_drain(scheduler)
        isolation = replace(mine, placement=scheduler.gate.placement_of(node) if is_looked_at else _IN_SERVICE)
    except NotFound as gone:  # found out before anything is marked, so that nothing stays isolated by accident
        return step_result(mine.operation, ports.clock(), Outcome.FAILED, str(gone))
    marked = _mark(isolation, world)
    if isinstance(marked, StepResult):
        return marked
    where = marked.placement.name
    if not marked.node.drained_by_us:
        theirs = Drained(where, has_tasks=True, held_by=marked.placement.held_by)
        return _note_drained(marked, theirs, ports)
    try:
        return _switch_off([marked], [where], ports)
    except (NotEnrolled, NotFound) as denied:
        _undo(node, ports)
        return step_result(mine.operation, ports.clock(), Outcome.FAILED, str(denied))


def _wait_for_turn(mine: _Isolation, at_once: int, ports: Ports) -> Operation:
    """Stand in the cluster's line, and go on as one of the first in it. The first ones take those behind along.

    Raises NotAccepted where enough others are before it: a machine that answers slowly would answer none in time.
    """
    operation = _stand_in_line(mine, ports)
    if operation.line is None:  # others have drained it meanwhile, or it is over
        return operation
    line, place = operation.line
    before = [
        operation
        for operation in ports.operations.queued(line)
        if operation.line is not None and operation.line[1] < place
    ]
    ahead = [operation for operation in before if not operation.is_over and operation.deadline_at > ports.clock()]
    if len(ahead) >= at_once:
        raise NotAccepted(
            f"the scheduler of cluster {mine.node.cluster.name} has {len(ahead)} drains to answer before it"
        )
    return operation


def _drain_together(mine: _Isolation, world: VerbContext) -> Operation | StepResult | None:
    """Switch off with one call the node and those behind it in line. None: this node goes by itself.

    The others pass the same checks as in their own functions, which then go on from the record.
    """
    ports, scheduler = world.ports, world.ports.scheduler_of(mine.node)
    wanted = [mine, *_behind(mine.operation, ports)]
    placements = _names_in_service(wanted, scheduler) if len(wanted) > 1 else ()
    if not placements:
        return None
    marked = _mark(mine, world)
    if isinstance(marked, StepResult) or not marked.node.drained_by_us:
        return marked if isinstance(marked, StepResult) else None
    others = [operation for operation in [_mark_other(it, world) for it in wanted[1:]] if operation is not None]
    # Marking takes a while. Leaves out nodes that lost their mark, or whose incident ended, in the meantime.
    others = [it for it in others if _Isolation(it.operation, node_of(it.node.node_id, ports)).holds_node]
    if len(others) < len(wanted) - 1:  # the names cannot be assigned to the nodes that are left
        placements = _names_in_service([marked, *others], scheduler)
    return _switch_off([marked, *others], placements, ports) if placements else None


def _names_in_service(isolations: Sequence[_Isolation], scheduler: Scheduler) -> Sequence[str]:
    """Returns the names under which one call drains all of these nodes. Empty: there is no such call."""
    nodes = [it.node for it in isolations]
    if not is_looked_at_before_drain(scheduler):
        return [node.node_id for node in nodes]
    return scheduler.registry.names_in_service(nodes) if scheduler.registry is not None else ()


def _behind(operation: Operation, ports: Ports) -> list[_Isolation]:
    """Returns the isolations behind it in line, read again, because the line's index lags."""
    isolations = []
    for owner, operation_id in ports.operations.behind(operation, _TOGETHER - 1):
        other = ports.operations.get(owner, operation_id)
        node = ports.nodes.get(other.node_id) if other is not None else None
        if other is None or node is None or other.line is None or other.is_over or other.deadline_at < ports.clock():
            continue
        isolations.append(_Isolation(other, node))
    return isolations


def _mark_other(it: _Isolation, world: VerbContext) -> _Isolation | None:
    """Mark another isolation's node. None: it is not to be switched off; its own function finds out why."""
    with suppress(NodehealError, ValueError):
        it = replace(it, machine=_machine_of(it.node, world.ports))
        if not is_worked_on(it.node, world.ports):  # its workflow has ended, and left it in line
            return None
        marked = _mark(it, world) if _why_refused(it, world) is None else None
        if isinstance(marked, _Isolation) and marked.node.drained_by_us:
            return marked
    return None


def _mark(it: _Isolation, world: VerbContext) -> _Isolation | StepResult:
    """Take a slot for the node, and record that it is isolated."""
    ports, request, node = world.ports, it.operation.step, it.node
    moved(node, NodeState.ISOLATED, request.decision.reason, ports.clock())  # may raise: before anything is taken
    slots, why_not = Slots(0), ""
    if not (request.decision.is_of_new_node and has_place(node, ports)):
        slots = slots_of(node.pool, ports, world.policy)
        why_not = _why_no_slot(node, slots, request, ports)
    if why_not:
        full = Refused(code=Refusal.BUDGET_FULL, slots=slots.total)
        return step_result(it.operation, ports.clock(), Outcome.REFUSED, why_not, facts=full)
    return _record_isolated(replace(it, operation=note(it.operation, ports)), ports)


def _switch_off(isolations: Sequence[_Isolation], placements: Sequence[str], ports: Ports) -> Operation:
    """Switch these nodes off with one call, and record it with each operation. The first one's as it is then.

    Raises NotFound where the scheduler does not know the first one's node any more.
    """
    nodes = [it.node for it in isolations]
    drained = ports.scheduler_of(nodes[0]).gate.drain_all(nodes, placements)
    if nodes[0].node_id not in drained:
        raise NotFound(f"{nodes[0].node_id} in cluster {nodes[0].cluster.name}: it could not be drained")
    mine, *_ = [_note_drained(it, drained[name], ports) for it in isolations if (name := it.node.node_id) in drained]
    return mine


def _note_drained(it: _Isolation, drained: Drained, ports: Ports) -> Operation:
    """Record it, and leave the line. Where the scheduler knows that others had taken the node, it stays theirs."""
    if person := person_holding(drained.held_by):
        it = replace(it, node=save_node(ports, it.node, drained_by_us=False))
        _tell_whose(it, person, ports)
    named = {"placement": drained.placement, "has_tasks": drained.has_tasks, "tasks": drained.tasks}
    is_reserved = it.machine is not None and it.machine.has_reserved_capacity
    facts = {
        "drained_at": ports.clock(),
        "by_us": it.node.drained_by_us,
        "has_reserved_capacity": is_reserved,
        **named,
    }

    def noted(operation: Operation) -> Operation:
        return replace(operation, line=None, data_json=record_of(operation).model_copy(update=facts).model_dump_json())

    return update(it.operation, ports, noted)


def _stand_in_line(it: _Isolation, ports: Ports) -> Operation:
    """Puts the node into its cluster's line: the next isolation whose call succeeds drains this node as well.

    The workflow repeats its own call all the same.
    """
    node = it.node
    line = (isolation_line(node.cluster.kind, node.cluster.name), f"{ports.clock():%Y-%m-%dT%H:%M:%SZ}#{node.node_id}")

    def standing(operation: Operation) -> Operation:
        if operation.is_over or operation.line is not None or record_of(operation).drained_at:
            return operation
        return replace(operation, state=OperationState.SENDING, line=line)

    return update(it.operation, ports, standing)


def _observe(operation: Operation, facts: GangFacts) -> StepResult | None:
    record, node = record_of(operation), facts.node
    left = ranks_left(record, facts.run)
    is_ours = node is not None and node.state is NodeState.ISOLATED and node.open_incident == operation.incident_id
    if facts.is_final and not (record.drained_at and is_ours):
        why = "it could not be drained"
        return step_result(operation, facts.now, Outcome.FAILED, why, facts=Isolated(is_drained=False))
    drained = Isolated(is_drained=True, has_reserved_capacity=record.has_reserved_capacity)
    if record.is_asked and not left:
        why = f"drained{', and its gang has stopped' if facts.run is not None else ''}{record.aside}"
        return step_result(operation, facts.now, Outcome.DONE, why, facts=drained)
    if not facts.is_final:
        return None
    why = f"not seen to stop within {operation.step.decision.deadline_seconds} s: {where_they_are(left)}"
    return step_result(operation, facts.now, Outcome.TIMED_OUT, why, facts=drained)


def _why_no_slot(node: Node, slots: Slots, request: StepRequest, ports: Ports) -> str:
    """Takes a slot for the node, and returns why it has none. Empty: it has one. Nodes in line come first."""
    ahead = in_line_before(request.incident_id, node.pool, ports)
    if ahead and node.node_id not in ports.pools.holders(node.pool):
        stand = counted(len(ahead), "incident stands", "incidents stand")
        return f"{stand} in line for the disruption budget of pool {node.pool}"
    if ports.pools.claim(node.pool, node.node_id, slots.total):
        return ""
    holders = ports.pools.holders(node.pool)
    shown = ", ".join(holders[:HOLDERS_TOLD]) + (", ..." if len(holders) > HOLDERS_TOLD else "")
    return f"the disruption budget of pool {node.pool} is full: {slots.taken(len(holders))} ({shown})"


def _machine_of(node: Node, ports: Ports) -> Machine | None:
    """Returns the node's machine. None: it is gone, or the node is hybrid, whose machine no API knows."""
    return None if node.provider is Provider.hybrid else ports.machines_of(node).describe(node.instance_id)


def _other_owner(it: _Isolation, ports: Ports, policy: RecoveryPolicy) -> tuple[Remediator | None, str]:
    """Returns who else repairs this node, and how to stop that. None: nobody, as far as its machine and its scheduler
    show.
    """
    node, accepted = it.node, policy.pool(it.node.pool).replacement.accept_owners
    for owner, detail in _owners(it, ports):
        if owner is not None and owner not in accepted:
            accept = f"or name {owner} in replacement.accept_owners of pool {node.pool}"
            return owner, f"{owner} repairs {node.node_id} as well ({detail}): {SWITCH_OFF[owner]}; {accept}"
    return None, ""


def _owners(it: _Isolation, ports: Ports) -> Iterator[tuple[Remediator | None, str]]:
    """Yield who repairs it as well, and how that is known. Of a machine that is gone the scheduler knows."""
    if it.machine is not None:
        yield it.machine.external_remediator, it.machine.remediator_detail
    conditions = ports.scheduler_of(it.node).conditions
    if conditions is not None:
        yield conditions.remediator_of(it.node)


def _other_job(node: Node, request: StepRequest, ports: Ports) -> str:
    """Returns the running job that was placed on the node since its incident began: no recovery would restart it."""
    if node.job_id in (None, request.decision.job_id):
        return ""
    _, run = current_run(node.job_id, ports)
    return f"{node.job_id} has been started on it since" if run is not None and not run.has_ended else ""


def _record_isolated(it: _Isolation, ports: Ports) -> _Isolation:
    """Record that the node is isolated, and whether by us: only what we did is undone at its return.

    What was seen before is written before, over the very node that was read before the look. A repeated call sees a
    node that is off, and knows from the record by whom. Nobody can tell whose switch came first where an operator's
    falls between the look and ours: a scheduler has no conditional one.
    """

    node, placement = it.node, it.placement

    def isolated(known: Node) -> Node:
        nonlocal placement
        if known is not node and is_looked_at_before_drain(ports.scheduler_of(known)):
            placement = ports.scheduler_of(known).gate.placement_of(
                known
            )  # others have written it, who may have drained it
        after = moved(known, NodeState.ISOLATED, it.operation.step.decision.reason, ports.clock())
        return replace(after, drained_by_us=known.drained_by_us or placement.is_schedulable)

    marked = save_changed(node, lambda: node_of(node.node_id, ports), ports.nodes.save, isolated, node.node_id)
    return replace(it, node=marked, placement=placement)


def _tell_whose(it: _Isolation, person: str, ports: Ports) -> None:
    reason = f"{it.node.node_id} was out of service before ({person}): nodeheal will not give it back"
    add_timeline_entry(it.operation.step, ports, "drained-by-others", reason)


def _undo(node: Node, ports: Ports) -> None:
    """Take back what is on record of an isolation that was denied: `node` is as it was before."""
    was = node.state if node.state is not NodeState.ISOLATED else NodeState.SUSPECT  # a call that crashed has marked it
    save_node(ports, node, state=was, state_reason=node.state_reason, drained_by_us=False)
    _free_slot(node, ports)


def _free_slot(node: Node, ports: Ports) -> None:
    ports.pools.release(node.pool, node.node_id)
    wake_queue(node.pool, ports)


def switch_on(node: Node, ports: Ports) -> str:
    """Undo the isolation. The caller deletes its record afterwards, so that a repeat completes it after a crash.

    Returns why the scheduler still gives it no work, because a person keeps it. Empty: it does.
    """
    scheduler = ports.scheduler_of(node)
    gate = scheduler.gate
    placement = gate.placement_of(node)
    if person := person_holding(placement.held_by):
        return person
    if scheduler.conditions is not None:
        with suppress(NotFound, NotAccepted):  # people only see it
            scheduler.conditions.clear(node)
    try:
        return person_holding(gate.undrain(node, placement))
    except NotEnrolled:
        if not placement.is_schedulable:
            raise
        # A call that crashed before its drain was denied has left a record, and nothing else: there is nothing to undo.
    return ""


HANDLER = Handler(_start, _observe, read_gang, refresh_ranks, may_repeat=True)
