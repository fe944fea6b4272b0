"""What holds of the world, whatever breaks: each a function that says what is wrong, in words. Nothing said: it holds.

They read the ports and change nothing. `watch` is asked right before a call; those of ALWAYS hold at any time, those of
AT_REST when no workflow is at work any more, those of CLEAN when a human has seen to what was handed over, too.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from nodeheal.contract.vocabulary import Action, IncidentState, NodeState, VerbName
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node
from nodeheal.domain.fleet.unmanaged_tasks import UnmanagedTask
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Mode
from nodeheal.domain.recovery.attempt_budget import in_window
from nodeheal.domain.recovery.decision_context import node_scope
from nodeheal.domain.recovery.incident import Incident
from nodeheal.ports import Ports
from tests.unit.builders import commands_in, scheduler_in

Invariant = Callable[[Ports, RecoveryPolicy], Iterator[str]]
LIVE = (IncidentState.OPEN, IncidentState.WAITING)
# The calls that take a node down, and which attempt must have been reserved for them.
DESTRUCTIVE = {
    "commands.reset-gpu": (Action.RESET_GPU,),
    "commands.reboot-node": (Action.REBOOT,),
    "machines.power": (Action.REBOOT, Action.STOP_START),
    "machines.terminate_instance": (Action.REPLACE,),
}
ISOLATING = ("scheduler.drain_all", "scheduler.undrain", "scheduler.stop_rank")


# Right before a call --------------------------------------------------------------------------------------------------


def watch(call: str, given: tuple[Any, ...], ports: Ports, policy: RecoveryPolicy) -> list[str]:
    """What is wrong with this call (`commands.reboot-node`), with these arguments, in a world like this one."""
    told: Iterator[str] = iter(())
    if call in DESTRUCTIVE:
        told = chain(_not_reserved(call, given[0], ports, policy), _hands_off(_node_of(given[0], ports), ports, policy))
    if call in ("commands.reset-gpu", "commands.reboot-node"):
        told = chain(told, _of_another_boot(given[0], ports))
    if call == "scheduler.drain_all":
        told = chain(*(_wrongly_switched(_node_of(one, ports), ports, policy, is_on=False) for one in given[0]))
    if call == "scheduler.undrain":
        told = _wrongly_switched(_node_of(given[0], ports), ports, policy, is_on=True)
    if call == "pools.release":
        told = _given_back_too_early(_node_of(given[1], ports), given[0])
    if call == "scheduler.start_rank":
        told = _beside_another_run(given[1], given[2], ports)
    return [f"{call}: {why}" for why in told]


def _node_of(named: Any, ports: Ports) -> Node | None:
    """The node as stored, by a node, a machine or an id."""
    return ports.nodes.get(getattr(named, "machine_id", getattr(named, "node_id", named)))


def _not_reserved(call: str, named: Any, ports: Ports, policy: RecoveryPolicy) -> Iterator[str]:
    """Nothing goes down without its isolation, a slot of the budget and an attempt."""
    node = _node_of(named, ports)
    if node is None:
        return
    if node.state not in OUT_OF_SERVICE or _live_incident_of(node, ports) is None:
        yield f"{node.node_id} is {node.state}, and not isolated by an incident at work"
    if not _holds_a_slot(node, ports):
        yield f"{node.node_id} holds no slot of the disruption budget"
    counters: dict[tuple[str, str], dict[str, Any]] = ports.attempts.counters  # type: ignore[attr-defined]
    spent = [name for a in DESTRUCTIVE[call] for name in counters.get((node_scope(node.node_id), a.value), {})]
    if not any(name.startswith(f"{node.open_incident}/") for name in spent):
        yield f"no attempt is reserved for {node.node_id}"


def _holds_a_slot(node: Node, ports: Ports) -> bool:
    """Of the budget, or one of the places for new nodes."""
    return any(node.node_id in ports.pools.holders(of) for of in (node.pool, f"{node.pool}#new"))


def _hands_off(node: Node | None, ports: Ports, policy: RecoveryPolicy) -> Iterator[str]:
    """No action in observe mode, or on a paused, opted-out or foreign-owned node."""
    if node is None:
        return
    now, rules = ports.clock(), policy.pool(node.pool)
    if why := policy.why_only_observe(node.node_id, node.pool, now):
        yield why
    if node.is_paused(now) or ports.pools.get(node.pool).why_paused(now):
        yield f"{node.node_id} or its pool is paused"
    if rules.mode is Mode.observe and not rules.modes:
        yield f"pool {node.pool} is in observe mode"
    machine = ports.machines.describe(node.instance_id)
    if machine is not None and machine.external_remediator not in (None, *rules.replacement.accept_owners):
        yield f"{machine.external_remediator} repairs {node.node_id} as well"


def _of_another_boot(asked: Node, ports: Ports) -> Iterator[str]:
    """No action from what was seen on an earlier boot."""
    node = _node_of(asked, ports)
    incident = _live_incident_of(node, ports) if node else None
    if node is None or incident is None:
        return
    if asked.boot_id != node.boot_id:
        yield f"{node.node_id} has boot {node.boot_id}, and {asked.boot_id} is to be rebooted"
    history = ports.incidents.history(incident.incident_id)
    seen = {event.boot_id for event in history.events}
    found = {turn.result.boot_id for turn in history.turns if turn.result is not None}
    if node.boot_id not in seen | found:
        yield f"{node.node_id} is rebooted on boot {node.boot_id}, of which nothing was reported"


def _wrongly_switched(node: Node | None, ports: Ports, policy: RecoveryPolicy, *, is_on: bool) -> Iterator[str]:
    """Switched off where we may act, for an incident and with a slot; switched on only where it is in service."""
    if node is None or node.state not in OUT_OF_SERVICE:
        return
    if is_on:
        yield f"{node.node_id} is {node.state}, and switched on"
    if not _holds_a_slot(node, ports):
        yield f"{node.node_id} is switched off without a slot of the disruption budget"
    if node.state is NodeState.ISOLATED:
        yield from _hands_off(node, ports, policy)


def _given_back_too_early(node: Node | None, pool: str) -> Iterator[str]:
    """A slot of the disruption budget is free when its node is in service, or retired, and that is written."""
    if node is not None and node.state in OUT_OF_SERVICE and pool == node.pool:
        yield f"the slot of {node.node_id}, which is {node.state}"


def _beside_another_run(run: Run, task: GangTask, ports: Ports) -> Iterator[str]:
    """Two runs of one job never write at the same time."""
    for other in ports.jobs.runs(run.job_id):
        for before in other.tasks if other.number != run.number else ():
            node = ports.nodes.get(before.node_id)
            is_up = node is not None and node.boot_id == before.boot_id and node.state is not NodeState.RETIRED
            if before.task_id and not before.has_stopped and is_up:
                yield f"rank {before.rank} of run {other.number} may write while run {run.number} starts"


# At any time ----------------------------------------------------------------------------------------------------------


def one_open_incident_a_node(ports: Ports, policy: RecoveryPolicy) -> Iterator[str]:
    """At most one incident at work on a node, and the node names it."""
    live = [incident for incident in _incidents(ports) if incident.state in LIVE]
    for node_id, count in Counter(incident.node_id for incident in live).items():
        if count > 1:
            yield f"{count} incidents are at work on {node_id}"
    for incident in live:
        node = ports.nodes.get(incident.node_id)
        if node is not None and node.open_incident != incident.incident_id and incident.ending is None:
            yield f"{incident.incident_id} is at work on {node.node_id}, which names {node.open_incident}"


def no_more_nodes_out_than_slots(ports: Ports, policy: RecoveryPolicy) -> Iterator[str]:
    """Never more of a pool disrupted than its budget allows."""
    for pool, nodes in _by_pool(ports).items():
        budget = policy.pool(pool).budget
        slots = budget.slots(len(nodes))
        out = [node.node_id for node in nodes if node.state in OUT_OF_SERVICE]
        healed = [node for node in nodes if node.state in OUT_OF_SERVICE - {NodeState.QUARANTINED}]
        if len(healed) > slots or len(out) > budget.most_out(slots):
            yield f"{', '.join(out)} are out of service; pool {pool} has {slots} slots"


def no_attempt_beyond_its_limit(ports: Ports, policy: RecoveryPolicy) -> Iterator[str]:
    """No more attempts counted, and no more reboots sent, than the limit allows in one window."""
    counters: dict[tuple[str, str], Any] = ports.attempts.counters  # type: ignore[attr-defined]
    for (scope, group), counted in counters.items():
        limit = policy.limits[Action(group)]
        if scope.startswith("node#") and len(in_window(counted, limit, ports.clock())) > limit.limit:
            yield f"{len(counted)} attempts of {group} on {scope}; the limit is {limit.limit}"


def no_boot_rebooted_twice(ports: Ports, policy: RecoveryPolicy) -> Iterator[str]:
    """Never two destructive commands for one boot of a node."""
    for document in ("reset-gpu", "reboot-node"):
        sent = Counter((one.node_id, one.boot_id) for one in commands_in(ports).sent_of(document))
        yield from (
            f"{name} was sent {count} {document} on {boot}" for (name, boot), count in sent.items() if count > 1
        )


ALWAYS: tuple[Invariant, ...] = (
    one_open_incident_a_node,
    no_more_nodes_out_than_slots,
    no_attempt_beyond_its_limit,
    no_boot_rebooted_twice,
)


# At rest --------------------------------------------------------------------------------------------------------------


def every_incident_has_ended(ports: Ports, policy: RecoveryPolicy) -> Iterator[str]:
    """Closed, or a human's."""
    for incident in _incidents(ports):
        if incident.state in LIVE:
            yield f"{incident.incident_id} is {incident.state}, and no workflow is at work on it"


def slots_are_nodes_that_are_out(ports: Ports, policy: RecoveryPolicy) -> Iterator[str]:
    """Every node that is out of service has a slot; and every slot such a node, or one whose incident a human has."""
    for pool, nodes in _by_pool(ports).items():
        out = {node.node_id for node in nodes if node.state in OUT_OF_SERVICE}
        held = set(ports.pools.holders(pool))
        if not out <= held <= out | {node.node_id for node in nodes if _is_a_humans(node, ports)}:
            yield f"slots of {sorted(held)}; out of service: {sorted(out)}"
        if left := ports.pools.holders(f"{pool}#replacements"):
            yield f"replacement slots are left: {left}"
        new = set(ports.pools.holders(f"{pool}#new"))
        if unused := new - {node.node_id for node in nodes if _is_a_humans(node, ports)}:
            yield f"places of new nodes are left: {sorted(unused)}"


def who_is_isolated_is_in_a_humans_hands(ports: Ports, policy: RecoveryPolicy) -> Iterator[str]:
    """Released, replaced, or with an incident that was handed to a human."""
    for node in _nodes(ports):
        incident = _incident_of(node, ports)
        if node.state in OUT_OF_SERVICE and (incident is None or incident.state is not IncidentState.ESCALATED):
            yield f"{node.node_id} is {node.state}, and its incident is {incident.state if incident else 'none'}"


def nothing_drains_in_service(ports: Ports, policy: RecoveryPolicy) -> Iterator[str]:
    """A node that we switched off is out of service, retired, or has an incident that a human has."""
    for node in _nodes(ports):
        if _is_a_humans(node, ports):
            continue
        is_off = node.node_id in scheduler_in(ports).draining
        if is_off and node.state not in OUT_OF_SERVICE | {NodeState.RETIRED}:
            yield f"{node.node_id} is {node.state} and takes no work"
        if node.drained_by_us and node.state not in OUT_OF_SERVICE | {NodeState.RETIRED}:
            yield f"{node.node_id} is {node.state} and still marked as drained by us"


def no_mark_outlives_its_owner(ports: Ports, policy: RecoveryPolicy) -> Iterator[str]:
    """No claim, no lease, no node that names a job or an incident that is over."""
    for node in _nodes(ports):
        incident = _incident_of(node, ports)
        if incident is not None and incident.state is IncidentState.CLOSED:
            yield f"{node.node_id} names {incident.incident_id}, which is closed"
        if node.claimed_by:
            yield f"{node.node_id} is claimed by {node.claimed_by}"
        job = ports.jobs.get(node.job_id) if node.job_id else None
        if job is not None and job.is_over:
            yield f"{node.node_id} carries {job.job_id}, which is over"
    for directory, job_id in ports.job_notes.leases.items():  # type: ignore[attr-defined]
        held = ports.jobs.get(job_id)
        if held is None or held.is_over:
            yield f"{directory} is still held by {job_id}"


def no_job_is_forgotten(ports: Ports, policy: RecoveryPolicy) -> Iterator[str]:
    """A job that does not run is over, or in a human's hands: by its own record or by one of its incidents."""
    jobs: dict[str, Job] = ports.jobs.jobs  # type: ignore[attr-defined]
    for job in jobs.values():
        run = ports.jobs.get_run(job.job_id, job.current_run)
        mine = [i.state for i in _incidents(ports) if i.job_id == job.job_id]
        if run is None or job.is_over or IncidentState.ESCALATED in mine:
            continue
        down = [task.rank for task in run.tasks if not _may_run(task, ports)]
        if down:
            yield f"ranks {down} of run {run.number} of {job.job_id} are down, and nobody brings them back"


def _may_run(task: GangTask, ports: Ports) -> bool:
    node = ports.nodes.get(task.node_id)
    return task.status == "RUNNING" and node is not None and node.boot_id == task.boot_id


def nobody_stands_in_line(ports: Ports, policy: RecoveryPolicy) -> Iterator[str]:
    """No wait of an incident that is over stands before others.

    A machine that a group still owes holds nobody up, nor does an isolation: each one also asks for itself.
    """
    for operation in ports.operations.all_open():  # type: ignore[attr-defined]
        if operation.line is not None and operation.verb is not VerbName.ISOLATE:
            yield f"{operation.incident_id} stands in line {operation.line}"


AT_REST: tuple[Invariant, ...] = (
    *ALWAYS,
    every_incident_has_ended,
    slots_are_nodes_that_are_out,
    who_is_isolated_is_in_a_humans_hands,
    nothing_drains_in_service,
    no_mark_outlives_its_owner,
    no_job_is_forgotten,
    nobody_stands_in_line,
)


# When a human has seen to it ------------------------------------------------------------------------------------------


def nothing_is_left(ports: Ports, policy: RecoveryPolicy) -> Iterator[str]:
    """Every node serves, or is retired, and no incident is anybody's."""
    for node in _nodes(ports):
        if node.state in OUT_OF_SERVICE or node.open_incident is not None:
            yield f"{node.node_id} is {node.state}, and names {node.open_incident}"
    for incident in _incidents(ports):
        if incident.state is not IncidentState.CLOSED:
            yield f"{incident.incident_id} is {incident.state}"


def stopped_tasks_of_others_come_back_once(ports: Ports, policy: RecoveryPolicy) -> Iterator[str]:
    """A task of others that we have stopped is started again, or the incident says at its end that it was not."""
    for task_id, why in scheduler_in(ports).unmanaged_ended.items():
        unmanaged_tasks = scheduler_in(ports).unmanaged_started
        count = sum(unmanaged_task.task_id == task_id for _, unmanaged_task in unmanaged_tasks)
        of = [incident for incident in _incidents(ports) if incident.incident_id in why]
        last = [f"{i.summary} {ports.incidents.history(i.incident_id).timeline[-1].text}" for i in of]
        if count > 1 or (count == 0 and not any(f"({UnmanagedTask(task_id, '').short_id})" in text for text in last)):
            yield f"{task_id} was stopped ({why}), and started again {count} times"


# Whoever closes an incident has seen to its job, too; nobody here does.
CLEAN: tuple[Invariant, ...] = (
    *(each for each in AT_REST if each is not no_job_is_forgotten),
    nothing_is_left,
    stopped_tasks_of_others_come_back_once,
)


def broken(invariants: tuple[Invariant, ...], ports: Ports, policy: RecoveryPolicy) -> list[str]:
    """What is wrong, each with the name of the invariant."""
    return [f"{each.__name__}: {why}" for each in invariants for why in each(ports, policy)]


def _nodes(ports: Ports) -> list[Node]:
    nodes: dict[str, Node] = ports.nodes.nodes  # type: ignore[attr-defined]
    return list(nodes.values())


def _by_pool(ports: Ports) -> dict[str, list[Node]]:
    found: dict[str, list[Node]] = {}
    for node in _nodes(ports):
        found.setdefault(node.pool, []).append(node)
    return found


def _incidents(ports: Ports) -> list[Incident]:
    incidents: dict[str, Incident] = ports.incidents.incidents  # type: ignore[attr-defined]
    return list(incidents.values())


def _incident_of(node: Node, ports: Ports) -> Incident | None:
    incidents: dict[str, Incident] = ports.incidents.incidents  # type: ignore[attr-defined]
    return incidents.get(node.open_incident) if node.open_incident else None


def _is_a_humans(node: Node, ports: Ports) -> bool:
    incident = _incident_of(node, ports)
    return incident is not None and incident.state is IncidentState.ESCALATED


def _live_incident_of(node: Node, ports: Ports) -> Incident | None:
    """The incident that works on the node: not one that is over, and not one that a human has."""
    incident = _incident_of(node, ports)
    return incident if incident is not None and incident.state in LIVE else None
