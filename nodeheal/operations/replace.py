"""REPLACE: put another node in the broken one's place: a warm spare of the pool, or a new machine.

In an Auto Scaling group the group makes the machine: the broken one is given back, and the group's next node is taken.
So does a HyperPod cluster, whose instance group is the group: the broken machine loses all its volumes.
Without a group the new one is launched first, from the broken one's launch template, and the broken one is kept until
the new one is proven (`retire_broken`). How far this is stands in the record before EC2 is asked for anything, so a
repeated call never gives back or launches twice.

A scheduler that starts its jobs by itself gives a new machine work at once. There the group or the scheduler's
own cluster makes it, and nodeheal neither takes a spare nor diagnoses the new node.

EC2's and Auto Scaling's events are best effort, and come twice or in any order. So none of them decides alone: a new
node is taken when its own agent has reported its boot, and whichever event comes last finds what the others recorded.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from nodeheal.contract.health_event import Frozen, UtcTime
from nodeheal.contract.names import group_line, machine_line
from nodeheal.contract.results import Facts as ResultFacts
from nodeheal.contract.results import Refused, Replaced, StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import NodeState, Outcome, Provider, Refusal, VerbName
from nodeheal.domain.errors import MachineRefused, NoCapacity, NotAccepted, NotFound, PlacementRefused
from nodeheal.domain.fleet.machine import Launch, Machine, Termination, alternatives_of
from nodeheal.domain.fleet.node import Node, moved
from nodeheal.domain.fleet.pause import Pauses
from nodeheal.domain.operation import Operation, OperationState, node_owner
from nodeheal.domain.policy.policy_models import InGroup, Replacement
from nodeheal.domain.recovery.recover import cause_of
from nodeheal.domain.recovery.timeline import MachineRecorded, TimelineEntry
from nodeheal.operations.handler import Handler, NextActDue, OperationFacts, VerbContext, step_result
from nodeheal.operations.record import plan_step, update
from nodeheal.ports import Ports
from nodeheal.services.jobs.runs import nodes_of_gang
from nodeheal.services.recovery.reserve_attempt import give_attempt_back, refund_attempt, reserve_for_node_or_why_not
from nodeheal.services.recovery.spares import claim_node, claim_spare, claimed_spare
from nodeheal.services.saving import node_of
from nodeheal.services.scheduling import may_keep_idle
from nodeheal.services.steps import add_timeline_entry, clear_if_owner, enter_state, save_node

_GONE = "gone"


class ReplacementPhase(StrEnum):
    """How far it is."""

    NOTHING_ASKED = "NOTHING_ASKED"
    GROUP_ASKED = "GROUP_ASKED"  # the Auto Scaling group is to make a machine
    TERMINATING = "TERMINATING"  # the broken machine is to make room; when it is gone, the next call launches
    LAUNCHING = "LAUNCHING"  # EC2 launches once for one token, so a repeated call may ask again
    LAUNCHED = "LAUNCHED"


class _Record(Frozen):
    """`new_node_id`: the node that takes the broken one's place, as first written.

    The last four fields are what EC2 and Auto Scaling have said.
    """

    phase: ReplacementPhase = ReplacementPhase.NOTHING_ASKED
    since: UtcTime | None = None  # what was launched before is no replacement
    serves_at_once: bool = False  # its scheduler gives the new machine work by itself
    by_cluster: bool = False  # the scheduler's cluster is to make a machine, and `group` names it, if one is waited for
    has_slot: bool = False  # it may hold one of the pool's slots for replacements
    group: str = ""  # the Auto Scaling group that is to make a machine
    launched: str = ""  # the machine that was launched for it
    is_given_back: bool = False  # EC2 has taken the broken machine away, or will
    new_node_id: str = ""
    is_spare: bool = False
    launch_failed: str = ""  # why the group could not launch a machine
    group_launched: str = ""  # the machine that the group has launched last
    group_refused: str = ""  # why nothing can be known of the group
    machine_state: str = ""  # of the machine that was launched

    @property
    def waits_for_end(self) -> bool:
        """Whether the cluster makes machines only where work needs them, so that only the broken one's end is due."""
        return self.phase is ReplacementPhase.GROUP_ASKED and self.by_cluster and not self.group


@dataclass(frozen=True)
class ReplaceFacts(OperationFacts):
    """`new`: the node that takes the broken one's place."""

    new: Node | None = None


def plan(request: StepRequest, ports: Ports) -> Operation:
    """The operation of this turn."""
    return plan_step(request, ports, VerbName.REPLACE, node_owner(request.decision.node_id))


def is_made_for(operation: Operation, node: Node, machine: Machine | None) -> bool:
    """Whether the group made this machine after the incident asked for one. An idle sibling is no replacement.

    For a machine that a cluster made, only the first boot of its node is known.
    """
    record = read_record(operation)
    if record.since is None:
        return False
    if record.by_cluster:
        return _cluster_of(node) == record.group and node.booted_at >= record.since
    if machine is None or machine.group != record.group:
        return False
    return machine.launched_at is not None and machine.launched_at >= record.since


def groups_of(node: Node, machine: Machine | None, ports: Ports) -> list[str]:
    """Returns the makers of a new node's machine: its Auto Scaling group, its scheduler's cluster."""
    groups = [machine.group] if machine is not None and machine.group else []
    return [*groups, *([_cluster_of(node)] if ports.scheduler_of(node).machines is not None else [])]


def take_new_node(operation: Operation, new: Node, ports: Ports) -> Operation:
    """Record that this node takes the broken one's place, if the operation still wants one and the node is free.

    Two conditional writes: the node names its incident, the operation names its node. The first of each holds.
    """
    request, record = operation.step, read_record(operation)
    if operation.is_over or record.new_node_id:
        return operation
    if node_of(operation.node_id, ports).open_incident != request.incident_id:
        return operation  # a human has given the broken node back, or up, in the meantime
    fresh, pauses = node_of(new.node_id, ports), ports.pauses.read()
    if record.launched != fresh.node_id and not _may_be_new(fresh, operation, pauses, ports):
        return operation
    if not claim_node(fresh.node_id, request.incident_id, pauses, ports):
        return operation
    known = update(operation, ports, lambda operation: _taken(operation, fresh.node_id))
    if not has_taken(known, fresh.node_id):
        clear_if_owner(ports, fresh.node_id, open_incident=request.incident_id)
    return known


def has_taken(operation: Operation, node_id: str) -> bool:
    """Whether this node takes the broken one's place."""
    return read_record(operation).new_node_id == node_id


def launch_failed(operation: Operation, launch: Launch, ports: Ports) -> Operation:
    """Record that the group could not launch a machine. One that failed before the incident asked is another's."""
    since = read_record(operation).since
    if since is None or launch.at < since:
        return operation
    return update(operation, ports, lambda operation: _with(operation, launch_failed=launch.failed))


def _start(operation: Operation, world: VerbContext) -> Operation | StepResult:
    """The next act: a spare, a request to the group, the termination that makes room, or the launch."""
    ports, request, record = world.ports, operation.step, read_record(operation)
    node, now = node_of(operation.node_id, ports), ports.clock()
    is_untouched = record.phase is ReplacementPhase.NOTHING_ASKED
    why_not = reserve_for_node_or_why_not(node, request, ports, NodeState.QUARANTINED)
    if why_not:
        if is_untouched:
            give_attempt_back(request, ports)
        return step_result(operation, now, Outcome.REFUSED, why_not)
    knobs = world.policy.pool(node.pool).replacement
    if not may_keep_idle(ports.scheduler_of(node)):
        return _replace_in_cluster(operation, node, knobs, ports)
    is_hybrid = node.provider is Provider.hybrid
    if is_untouched:
        spare = claimed_spare(node, request.incident_id, ports)
        if spare is None and request.decision.boot_id not in ("", node.boot_id):
            return _refused_for_new_boot(operation, node, now, ports)
        if spare is None and (is_hybrid or knobs.prefer_spare):
            gang = nodes_of_gang(request.decision.job_id, ports)
            job = ports.jobs.get(request.decision.job_id) if request.decision.job_id else None
            spare = claim_spare(node, request.incident_id, ports, world.policy, gang, job)
        if spare is not None:
            node_id = spare.node_id
            return update(operation, ports, lambda operation: _moved_on(operation, new_node_id=node_id, is_spare=True))
    if is_hybrid:  # no API makes a machine on premises
        return _refused(operation, f"pool {node.pool} has no healthy spare without a job", ports)
    return _replace_machine(operation, node, knobs, ports)


def _replace_in_cluster(operation: Operation, node: Node, knobs: Replacement, ports: Ports) -> Operation | StepResult:
    """Have the cluster, or an Auto Scaling group, make the new machine. A spare may have jobs of its scheduler."""
    request, record = operation.step, read_record(operation)
    if record.phase is ReplacementPhase.NOTHING_ASKED and request.decision.boot_id not in ("", node.boot_id):
        return _refused_for_new_boot(operation, node, ports.clock(), ports)
    maker = ports.scheduler_of(node).machines
    if maker is None or knobs.by_cluster is None or node.provider is Provider.hyperpod:
        if node.provider is Provider.hybrid:
            return _refused(operation, _no_way(node, ports), ports)
        operation = update(operation, ports, lambda operation: _with(operation, serves_at_once=True))
        return _replace_machine(operation, node, knobs, ports)
    operation = update(operation, ports, lambda operation: _with(operation, has_slot=True, serves_at_once=True))
    refused = _enter(operation, node, knobs, ports)
    if refused is not None:
        return refused
    since = record.since or ports.clock().replace(microsecond=0)
    how = knobs.by_cluster
    if how.makes_on_demand:
        asked = update(
            operation,
            ports,
            lambda operation: _moved_on(operation, phase=ReplacementPhase.GROUP_ASKED, by_cluster=True),
        )
    else:
        asked = _in_line_of(operation, _cluster_of(node), ports, by_cluster=True, since=since)
    try:
        maker.have_replaced(node, how, _addresses_of_others(node, ports))
    except NotAccepted:
        update(asked, ports, _with_nothing_asked)
        raise
    except (PlacementRefused, NotFound) as refusal:
        back = update(asked, ports, _with_nothing_asked)
        return _refused(back, str(refusal), ports)
    text = f"{node.node_id} left to its cluster to replace ({how})"
    add_timeline_entry(request, ports, "given-up", text)
    return _find_new_node(update(asked, ports, lambda operation: _with(operation, is_given_back=True)), ports)


def _no_way(node: Node, ports: Ports) -> str:
    """Why nothing can make another machine for a node of such a scheduler, and what to do."""
    what = f"{node.node_id} is in no Auto Scaling group, and"
    if ports.scheduler_of(node).machines is None:
        return f"{what} {node.cluster.kind} makes no machines for its cluster"
    ways = "power_down (ParallelCluster) or delete_node_claim (Karpenter)"
    return f"{what} pool {node.pool} has no replacement.by_cluster: set it to {ways}"


def _addresses_of_others(node: Node, ports: Ports) -> set[str]:
    """Returns the addresses that the other nodes' agents reported. A retired node's address may be in use again."""
    known = (other for pool in ports.fleet_index.pools() for other in ports.nodes.in_pool(pool))
    others = (other for other in known if other.node_id != node.node_id and other.state is not NodeState.RETIRED)
    return {other.address for other in others if other.cluster == node.cluster} - {""}


def _cluster_of(node: Node) -> str:
    """Returns the part of a cluster that makes its machines. No Auto Scaling group's name begins with a slash."""
    return f"/{node.cluster.kind}/{node.cluster.name}/{node.pool}"


def _refused_for_new_boot(operation: Operation, node: Node, now: datetime, ports: Ports) -> StepResult:
    """The node is on another boot than the one that gave the reason, and nothing was done for its replacement yet."""
    give_attempt_back(operation.step, ports, "it has booted by itself")
    why = f"boot {operation.step.decision.boot_id[:8]}, on which it failed, had ended before it was replaced"
    code = Refused(code=Refusal.NEW_BOOT, boot_id=node.boot_id)
    return step_result(operation, now, Outcome.REFUSED, why, facts=code)


def _replace_machine(operation: Operation, node: Node, knobs: Replacement, ports: Ports) -> Operation | StepResult:
    request, record = operation.step, read_record(operation)
    # EC2 lists a machine for a while after it is terminated.
    alive = None if record.phase is ReplacementPhase.TERMINATING else ports.machines_of(node).describe(node.instance_id)
    machine = alive if alive is not None else _recorded_machine(request, ports)[1]
    if machine is None:
        why = f"{node.instance_id} is gone: no such instance is there to be replaced"
        return _refused(operation, why, ports, Refused(code=Refusal.INSTANCE_GONE))
    if record.serves_at_once and not machine.group:
        return _refused(operation, _no_way(node, ports), ports)
    if not machine.group and not machine.launch_template:
        why = "is in no Auto Scaling group and comes from no launch template: there is nothing to make another from"
        return _refused(operation, f"{node.instance_id} {why}", ports)
    since = record.since or _record_machine(request, machine, ports)
    # Stored before the slot is claimed: a slot without an operation shows a crash.
    operation = update(operation, ports, lambda operation: _with(operation, has_slot=True, since=since))
    refused = _enter(operation, node, knobs, ports)
    if refused is not None:
        return refused
    if machine.group:
        return _ask_group(operation, machine.group, alive, knobs, ports)
    if knobs.terminate_first and alive is not None and record.phase is not ReplacementPhase.LAUNCHING:
        return _terminate_first(operation, alive, ports)
    return _launch(operation, machine, knobs, ports)


def _enter(operation: Operation, node: Node, knobs: Replacement, ports: Ports) -> StepResult | None:
    """Take one of the pool's slots for replacements, and record that the node is being replaced."""
    if not _claim_slot(node, knobs.max_nodes, ports):
        why = f"{knobs.max_nodes} of {knobs.max_nodes} replacements of pool {node.pool} are under way"
        return _refused(operation, why, ports, Refused(code=Refusal.REPLACEMENTS_FULL))
    if node.state is NodeState.ISOLATED:
        enter_state(ports, node, NodeState.RECOVERING, f"replacing: {operation.step.decision.reason}")
    return None


def _in_line_of(operation: Operation, group: str, ports: Ports, **known: object) -> Operation:
    """Record that this group, or cluster, is asked for a machine, the most urgent first."""
    line = (group_line(group), f"{operation.deadline_at:%Y-%m-%dT%H:%M:%S}#{operation.node_id}")
    return update(
        operation,
        ports,
        lambda operation: replace(
            _moved_on(operation, phase=ReplacementPhase.GROUP_ASKED, group=group, **known), line=line
        ),
    )


def _ask_group(
    operation: Operation, group: str, alive: Machine | None, knobs: Replacement, ports: Ports
) -> Operation | StepResult:
    asked = _in_line_of(operation, group, ports)
    if alive is not None:
        how = Termination.MARK_UNHEALTHY if knobs.in_group is InGroup.mark_unhealthy else Termination.TERMINATE
        done = "terminated in" if how is Termination.TERMINATE else "marked unhealthy in"
        text = f"{operation.node_id} {done} group {group}, which makes another"
        if alive.hyperpod_cluster:
            text = f"{operation.node_id} given to HyperPod to replace, with all its volumes ({alive.hyperpod_cluster})"
        given = _give_back(asked, alive, how, text, ports)
        if isinstance(given, StepResult):
            return given
        asked = given
    return _find_new_node(asked, ports)  # a group that had no capacity for an earlier attempt may have had it since


def _terminate_first(operation: Operation, alive: Machine, ports: Ports) -> Operation | StepResult:
    asked = update(operation, ports, lambda operation: _moved_on(operation, phase=ReplacementPhase.TERMINATING))
    text = f"{operation.node_id} terminated, to make room for its successor"
    return _give_back(asked, alive, Termination.TERMINATE, text, ports)


def _give_back(asked: Operation, machine: Machine, how: Termination, text: str, ports: Ports) -> Operation | StepResult:
    """Terminates the broken machine. If EC2 provably refused, nothing was requested."""
    try:
        ports.machines_of(node_of(asked.node_id, ports)).terminate_instance(machine, how)
    except NotAccepted:
        update(asked, ports, _with_nothing_asked)
        raise
    except MachineRefused as refusal:
        back = update(asked, ports, _with_nothing_asked)
        return _refused(back, str(refusal), ports)
    add_timeline_entry(asked.step, ports, "given-up", text)
    return update(asked, ports, lambda operation: _with(operation, is_given_back=True))


def _launch(operation: Operation, machine: Machine, knobs: Replacement, ports: Ports) -> Operation | StepResult:
    """Launch the successor. The token names this turn, so a repeated call launches no second one."""
    request = operation.step
    places = alternatives_of(machine, knobs.subnets, knobs.instance_types)
    # PLANNED, because it may be asked for again.
    launching = update(
        operation, ports, lambda operation: _as(operation, OperationState.PLANNED, phase=ReplacementPhase.LAUNCHING)
    )
    try:
        new = ports.machines.launch(machine, f"{request.incident_id[-50:]}-{request.operation_turn}", places)
    except NoCapacity as short:
        return _no_capacity(launching, machine, short, knobs, ports)
    except MachineRefused as refusal:
        return _refused(launching, str(refusal), ports)
    launched = update(
        launching,
        ports,
        lambda operation: replace(
            _moved_on(operation, phase=ReplacementPhase.LAUNCHED, launched=new), line=(machine_line(new), new)
        ),
    )
    text = f"{new} launched from {machine.launch_template}, to take {operation.node_id}'s place"
    add_timeline_entry(request, ports, "launched", text)
    return _find_new_node(launched, ports)


def _no_capacity(
    operation: Operation, machine: Machine, short: NoCapacity, knobs: Replacement, ports: Ports
) -> StepResult:
    if short.is_reservation and not knobs.terminate_first:
        why = f"reservation {machine.reservation} is full with the broken machine in it: make room, or let the pool's "
        code = Refused(code=Refusal.RESERVATION_FULL, missing=machine.reservation)
        return _refused(operation, f"{why}policy say replacement.terminate_first", ports, code)
    code = Refused(code=Refusal.NO_CAPACITY, missing=str(short))
    return _refused(operation, f"no machine is to be had: {short}", ports, code)


def _refused(operation: Operation, why: str, ports: Ports, facts: ResultFacts | None = None) -> StepResult:
    """Refunds the attempt, because nothing was replaced."""
    is_given_back = read_record(operation).is_given_back
    give_attempt_back(operation.step, ports, "no machine was to be had in its place" if is_given_back else "")
    return step_result(operation, ports.clock(), Outcome.REFUSED, why, facts=facts)


def _find_new_node(operation: Operation, ports: Ports) -> Operation:
    """Looks for the new node among the known ones: its events may have been lost, or have come before."""
    record = read_record(operation)
    if record.launched:
        node = ports.nodes.get(record.launched)
        return take_new_node(operation, node, ports) if node is not None else operation
    if not record.group:
        return operation
    pauses = ports.pauses.read()
    for node in ports.nodes.in_pool(node_of(operation.node_id, ports).pool):
        if not _may_be_new(node, operation, pauses, ports):
            continue
        machine = ports.machines_of(node).describe(node.instance_id) if not record.by_cluster else None
        if is_made_for(operation, node, machine):
            operation = take_new_node(operation, node, ports)
            if has_taken(operation, node.node_id):
                break
    return operation


def _may_be_new(node: Node, operation: Operation, pauses: Pauses, ports: Ports) -> bool:
    """Whether the node has come up for the first time, and no incident or job has it."""
    is_ours = node.open_incident == operation.incident_id
    is_another = not node.past_boots and node.node_id != operation.node_id
    return is_another and (is_ours or node.is_available(ports.clock(), pauses))


def _read(operation: Operation, ports: Ports) -> ReplaceFacts:
    new = read_record(operation).new_node_id
    return ReplaceFacts(ports.clock(), new=node_of(new, ports) if new else None)


def _refresh(operation: Operation, ports: Ports) -> Operation:
    record = read_record(operation)
    if record.phase is ReplacementPhase.NOTHING_ASKED:
        broken = node_of(operation.node_id, ports)
        spare = claimed_spare(broken, operation.incident_id, ports)
        if spare is None:
            return operation
        node_id = spare.node_id
        return update(operation, ports, lambda operation: _with(operation, new_node_id=node_id, is_spare=True))
    operation = _find_new_node(operation, ports)
    if read_record(operation).new_node_id:
        return operation
    if record.waits_for_end:
        broken = node_of(operation.node_id, ports)
        is_gone = ports.machines_of(broken).describe(broken.instance_id) is None
        return update(
            operation, ports, lambda operation: replace(operation, is_machine_gone=operation.is_machine_gone or is_gone)
        )
    fields = (
        _group_says(operation, ports) if record.phase is ReplacementPhase.GROUP_ASKED and not record.by_cluster else {}
    )
    if record.phase is ReplacementPhase.LAUNCHED:
        machine = ports.machines.describe(record.launched)
        fields = {"machine_state": machine.state if machine is not None else _GONE}
    return update(operation, ports, lambda operation: _with(operation, **fields))


def _group_says(operation: Operation, ports: Ports) -> dict[str, str]:
    record = read_record(operation)
    try:
        machines = ports.machines_of(node_of(operation.node_id, ports))
        launches = machines.launches(record.group, record.since or operation.deadline_at)
    except MachineRefused as refusal:
        return {"group_refused": str(refusal)}
    return {"launch_failed": launches[-1].failed, "group_launched": launches[-1].machine_id} if launches else {}


def _observe(operation: Operation, facts: ReplaceFacts) -> StepResult | NextActDue | None:
    record = read_record(operation)
    if facts.new is not None:
        return _replaced(operation, record, facts.new, facts.now)
    if record.launch_failed:
        why = f"group {record.group} could not launch a machine: {record.launch_failed}"
        code = Refused(code=Refusal.NO_CAPACITY, missing=record.launch_failed)
        return step_result(operation, facts.now, Outcome.REFUSED, why, facts=code)
    if record.waits_for_end and operation.is_machine_gone:
        why = "its machine has ended; the cluster makes another where work needs one"
        return step_result(operation, facts.now, Outcome.DONE, why, facts=Replaced(serves_at_once=True))
    if facts.is_final:
        return _final(operation, record, facts.now)
    return NextActDue() if record.phase is ReplacementPhase.TERMINATING and operation.is_machine_gone else None


def _replaced(operation: Operation, record: _Record, new: Node, now: datetime) -> StepResult:
    return step_result(
        operation,
        now,
        Outcome.DONE,
        f"swapped for {_kind(record)} {new.node_id}",
        boot_id=new.boot_id,
        replacement_node_id=new.node_id,
        facts=None if record.is_spare else Replaced(is_new_machine=True, serves_at_once=record.serves_at_once),
    )


def _final(operation: Operation, record: _Record, now: datetime) -> StepResult:
    match record.phase:
        case ReplacementPhase.NOTHING_ASKED:
            why = "no spare was claimed, and no machine was asked for"
            return step_result(operation, now, Outcome.FAILED, why)
        case ReplacementPhase.LAUNCHING:
            return step_result(operation, now, Outcome.FAILED, "EC2 was asked for a machine, and has not answered")
        case ReplacementPhase.TERMINATING:
            why = f"{operation.node_id} was to be terminated first; its successor was not launched in time"
            return step_result(operation, now, Outcome.TIMED_OUT, why)
        case ReplacementPhase.LAUNCHED if record.machine_state == _GONE:
            return step_result(operation, now, Outcome.FAILED, f"{record.launched} was launched, and is gone again")
        case ReplacementPhase.LAUNCHED:
            what = f"{record.launched} was launched and is {record.machine_state}"
            return _not_up(operation, what, record.launched, now)
        case ReplacementPhase.GROUP_ASKED if record.waits_for_end:
            why = f"{operation.node_id} was left to its cluster to end, which has not done so in time"
            return step_result(operation, now, Outcome.TIMED_OUT, why)
        case ReplacementPhase.GROUP_ASKED:
            if record.by_cluster:
                return _not_up(operation, "its cluster was asked for a machine", "", now)
            group, machine = record.group, record.group_launched
            if record.group_refused:
                why = f"group {group} makes no machine: {record.group_refused}"
                return step_result(operation, now, Outcome.FAILED, why)
            return _not_up(operation, f"group {group} has launched {machine or 'nothing'}", machine, now)


def _not_up(operation: Operation, what: str, machine_id: str, now: datetime) -> StepResult:
    why = f"{what}; no new node has come up within {operation.step.decision.deadline_seconds} s"
    launched = Replaced(launched=machine_id) if machine_id else None
    return step_result(operation, now, Outcome.TIMED_OUT, why, facts=launched)


def _settle(operation: Operation, result: StepResult, ports: Ports) -> None:
    """Put the broken node away where another one has its place, and let the pool's next replacement begin."""
    record, node = read_record(operation), node_of(operation.node_id, ports)
    if result.outcome is Outcome.DONE:
        _put_away(operation, record, node, ports)
    elif record.launch_failed:
        refund_attempt(operation.step, ports)  # the next one may find what the group makes in the meantime
    if record.has_slot:
        _free_slot(node, ports)


def _put_away(operation: Operation, record: _Record, broken: Node, ports: Ports) -> None:
    new = (
        f"{_kind(record)} {record.new_node_id}" if record.new_node_id else "a machine that its cluster makes on demand"
    )
    if broken.state is not NodeState.RETIRED:  # by a recovery that has gone on; what is reported late changes nothing
        why = f"{new} stands in for it: {cause_of(operation.step.decision)}"
        away = moved(broken, NodeState.QUARANTINED, why, ports.clock())
        if record.serves_at_once:  # its machine was given back before the new one was made
            away = moved(away, NodeState.RETIRED, f"replaced by {record.new_node_id or new}", ports.clock())
        save_node(ports, broken, state=away.state, state_reason=away.state_reason, job_id=None)
    if record.serves_at_once:
        ports.pools.release(broken.pool, broken.node_id)  # the sweep wakes who waits for the slot
    put = "retired" if record.serves_at_once else "quarantined"
    add_timeline_entry(operation.step, ports, "swapped", f"{new} stands in for {broken.node_id}, which is {put}")


def _kind(record: _Record) -> str:
    return "spare" if record.is_spare else "new machine"


def _claim_slot(node: Node, slots: int, ports: Ports) -> bool:
    """Take one of the pool's slots for replacements. Slots of those that crashed are freed where all are taken."""
    name = replacement_slots(node.pool)
    if ports.pools.claim(name, node.node_id, slots):
        return True
    crashed = [holder for holder in ports.pools.holders(name) if not _is_replaced_now(holder, ports)]
    for holder in crashed:
        ports.pools.release(name, holder)
    return bool(crashed) and ports.pools.claim(name, node.node_id, slots)


def _is_replaced_now(node_id: str, ports: Ports) -> bool:
    return any(operation.verb is VerbName.REPLACE for operation in ports.operations.open_of(node_owner(node_id)))


def _free_slot(node: Node, ports: Ports) -> None:
    ports.pools.release(replacement_slots(node.pool), node.node_id)


def replacement_slots(pool: str) -> str:
    """Return the name under which the pool's replacements under way hold slots."""
    return f"{pool}#replacements"


def _record_machine(request: StepRequest, machine: Machine, ports: Ports) -> datetime:
    """Keep in the incident what the machine was: a later attempt may find it terminated. The first entry holds.

    Returns when the incident first came to replace the node, by EC2's clock, which gives whole seconds.
    """
    source = f"group {machine.group}" if machine.group else f"launch template {machine.launch_template}"
    text = f"{machine.machine_id} is a {machine.instance_type} of {source}"
    node_id = request.decision.node_id
    entry = TimelineEntry(ports.clock(), f"machine-{node_id}", text, MachineRecorded(node_id, machine))
    ports.incidents.append(request.incident_id, entry)
    first_at, _ = _recorded_machine(request, ports)
    return (first_at or entry.at).replace(microsecond=0)


def _recorded_machine(request: StepRequest, ports: Ports) -> tuple[datetime | None, Machine | None]:
    """Returns when the incident first came to replace the node, and what its machine was. None: it has not yet."""
    for entry in ports.incidents.history(request.incident_id).timeline:
        if isinstance(entry.payload, MachineRecorded) and entry.payload.node_id == request.decision.node_id:
            return entry.at, entry.payload.machine
    return None, None


def read_record(operation: Operation) -> _Record:
    """The verb's own record."""
    return _Record.model_validate_json(operation.data_json) if operation.data_json else _Record()


def _taken(operation: Operation, node_id: str) -> Operation:
    if operation.is_over or read_record(operation).new_node_id:
        return operation
    return _with(operation, new_node_id=node_id)


def _with_nothing_asked(operation: Operation) -> Operation:
    return replace(_as(operation, OperationState.PLANNED, phase=ReplacementPhase.NOTHING_ASKED, group=""), line=None)


def _moved_on(operation: Operation, **known: object) -> Operation:
    return _as(operation, OperationState.STARTED, **known)


def _as(operation: Operation, state: OperationState, **known: object) -> Operation:
    return replace(_with(operation, **known), state=operation.state if operation.is_over else state)


def _with(operation: Operation, **known: object) -> Operation:
    return replace(operation, data_json=read_record(operation).model_copy(update=known).model_dump_json())


HANDLER = Handler(_start, _observe, _read, _refresh, _settle, acts_in_step=True, needs_isolation=True)
