"""Tasks on a node that nodeheal did not start: named when the node is isolated, and where the pool says so stopped and
brought back, once, when there is a node in service again.

The incident's timeline is the record: a line before each stop, one with its answer, one for what was started instead.
Tasks of services are left alone: the scheduler places them elsewhere by itself once a node drains.
"""

from collections.abc import Sequence
from dataclasses import replace

from nodeheal.contract.steps import Reservation, StepRequest
from nodeheal.contract.vocabulary import Action, NodeState
from nodeheal.domain.errors import NotAccepted, NotFound, PlacementRefused
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.fleet.unmanaged_tasks import StoppedTask, named, stopped_tasks
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.attempt_budget import attempts_text
from nodeheal.domain.recovery.situation import Situation
from nodeheal.domain.recovery.timeline import (
    Payload,
    TaskGone,
    TaskLeftRunning,
    TaskStarted,
    TaskStopped,
    TaskToStop,
    TimelineEntry,
)
from nodeheal.ports import Ports
from nodeheal.ports.scheduler import NodePlacement
from nodeheal.services.scheduling import is_behind_a_machine, may_stop_workloads, restarts_stopped
from nodeheal.services.steps import add_timeline_entry


def stop_unmanaged_tasks(
    request: StepRequest,
    node: Node,
    placement: NodePlacement,
    ports: Ports,
    policy: RecoveryPolicy,
    listed: Sequence[UnmanagedTask] | None = None,
    *,
    is_late: bool = False,
) -> str:
    """Stop those that may be stopped, and name all of them; a clause for the result, empty where there are none.
    `listed`: what the scheduler has listed already. `is_late`: the isolation's deadline has passed.

    Safe to repeat: what a call before has stopped is gone from the node, and known from the record.
    """
    scheduler = ports.scheduler_of(node)
    workloads = scheduler.workloads
    if workloads is None:
        return note_unknown(request, node, "its scheduler does not list them", ports)
    wants_stop = may_stop_workloads(scheduler, policy.pool(node.pool))
    tasks = workloads.unmanaged_tasks(node, placement) if listed is None else listed
    there = [task for task in tasks if not task.before]
    left = [task for task in there if not (wants_stop and task.may_be_stopped)]
    for task in there:
        if task in left:
            _note(request, f"guest-seen-{task.short_id}", f"task {task} is left to run", TaskLeftRunning(task), ports)
        else:
            text = f"task {task} is stopped, to be started again"
            _note(request, f"guest-seen-{task.short_id}", text, TaskToStop(task), ports)
    stopped = []
    # Only where the pool lets its tasks be stopped: a hundred nodes that fail together would all read their history.
    timeline = ports.incidents.history(request.incident_id).timeline if wants_stop else ()
    ours = {known.task.short_id for known in stopped_tasks(timeline)}
    for task in tasks:
        if task.before and task.short_id not in ours:  # a call before may have requeued it
            _note(request, f"guest-gone-{task.short_id}", f"task {task} {task.before}", TaskGone(task), ports)
    refusal: NotAccepted | None = None
    for known in stopped_tasks(timeline):
        try:
            stopped += [known.task] if _stop(request, known, node, ports, policy, is_late=is_late) else []
        except NotAccepted as error:
            if is_behind_a_machine(scheduler):  # it would answer the others neither
                raise
            refusal = refusal or error
    if refusal is not None:
        raise refusal
    return _clause("stopped, to be started again", stopped) + _clause("left to run", left)


def note_unknown(request: StepRequest, node: Node, why: str, ports: Ports) -> str:
    """Note that tasks of others may still run, since not all are known or stopped; a clause for the result."""
    unknown = f"tasks of others on {node.node_id} may still run: {why}"
    add_timeline_entry(request, ports, "others-not-known", unknown)
    return f"; {unknown}"


def _stop(
    request: StepRequest, known: StoppedTask, node: Node, ports: Ports, policy: RecoveryPolicy, *, is_late: bool
) -> bool:
    """Ask for the stop of one task, where no call before has had the answer, and note it. False: it had ended.

    Raises NotAccepted.
    """
    scheduler = ports.scheduler_of(node)
    by_us, is_requeued = known.by_us, restarts_stopped(scheduler) and known.successor is None
    restart = _restart_of(known.task, node, policy)
    spent = _why_held(restart, request, ports) if is_requeued and by_us is not False else ""
    if by_us is None and scheduler.workloads is not None:
        may_be_deleted = is_late and policy.pool(node.pool).deletes_blocked_pods
        asked = replace(known.task, is_held=bool(spent), may_be_deleted=may_be_deleted)
        by_us = scheduler.workloads.stop_unmanaged_task(node, asked, reason_of(request))
        if not by_us and restarts_stopped(scheduler):
            ports.attempts.refund(restart.scope, request.incident_id, restart.limit)
        past = " at the deadline, past a disruption budget if one kept it" if may_be_deleted else ""
        word = f"stopped{past}" if by_us else "had ended by itself, or is not known any more"
        answer = TaskStopped(known.task.short_id, by_us, is_held=by_us and bool(spent))
        _note(request, f"guest-stopped-{known.task.short_id}", f"task {known.task} {word}", answer, ports)
    if by_us and is_requeued:
        then = f" and is held until a person releases it: {spent}" if spent else ": its scheduler starts it again"
        again = f"task {known.task} was requeued{then}"
        _note_started(request, known.task, known.task.task_id, again, ports)
    return bool(by_us)


def _restart_of(task: UnmanagedTask, node: Node, policy: RecoveryPolicy) -> Reservation:
    """What one more restart of the task is counted as."""
    return Reservation(scope=f"job#{node.cluster.name}:{task.short_id}", limit=policy.limits[Action.RESTART_WORKLOAD])


def _why_held(restart: Reservation, request: StepRequest, ports: Ports) -> str:
    """Count it; empty: the task may have it. One that keeps breaking nodes stays down."""
    granted, spent = ports.attempts.reserve(restart.scope, request.incident_id, restart.limit)
    return "" if granted else f"{attempts_text(restart, spent)} are spent"


def restart_unmanaged_tasks(request: StepRequest, situation: Situation, ports: Ports) -> None:
    """Start each task that was stopped, and no other, once, where there is a node for it.

    A claim is not needed: a start is looked for under the task's own mark before it is made. Without a node in service
    nothing is started, late tasks neither; the ending names them all. A start that was refused is not tried again.
    """
    known = stopped_tasks(situation.history.timeline)
    owed = [each.task for each in known if each.is_owed]
    if owed:
        home = _home(situation, ports)
        if home is None:
            return
        for task in owed:
            _start(request, task, home, ports)
    for task in [each.task for each in known if each.by_us is None and not each.successor]:
        _complete(request, task, situation.history.incident.node_id, ports)


def _complete(request: StepRequest, task: UnmanagedTask, node_id: str, ports: Ports) -> None:
    """Has the scheduler start a task again whose stop took longer than the isolation."""
    node = ports.nodes.get(node_id)
    scheduler = ports.scheduler_of(node) if node is not None else None
    if node is None or scheduler is None or scheduler.restarter is None or not restarts_stopped(scheduler):
        return
    try:
        successor = scheduler.restarter.restart_unmanaged_task(node, task)
    except (PlacementRefused, NotFound):
        return
    _note_started(request, task, successor, f"task {task} has stopped late, and is started again", ports)


def reason_of(request: StepRequest) -> str:
    """Why a task is stopped, as its task's stop reason says."""
    return f"nodeheal: recovery {request.incident_id}"


def _start(request: StepRequest, task: UnmanagedTask, home: Node, ports: Ports) -> None:
    scheduler, restarter = ports.scheduler_of(home), ports.scheduler_of(home).restarter
    try:
        if restarts_stopped(scheduler):
            successor = task.task_id
        elif restarter is not None:
            successor = restarter.restart_unmanaged_task(home, task)
        else:
            raise PlacementRefused(f"nodeheal starts no tasks of {scheduler.kind}")
        text = f"task {task} was started again on {home.node_id}"
    except (PlacementRefused, NotFound) as refusal:
        successor, text = "", f"task {task} could not be started again on {home.node_id}: {refusal}"
    _note_started(request, task, successor, text, ports)


def _home(situation: Situation, ports: Ports) -> Node | None:
    """Where the tasks belong now: the node that they were on, else the one that has taken its place."""
    progress = situation.progress
    replacement = progress.replacement if progress.is_proven else None
    for name in filter(None, (situation.history.incident.node_id, replacement)):
        node = ports.nodes.get(name)
        if node is not None and node.state not in {*OUT_OF_SERVICE, NodeState.RETIRED}:
            return node
    return None


# The ids are those of release 0.3.0: what one of its functions has written is not written again.


def _note_started(request: StepRequest, task: UnmanagedTask, successor: str, text: str, ports: Ports) -> None:
    _note(request, f"guest-started-{task.short_id}", text, TaskStarted(task.short_id, successor), ports)


def _note(request: StepRequest, entry_id: str, text: str, payload: Payload, ports: Ports) -> None:
    ports.incidents.append(request.incident_id, TimelineEntry(ports.clock(), entry_id, text, payload))


def _clause(what: str, tasks: list[UnmanagedTask]) -> str:
    return f"; {what}: {named(tasks)}" if tasks else ""
