"""Defines what must be true after every step. Each invariant is one function, named after what must hold.

They check only what the last step has changed: a write of a node, of an incident, an action on a node. What must become
true within a time is checked when that time is over.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from math import inf

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import OPERATOR_REQUEST
from nodeheal.contract.steps import AttemptLimit
from nodeheal.contract.vocabulary import (
    Action,
    Awaited,
    Ending,
    IncidentState,
    NodeState,
    Outcome,
    Step,
    VerbName,
    Verdict,
)
from nodeheal.domain.fleet.node import ABSENT, OUT_OF_SERVICE, Node
from nodeheal.domain.fleet.pause import Pause
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.fleet.unmanaged_tasks import tasks_not_restarted
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.domain.policy.policy_models import Mode
from nodeheal.domain.recovery.decision_context import node_scope
from nodeheal.domain.recovery.incident import History, Incident, Turn, incident_id_of, is_boot_independent
from nodeheal.domain.verbs import ESCALATION_STEPS
from nodeheal.operations.replace import replacement_slots
from nodeheal.services.jobs.runs import current_run
from nodeheal.services.recovery.new_node_places import has_place
from nodeheal.services.scheduling import may_stop_workloads
from nodeheal.simulation.agenda import seconds_of
from nodeheal.simulation.kubernetes import NODEHEAL, PodGang, ReplicaSet
from nodeheal.simulation.seen import LIVE, NodeAction, Requeue, Seen, Violation

# Between the last check of a pause and the call that acts: a step's own time, its retries included.
PAUSE_SECONDS = 180.0
_END_A_BOOT = ("reboot", "stop")
# The least time that a node has to come back, before another action. Its deadline is longer, and starts before the
# call, which may have been repeated.
_TO_BOOT_SECONDS = 600.0
# Between the record that a node is back and Slurm's next scheduling: the call's retries, and some scheduling rounds.
_TO_GIVE_BACK_SECONDS = 1_800.0
ACTION_OF = {
    "isolate": Action.ISOLATE,
    "reset": Action.RESET_GPU,
    "reboot": Action.REBOOT,
    "stop": Action.STOP_START,
    "replace": Action.REPLACE,
    "launch": Action.REPLACE,
    "restart": Action.RESTART_WORKLOAD,  # of a job, by an incident
}
# Any of these, where the pool's mode lets nodeheal take it: what is to be rebooted or replaced is isolated before.
ALLOWED_BY = {verb: (action,) for verb, action in ACTION_OF.items()} | {
    "isolate": (Action.ISOLATE, *ESCALATION_STEPS),
    # of a job's ranks, by an incident
    "end": (Action.ISOLATE, *ESCALATION_STEPS, Action.RESTART_WORKLOAD),
}
# Actions on the job that has a rank there, as opposed to those on a machine that others repair.
_OF_JOBS = ("restart", "end")


def one_open_incident_a_node(opened: Incident, live: list[str]) -> Iterator[Violation]:
    """At most one open incident a node."""
    if len(live) > 1:
        at = seconds_of(opened.opened_at)
        yield Violation(at, one_open_incident_a_node.__name__, opened.node_id, f"open at once: {', '.join(live)}")


def one_destructive_action_a_node(state: Seen, before: list[NodeAction], act: NodeAction) -> Iterator[Violation]:
    """At most one destructive action a node: none begins on a boot that another is still to end."""
    if act.verb not in (*_END_A_BOOT, "reset", "replace"):
        return
    machine = state.ports.machines.describe(act.node_id)
    over = ("stop",) if machine is not None and machine.state == "stopped" else ()
    same = [
        past for past in before if past.verb in _END_A_BOOT and past.verb not in over and past.boot_id == act.boot_id
    ]
    given = state.policy.deadlines.reboot_seconds
    under_way = [past for past in same if act.at - past.at < (given if past.verb == act.verb else _TO_BOOT_SECONDS)]
    if under_way:
        first = under_way[-1]
        text = f"{act.verb} for {act.incident_id}, {act.at - first.at:.0f} s after a {first.verb} of the same boot"
        yield Violation(act.at, one_destructive_action_a_node.__name__, act.node_id, text)


def budget_is_never_exceeded(state: Seen, node: Node) -> Iterator[Violation]:
    """The budget is never exceeded: an isolated node has a slot, and there are no more slots than allowed. Quarantined
    nodes may be added, up to a limit.
    """
    holders, budget = state.ports.pools.holders(node.pool), state.policy.pool(node.pool).budget
    slots = budget.slots(len(state.nodes.in_pool(node.pool)))
    healed = [peer for peer in map(state.ports.nodes.get, holders) if peer and peer.state is not NodeState.QUARANTINED]
    has_slot = node.node_id in holders or has_place(node, state.ports)  # of the pool, or of its new nodes
    if not has_slot or len(healed) > slots or len(holders) > budget.most_out(slots):
        text = f"{len(holders)} of {slots} slots taken, its own {'' if has_slot else 'not '}among them"
        yield Violation(state.agenda.now, budget_is_never_exceeded.__name__, node.node_id, text)


def no_attempt_beyond_its_limit(state: Seen, before: list[NodeAction], act: NodeAction) -> Iterator[Violation]:
    """No attempt exceeds a limit, counted by the calls that were really sent."""
    limit = state.policy.limits.get(ACTION_OF[act.verb])
    if limit is None or act.verb == "isolate":
        return
    yield from _too_often(before, act, limit, act.node_id)


def no_attempt_on_an_accelerator_beyond_its_limit(
    state: Seen, before: list[NodeAction], act: NodeAction
) -> Iterator[Violation]:
    """No attempt exceeds the limit of the accelerator, under whatever name its node is registered. `before`: of this
    serial.
    """
    limit = state.policy.accelerator_limits.get(ACTION_OF[act.verb])
    if limit is not None and act.serial and act.verb != "isolate":
        # It was reserved before it was sent: the oldest may have left the window since.
        yield from _too_often(before, act, limit, act.serial, PAUSE_SECONDS)


def _too_often(
    before: list[NodeAction], act: NodeAction, limit: AttemptLimit, about: str, reserved_before: float = 0.0
) -> Iterator[Violation]:
    since = act.at - limit.window_seconds + reserved_before
    spent = [past for past in before if past.verb == act.verb and past.at > since]
    if len(spent) >= limit.limit:
        text = f"{act.verb} number {len(spent) + 1} in {limit.window_seconds} s, {limit.limit} allowed"
        yield Violation(act.at, no_attempt_beyond_its_limit.__name__, about, text)


def serial_of(state: Seen, incident_id: str) -> str:
    """Return the accelerator's serial, where all faults of the incident concern one accelerator."""
    if incident_id not in state.incidents.incidents:
        return ""
    events = state.incidents.history(incident_id).events
    serials = {event.component_serial for event in events if event.verdict is not Verdict.OK}
    return serials.pop() or "" if len(serials) == 1 else ""


def nothing_is_disrupted_without_a_reservation(state: Seen, act: NodeAction) -> Iterator[Violation]:
    """A node is reset, rebooted, stopped or replaced only where an incident at work has isolated it, and it has a slot
    of the budget and a reserved attempt.
    """
    if act.verb not in (*_END_A_BOOT, "reset", "replace"):
        return
    node, incident = state.nodes.nodes[act.node_id], state.incidents.incidents.get(act.incident_id)
    counters: Mapping[tuple[str, str], Collection[str]] = state.ports.attempts.counters  # type: ignore[attr-defined]
    # EC2 reboots a machine for a reboot, and starts one that was stopped by a stop-start.
    groups = (ACTION_OF[act.verb], Action.STOP_START) if act.verb == "reboot" else (ACTION_OF[act.verb],)
    reserved = [name for group in groups for name in counters.get((node_scope(act.node_id), group.value), ())]
    missing = {
        "an incident at work": incident is not None and incident.state in LIVE,
        "its isolation": node.state in OUT_OF_SERVICE,
        "a slot": act.node_id in state.ports.pools.holders(node.pool) or has_place(node, state.ports),
        "a reserved attempt": any(name.startswith(f"{act.incident_id}/") for name in reserved),
    }
    for what, is_there in missing.items():
        if not is_there:
            name = nothing_is_disrupted_without_a_reservation.__name__
            yield Violation(act.at, name, act.node_id, f"{act.verb} without {what}")


def only_nodes_in_service_take_work(state: Seen, node_id: str) -> Iterator[Violation]:
    """A node that nodeheal has isolated takes work again only once its record says that it is in service."""
    node = state.nodes.nodes.get(node_id)
    if node is not None and node.state in OUT_OF_SERVICE:
        at, name = state.agenda.now, only_nodes_in_service_take_work.__name__
        yield Violation(at, name, node_id, f"it is {node.state}, and was switched on")


def a_slot_is_kept_until_its_node_is_back(state: Seen, pool: str, node_id: str) -> Iterator[Violation]:
    """A slot of the budget is free only once its node is recorded as in service, or as retired."""
    node = state.nodes.nodes.get(node_id)
    if node is not None and node.pool == pool and node.state in OUT_OF_SERVICE:
        at, name = state.agenda.now, a_slot_is_kept_until_its_node_is_back.__name__
        yield Violation(at, name, node_id, f"its slot was released, and it is {node.state}")


def hands_off_where_told(state: Seen, before: list[NodeAction], act: NodeAction) -> Iterator[Violation]:
    """No action on a node that is only observed, paused, opted out or repaired by others. A job that failed by
    another's machine may be restarted there; and one that a recovery has stopped is started again in any case.
    """
    if act.verb in _OF_JOBS and _has_isolated(state, act.incident_id):
        return
    node, now = state.nodes.nodes[act.node_id], state.agenda.clock()
    pauses, name = state.ports.pauses.read(), hands_off_where_told.__name__
    rules = state.policy.pool(node.pool)
    begun = timedelta(seconds=PAUSE_SECONDS)
    is_new = act.at - state.in_force_since < PAUSE_SECONDS  # the policy
    if not is_new and all(rules.mode_of(action) is Mode.observe for action in ALLOWED_BY[act.verb]):
        yield Violation(act.at, name, act.node_id, f"{act.verb} in observe mode")
    # What began before the pause is completed: a job that this incident has stopped is not left down.
    goes_on = act.verb == "restart" and any(
        (past.verb, past.incident_id) == ("end", act.incident_id) for past in before
    )
    if not goes_on and any(window.holds(now) and window.holds(now - begun) for window in rules.maintenance):
        yield Violation(act.at, name, act.node_id, f"{act.verb} in a maintenance window")
    if act.node_id in state.policy.opted_out:
        yield Violation(act.at, name, act.node_id, f"{act.verb} of a node that is opted out")
    machine = state.ports.machines.describe(node.instance_id) if act.verb not in _OF_JOBS else None
    if machine is not None and machine.external_remediator not in (None, *rules.replacement.accept_owners):
        yield Violation(act.at, name, act.node_id, f"{act.verb} of a node that {machine.external_remediator} repairs")
    if _is_paused_since(pauses.of_node(node.node_id, now), now - begun):
        yield Violation(act.at, name, act.node_id, f"{act.verb} of a paused node")
    if _is_paused_since(pauses.of_pool(node.pool, now), now - begun):
        yield Violation(act.at, name, act.node_id, f"{act.verb} in a paused pool")


def nothing_is_done_without_a_yes(state: Seen, act: NodeAction) -> Iterator[Violation]:
    """No action that needs approval in the pool, before a human has approved it in this very incident."""
    node, actions = state.nodes.nodes[act.node_id], ALLOWED_BY[act.verb]
    modes = {action: state.policy.pool(node.pool).mode_of(action) for action in actions}
    asked_for = [action for action, mode in modes.items() if mode is Mode.approve]
    if Mode.act in modes.values() or not asked_for or not act.incident_id:
        return
    if act.verb in _OF_JOBS and _has_isolated(state, act.incident_id):
        return  # that was approved
    history = state.incidents.history(act.incident_id)
    if any(event.code == OPERATOR_REQUEST for event in history.events):
        return
    yeses = [turn.decision.action for turn in history.turns if _is_a_yes(turn)]
    # An isolation that is all that is left, since the resets are spent, is asked for by its own name.
    if not any(action in actions for action in yeses):
        text = f"{act.verb}, and nobody has said yes to it"
        yield Violation(act.at, nothing_is_done_without_a_yes.__name__, act.node_id, text)


def _is_a_yes(turn: Turn) -> bool:
    return turn.decision.awaits is Awaited.APPROVAL and bool(turn.result and turn.result.outcome is Outcome.DONE)


def _has_isolated(state: Seen, incident_id: str) -> bool:
    turns = state.incidents.history(incident_id).turns
    return any(turn.decision.step is Step.ISOLATE and not turn.is_refused for turn in turns)


def _is_paused_since(pause: Pause | None, before: datetime) -> bool:
    """Whether the pause has held since before this time; simulated people write its beginning into their reason."""
    return pause is not None and float(pause.why.rpartition(" since ")[2] or "0") < before.timestamp()


def what_people_drained_stays_drained(state: Seen, node_id: str) -> Iterator[Violation]:
    """Only nodeheal's own isolation is undone: a node that people have drained takes work when they say so."""
    if node_id in state.drained:
        at, name = state.agenda.now, what_people_drained_stays_drained.__name__
        yield Violation(at, name, node_id, "people have drained it, and it was switched on")


def tasks_of_others_are_left_alone(state: Seen, node: Node, unmanaged_task: UnmanagedTask) -> Iterator[Violation]:
    """No action on unmanaged tasks: nodeheal stops one only where its owner and the pool permit it. The owner alone,
    where its scheduler starts it again by itself.
    """
    why = "" if unmanaged_task.may_be_stopped else "its owner does not let us"
    may_stop = may_stop_workloads(state.ports.scheduler_of(node), state.policy.pool(node.pool))
    why = why or ("" if may_stop else "the pool does not let us")
    why = why or ("" if node.state in OUT_OF_SERVICE else f"its node is {node.state}")
    if why:
        at, name = state.agenda.now, tasks_of_others_are_left_alone.__name__
        yield Violation(at, name, node.node_id, f"{unmanaged_task} was stopped, and {why}")


def no_gpu_is_reset_beside_tasks_of_others(state: Seen, act: NodeAction) -> Iterator[Violation]:
    """No GPU is reset while an unmanaged task runs on its node: it is not known which GPU it uses."""
    there = state.unmanaged_tasks_on(act.node_id) if act.verb == "reset" else ()
    if there:
        name = no_gpu_is_reset_beside_tasks_of_others.__name__
        yield Violation(act.at, name, act.node_id, f"reset beside {', '.join(map(str, there))}")


def stopped_tasks_come_back(state: Seen, incident_id: str) -> Iterator[Violation]:
    """An unmanaged task that nodeheal has stopped is started again, where its node or a successor is back."""
    incident = state.incidents.incidents[incident_id]
    missing = state.missing_unmanaged_tasks(f"nodeheal: recovery {incident_id}")
    if missing and incident.ending is Ending.RECOVERED:
        text = f"{', '.join(map(str, missing))} stopped for it, and not started again"
        yield Violation(state.agenda.now, stopped_tasks_come_back.__name__, incident_id, text)


def a_job_is_requeued_once(state: Seen, before: Collection[Requeue], requeue: Requeue) -> Iterator[Violation]:
    """One incident requeues a job of Slurm once, however often its function is repeated."""
    if requeue in before:
        text = f"job {requeue.job_id} was requeued for {requeue.incident_id} before"
        yield Violation(state.agenda.now, a_job_is_requeued_once.__name__, requeue.node_id, text)


def requeued_jobs_run_again(state: Seen, requeue: Requeue) -> Iterator[Violation]:
    """A requeued job does not wait while enough nodes idle that nodeheal has resumed: its cluster can use them. A gang
    of Kubernetes whose pods have not ended in time stays suspended until its incident ends, and for a human where its
    API server does not answer then either: the ending names it.
    """
    job = state.cluster.jobs.get(requeue.job_id) if state.cluster is not None else None
    if job is not None and job.suspended_by:
        left = {task.task_id for task in tasks_not_restarted(state.incidents.history(requeue.incident_id).timeline)}
        if state.incidents.incidents[requeue.incident_id].state in LIVE or job.job_id in left:
            return
    room = [node.node_id for node in state.nodes.nodes.values() if _has_room(state, node)]
    has_waited = job is not None and job.is_waiting and state.agenda.now - job.not_before > _TO_GIVE_BACK_SECONDS
    if job is not None and has_waited and job.size <= len(room):
        text = f"it waits for {job.size} nodes, and these are in service and idle: {', '.join(room)}"
        yield Violation(state.agenda.now, requeued_jobs_run_again.__name__, f"job {requeue.job_id}", text)


def _has_room(state: Seen, node: Node) -> bool:
    """Whether Slurm should have started a job there, by all records."""
    since = state.agenda.clock() - timedelta(seconds=_TO_GIVE_BACK_SECONDS)
    is_out = node.state in OUT_OF_SERVICE | ABSENT or node.open_incident is not None
    is_out = is_out or node.node_id in state.drained or node.node_id in state.broken_off
    is_fresh = any(change.at > since for change in node.state_changes)
    idle = state.cluster.idle_seconds(node.node_id) if state.cluster is not None else 0.0
    return not is_out and not is_fresh and idle > _TO_GIVE_BACK_SECONDS


def no_diagnosis_beside_a_job(state: Seen, node: Node) -> Iterator[Violation]:
    """A node that is in service is not diagnosed while a job of Slurm uses its accelerators."""
    job = state.cluster.at_work.get(node.node_id) if state.cluster is not None else None
    if job is not None and node.state not in OUT_OF_SERVICE:
        text = f"it is {node.state}, and job {job.job_id} runs there"
        yield Violation(state.agenda.now, no_diagnosis_beside_a_job.__name__, node.node_id, text)


def no_gang_is_torn(state: Seen, gang: PodGang) -> Iterator[Violation]:
    """nodeheal resumes a gang of Kubernetes only when it has suspended it itself and no pod of it is left; and it ends
    no pod of a gang otherwise.
    """
    why = f"{gang.suspended_by or 'nobody'} had suspended it" if gang.suspended_by != NODEHEAL else ""
    why = why or (f"pods are left on {', '.join(gang.nodes)}" if gang.nodes else "")
    if why:
        yield Violation(state.agenda.now, no_gang_is_torn.__name__, gang.job_id, f"it was started again, and {why}")


def no_gang_is_restarted_above_its_count(state: Seen, gang: PodGang) -> Iterator[Violation]:
    """nodeheal restarts a gang of Kubernetes only as often as its owner allows."""
    if gang.most_restarts is not None and gang.restarted_by_nodeheal >= gang.most_restarts:
        name = no_gang_is_restarted_above_its_count.__name__
        text = f"restart number {gang.restarted_by_nodeheal + 1}, {gang.most_restarts} allowed"
        yield Violation(state.agenda.now, name, gang.job_id, text)


def no_service_falls_below_its_floor(state: Seen, service: ReplicaSet) -> Iterator[Violation]:
    """nodeheal evicts a pod of a service only while its disruption budget has as many others ready as it wants."""
    if service.ready < service.floor:
        name = no_service_falls_below_its_floor.__name__
        text = f"{service.ready} of its pods are ready after an eviction, and {service.floor} have to be"
        yield Violation(state.agenda.now, name, service.name, text)


def nothing_stale_opens_an_incident(state: Seen, incident: Incident) -> Iterator[Violation]:
    """A stale or duplicate event opens no incident."""
    node, root = state.nodes.nodes[incident.node_id], incident.root
    name = nothing_stale_opens_an_incident.__name__
    if root.boot_id != node.boot_id:
        yield Violation(
            state.agenda.now, name, incident.incident_id, f"of boot {root.boot_id}, it is on {node.boot_id}"
        )
    if node.healthy_since is not None and root.observed_at < node.healthy_since:
        yield Violation(
            state.agenda.now, name, incident.incident_id, f"seen before it was proven well at {node.healthy_since}"
        )


def no_act_on_stale_news(state: Seen, act: NodeAction) -> Iterator[Violation]:
    """No action on outdated events: a node is isolated, rebooted or replaced for what was seen on its present boot, by
    itself or by its diagnostics. It may only be isolated where a job that is down would otherwise resume there. It may
    be given up on any boot, where another node serves in its place, or an operator has requested that.
    """
    done = {"isolate": "isolated", "replace": "replaced", "launch": "replaced"}.get(act.verb, "rebooted")
    if not act.incident_id:
        yield Violation(act.at, no_act_on_stale_news.__name__, act.node_id, f"{done} for no incident")
        return
    if state.boots_heard_at.get(act.node_id, -inf) > state.runs_since:
        return  # during the function's hanging call: it could not know
    history = state.incidents.history(act.incident_id)
    boots = {event.boot_id for event in history.events}
    boots |= {turn.result.boot_id for turn in history.turns if turn.result and turn.result.boot_id}
    if act.boot_id in boots or (act.verb == "isolate" and _is_down(state, history.incident.job_id)):
        return
    if act.verb == "replace" and _may_be_given_up(history):
        return
    text = f"{done} on {act.boot_id} for what was seen on {', '.join(sorted(boots))}"
    yield Violation(act.at, no_act_on_stale_news.__name__, act.node_id, text)


def _may_be_given_up(history: History) -> bool:
    """Whether another node serves in its place, or an operator has requested its replacement."""
    has_replacement_node = any(turn.result and turn.result.replacement_node_id for turn in history.turns)
    return has_replacement_node or any(is_boot_independent(event) for event in history.events)


def _is_down(state: Seen, job_id: str | None) -> bool:
    job, run = current_run(job_id, state.ports)
    return job is not None and run is not None and not job.is_over and not run.is_running


def incidents_end_or_page_in_time(state: Seen, incident_id: str, turn: int) -> Iterator[Violation]:
    """Every incident ends in a terminal state or a page within its deadline."""
    incident = state.incidents.incidents[incident_id]
    if incident.state in LIVE and incident.turn == turn:
        text = f"still {incident.state} at decision {turn}, long after its deadline"
        yield Violation(state.agenda.now, incidents_end_or_page_in_time.__name__, incident_id, text)


def nothing_is_left_behind(state: Seen, incident_id: str) -> Iterator[Violation]:
    """No token, lease or reservation is left behind.

    Where a function died, an unconcluded operation may stay, and so may one that no workflow waits for (a search that
    has run out of time): the table's expiry deletes it.
    """
    name = nothing_is_left_behind.__name__
    incident = state.incidents.incidents[incident_id]
    has_struck = any(at >= seconds_of(incident.opened_at) for at in state.struck_at)
    for operation in state.operations.of(incident_id):
        is_late = operation.deadline_at < state.agenda.clock()
        is_awaited = bool(operation.token) and operation.verb is not VerbName.FIND_CHECKPOINT
        # A wait for a machine, or for a free slot, holds up those behind it. An isolation asks for itself.
        holds_up = operation.line is not None and operation.verb is not VerbName.ISOLATE
        if holds_up or (is_late and is_awaited and not has_struck):
            yield Violation(state.agenda.now, name, incident_id, f"the operation {operation.operation_id}")
    for holder in state.ports.pools.holders(incident.pool):
        node = state.nodes.nodes.get(holder)
        if holder != incident.node_id or node is None or node.state in OUT_OF_SERVICE:
            continue
        if node.open_incident in (None, incident_id):
            yield Violation(state.agenda.now, name, incident_id, f"a slot for {holder}, which is {node.state}")
    own = state.nodes.nodes[incident.node_id]
    if own.open_incident == incident_id and own.state not in OUT_OF_SERVICE and incident.state is IncidentState.CLOSED:
        yield Violation(state.agenda.now, name, incident_id, f"{own.node_id} names it still, and is {own.state}")
    if own.open_incident is None and own.state not in OUT_OF_SERVICE:
        if own.node_id in state.ports.pools.holders(replacement_slots(own.pool)):
            yield Violation(state.agenda.now, name, incident_id, f"a replacement's slot for {own.node_id}")
        if has_place(own, state.ports):
            yield Violation(state.agenda.now, name, incident_id, f"a new node's place for {own.node_id}")


def nothing_is_left_of_a_job(state: Seen, alive: Collection[str]) -> Iterator[Violation]:
    """A job that has ended, and of which no rank is left (`alive` names the others), holds no node and no directory."""
    name, jobs, notes = nothing_is_left_of_a_job.__name__, state.ports.jobs, state.ports.job_notes
    held = [(job_id, f"the lease of {place}") for place, job_id in notes.leases.items()]  # type: ignore[attr-defined]
    for node in state.nodes.nodes.values():
        held += [(job_id, f"{node.node_id}") for job_id in (node.job_id, node.claimed_by) if job_id is not None]
    for job_id, what in held:
        job = jobs.get(job_id)
        if job is not None and job.is_over and job_id not in alive:
            yield Violation(state.agenda.now, name, job_id, f"it is {job.state}, and holds {what}")


def two_runs_never_write_at_once(state: Seen, run: Run) -> Iterator[Violation]:
    """No rank of a run is started while, by the records, a rank of another run of the job may still write."""
    for other in state.ports.jobs.runs(run.job_id):
        for task in other.tasks if other.number != run.number else ():
            node = state.nodes.nodes.get(task.node_id)
            is_up = node is not None and node.boot_id == task.boot_id and node.state is not NodeState.RETIRED
            if task.task_id and not task.has_stopped and is_up:
                name = two_runs_never_write_at_once.__name__
                text = f"rank {task.rank} of run {other.number} may write while run {run.number} starts"
                yield Violation(state.agenda.now, name, run.job_id, text)


def no_job_is_forgotten(state: Seen) -> Iterator[Violation]:
    """A job that does not run, and is not over, is an incident's to bring back, or a human's: an incident that only
    observes tells a human, too.
    """
    known = {
        incident.job_id for incident in state.incidents.incidents.values() if incident.ending is not Ending.RECOVERED
    }
    jobs: Mapping[str, Job] = state.ports.jobs.jobs  # type: ignore[attr-defined]
    for job_id in [name for name, job in jobs.items() if not job.is_over and name not in known]:
        _, run = current_run(job_id, state.ports)
        down = [task.rank for task in run.tasks if not _may_run(state, task)] if run is not None else []
        if run is not None and down:
            name = no_job_is_forgotten.__name__
            yield Violation(state.agenda.now, name, job_id, f"nobody brings ranks {down} of run {run.number} back")


def _may_run(state: Seen, task: GangTask) -> bool:
    node = state.nodes.nodes.get(task.node_id)
    return task.status == "RUNNING" and node is not None and node.boot_id == task.boot_id


def nodes_in_service_take_work(state: Seen, node_id: str) -> Iterator[Violation]:
    """A node that nodeheal has drained takes work again where it is in service, and no human was asked to see to it."""
    node = state.nodes.nodes[node_id]
    is_left_to_people = node.open_incident is not None or node_id in {*state.drained, *state.broken_off}
    if is_left_to_people or node.state in OUT_OF_SERVICE | {NodeState.RETIRED}:
        return
    is_drained = node.drained_by_us or node_id in state.ports.scheduler_of(node).gate.draining  # type: ignore[attr-defined]
    incidents = state.incidents.incidents.values() if is_drained else ()
    is_a_humans = any(
        incident.node_id == node_id and incident.state is IncidentState.ESCALATED for incident in incidents
    )
    if is_drained and not is_a_humans:
        at, name = state.agenda.now, nodes_in_service_take_work.__name__
        yield Violation(at, name, node_id, f"it is {node.state}, and still drained")


def isolated_nodes_are_somebodys(state: Seen, node_id: str) -> Iterator[Violation]:
    """A node that nodeheal isolated is always released, replaced or handed to a human."""
    node = state.nodes.nodes[node_id]
    if node.state not in OUT_OF_SERVICE:
        return
    incident = state.incidents.incidents.get(node.open_incident or "")
    if incident is None or incident.state is IncidentState.CLOSED:
        text = f"{node.state} for {node.open_incident or 'nobody'}, {incident.state if incident else 'unknown'}"
        yield Violation(state.agenda.now, isolated_nodes_are_somebodys.__name__, node_id, text)


def every_fault_is_accounted_for(state: Seen, event: HealthEvent) -> Iterator[Violation]:
    """Every fault that the agent saw ends in an incident, joins one, or has a recorded reason."""
    if event.verdict is Verdict.OK or (event.node_id, event.event_id, True) in state.nodes.recorded:
        return
    node = state.nodes.nodes.get(event.node_id)
    if node is None and not event.is_from_node:
        return  # reports of others about a node without a record do not count
    named = {
        incident_id_of(event),
        *(node.resolved_faults.values() if node else ()),
        node.open_incident if node else None,
    }
    entry = f"event-{event.event_id}"
    if any(entry in state.incidents.entries.get(name or "", ()) for name in named):
        return
    # It joined an incident that was ending and was then reported again, as that requires; by then it is older than the
    # node's release.
    if not any(entry in entries for entries in state.incidents.entries.values()):
        text = f"{event.family}/{event.code} was taken, and stands in no incident and in no history"
        yield Violation(state.agenda.now, every_fault_is_accounted_for.__name__, event.event_id, text)


ALL = (
    every_fault_is_accounted_for,
    one_open_incident_a_node,
    one_destructive_action_a_node,
    budget_is_never_exceeded,
    no_attempt_beyond_its_limit,
    nothing_is_disrupted_without_a_reservation,
    only_nodes_in_service_take_work,
    a_slot_is_kept_until_its_node_is_back,
    hands_off_where_told,
    nothing_is_done_without_a_yes,
    what_people_drained_stays_drained,
    tasks_of_others_are_left_alone,
    no_gpu_is_reset_beside_tasks_of_others,
    stopped_tasks_come_back,
    a_job_is_requeued_once,
    requeued_jobs_run_again,
    no_diagnosis_beside_a_job,
    no_gang_is_torn,
    no_gang_is_restarted_above_its_count,
    no_service_falls_below_its_floor,
    nothing_stale_opens_an_incident,
    no_act_on_stale_news,
    incidents_end_or_page_in_time,
    nothing_is_left_behind,
    nothing_is_left_of_a_job,
    two_runs_never_write_at_once,
    no_job_is_forgotten,
    nodes_in_service_take_work,
    isolated_nodes_are_somebodys,
)
