"""Sets the records right after their table was restored to an earlier moment. Only the scheduler and the executions
know what has happened since then.

What a restored record says is under way goes to a human: its workflow, its operations and its attempts are of a time
that the record does not know. Each correction may be repeated, and nodeheal acts again only when all of them are made.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from uuid import uuid4

from nodeheal.contract.acts import Actor, CorrectionMade, Reconcile, RecordsReconciled
from nodeheal.contract.vocabulary import Action, Ending, IncidentState, JobState, NodeState, Provider, VerbName
from nodeheal.domain.errors import HalfDone, NotFound
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.fleet.holder import person_holding
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node, moved
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.operation import Operation, incident_owner, job_owner, node_owner
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.decision_context import node_scope
from nodeheal.domain.recovery.incident import Incident, incident_id_of
from nodeheal.domain.recovery.timeline import TimelineEntry
from nodeheal.operations.record import update
from nodeheal.operations.replace import replacement_slots
from nodeheal.ports import Ports
from nodeheal.ports.compute import Started
from nodeheal.ports.scheduler import GangLauncher, NodePlacement, TaskChange
from nodeheal.services.jobs.ask_after_ranks import note_ends
from nodeheal.services.jobs.job_nodes import leave
from nodeheal.services.operators.release_node import release_node
from nodeheal.services.operators.request_action import request_action
from nodeheal.services.recovery.new_node_places import free_place
from nodeheal.services.recovery.undo_isolation import is_a_humans
from nodeheal.services.saving import change_job, change_node, node_of

# An incident that waits for an approval or a breaker lasts days; an older one that is still open is broken.
LONGEST_INCIDENT = timedelta(days=90)
_SECOND = timedelta(seconds=1)  # the list knows the second only
_ENTRY = "records-restored"
_FAILURES_NAMED = 5
_STAYS = (NodeState.QUARANTINED, NodeState.RETIRED)  # out of service for good, or until a human releases it
_NOT_ON_RECORD = "nodeheal: its run is not on record since the table was restored"


@dataclass(frozen=True)
class Correction:
    """What a record says wrongly, and what sets it right. May be made again."""

    about: str
    text: str
    make: Callable[[], object]


@dataclass(frozen=True)
class _Lost:
    """The records as they were restored, and what is known of the time since then: `why` says so, and who asked."""

    since: datetime
    why: str
    started: Sequence[Started]
    nodes: Sequence[Node]
    jobs: Sequence[Job]
    incidents: Sequence[Incident]
    new_machines: Sequence[str]  # that live, and are not on record

    @property
    def touched(self) -> list[Node]:
        """The nodes that a recovery may have done something to."""
        recovered = {started.node_id for started in self.started}
        mine = [n for n in self.nodes if n.has_reported and (n.state is not NodeState.RETIRED or _is_held(n))]
        return [n for n in mine if n.node_id in recovered or n.state in OUT_OF_SERVICE or _is_held(n)]


def reconcile_records(act: Reconcile, actor: Actor, ports: Ports, policy: RecoveryPolicy) -> RecordsReconciled:
    """Say what is to be set right, and do so if that is asked for. Nothing is done to records that are whole."""
    marks = ports.epoch.read()
    if marks.lost_since is None:
        return RecordsReconciled(is_over=True)
    lost = _look(marks.lost_since, actor.reason(act.why), ports)
    stages = _stages(lost, ports, policy)
    answer = RecordsReconciled(
        lost_since=marks.lost_since,
        lost_until=marks.outside,
        corrections=tuple(
            CorrectionMade(about=correction.about, text=correction.text) for stage in stages for correction in stage
        ),
    )
    if not act.is_to_apply:
        return answer
    for stage in stages:
        _make(stage)
    left = tuple(f"{rank.task_id} of {rank.job_id}" for _, _, rank in _unknown_ranks(lost, ports))
    is_over = not left and ports.epoch.renew(marks, ports.clock())
    return answer.model_copy(update={"waits_for": left, "is_over": is_over})


def _stages(lost: _Lost, ports: Ports, policy: RecoveryPolicy) -> list[list[Correction]]:
    """What is to be set right, in order. Attempts come first: what is set right later no longer shows that a recovery
    was at it. Jobs come after machines: what ran on one that is gone is over.
    """
    return [
        list(_of_attempts(lost, ports, policy)),
        list(_of_ranks(lost, ports)),
        list(_of_incidents(lost, ports)),
        list(_of_nodes(lost, ports, policy)),
        list(_of_new_machines(lost)),
        list(_of_jobs(lost, ports)),
    ]


def _make(stage: Sequence[Correction]) -> None:
    """Make all corrections of a stage, whichever fails. Raises HalfDone where one did: the next stage builds on it."""
    failed = []
    for correction in stage:
        try:
            correction.make()
        except Exception as error:  # one that always fails must keep no other from being made
            failed.append(f"{correction.about}: {str(error) or type(error).__name__}")
    if failed:
        failures = "; ".join(failed[:_FAILURES_NAMED]) + (" ..." if len(failed) > _FAILURES_NAMED else "")
        raise HalfDone(f"these could not be set right: {failures}; the same command goes on from there")


def _look(since: datetime, why: str, ports: Ports) -> _Lost:
    pools, now = ports.fleet_index.pools(), ports.clock()
    nodes = [node for pool in pools for node in ports.nodes.in_pool(pool)]
    known = {node.instance_id for node in (*nodes, *ports.nodes.unenrolled())}
    return _Lost(
        since,
        f"the records were restored to {since:%Y-%m-%d %H:%M:%S} UTC ({why})",
        started=ports.workflows.started_since(since),
        nodes=nodes,
        jobs=[job for pool in pools for job in ports.job_notes.in_pool(pool, live_only=True)],
        incidents=[
            incident
            for pool in pools
            for state in (IncidentState.OPEN, IncidentState.WAITING)
            for incident in ports.fleet_index.incidents(pool, state, now - LONGEST_INCIDENT, now + _SECOND)
        ],
        new_machines=sorted(ports.heartbeats.newest().keys() - known),
    )


def _unknown_ranks(lost: _Lost, ports: Ports) -> Iterator[tuple[GangLauncher, Cluster, TaskChange]]:
    """Yield what runs for nodeheal and no run on record has, each with its launcher and cluster."""
    for cluster in sorted({node.cluster for node in lost.nodes}):
        launcher = ports.launcher_in(cluster)
        for rank in launcher.live_ranks(cluster) if launcher is not None else ():
            run = ports.jobs.get_run(rank.job_id, rank.run)
            if launcher is not None and (run is None or all(task.task_id != rank.task_id for task in run.tasks)):
                yield launcher, cluster, rank


def _of_ranks(lost: _Lost, ports: Ports) -> Iterator[Correction]:
    for launcher, cluster, rank in _unknown_ranks(lost, ports):
        text = f"run {rank.run} of {rank.job_id} is not on record: its rank on {rank.placement} is stopped"
        yield Correction(rank.task_id, text, partial(launcher.stop_rank, cluster, rank.task_id, _NOT_ON_RECORD))


def _of_incidents(lost: _Lost, ports: Ports) -> Iterator[Correction]:
    for incident in lost.incidents:
        text = f"it is {incident.state} on record, at a step that is past: it is handed to a human"
        yield Correction(incident.incident_id, text, partial(_hand_over, incident, lost, ports))


def _hand_over(incident: Incident, lost: _Lost, ports: Ports) -> None:
    ports.incidents.append(incident.incident_id, TimelineEntry(ports.clock(), _ENTRY, lost.why))
    others = [node.node_id for node in lost.nodes if node.open_incident == incident.incident_id]
    owners = [incident_owner(incident.incident_id), *map(node_owner, {incident.node_id, *others})]
    of_it = [operation for owner in owners for operation in ports.operations.open_of(owner)]
    _end([operation for operation in of_it if operation.incident_id == incident.incident_id], ports)
    free_place(incident, ports)
    ports.incidents.finish(_handed_over(incident, lost, ports))  # last: from now on it is not looked at any more


def _handed_over(incident: Incident, lost: _Lost, ports: Ports) -> Incident:
    is_a_humans = {"state": IncidentState.ESCALATED, "ending": Ending.HANDED_TO_A_HUMAN}
    return replace(incident, **is_a_humans, summary=lost.why, closed_at=ports.clock())  # type: ignore[arg-type]


def _end(operations: Sequence[Operation], ports: Ports) -> None:
    """No workflow waits with their tokens any more, or it waits for a human now."""
    for operation in operations:
        update(operation, ports, Operation.delivered)


def _of_nodes(lost: _Lost, ports: Ports, policy: RecoveryPolicy) -> Iterator[Correction]:
    for node in lost.touched:
        if node.provider is Provider.ec2 and ports.machines.describe(node.instance_id) is None:
            text = "its machine is gone: it is retired"
            yield Correction(node.node_id, text, partial(_retire, node.node_id, lost, ports))
            continue
        placement = _placement(node, ports)
        is_out = node.state in OUT_OF_SERVICE
        if placement is None:
            continue
        if is_out and placement.is_schedulable:
            text = f"it is {node.state} on record, and its scheduler has it in service: the record follows"
            yield Correction(node.node_id, text, partial(release_node, node.node_id, lost.why, ports))
        elif not placement.is_schedulable and not person_holding(placement.held_by) and node.state not in _STAYS:
            text = f"it is {node.state} on record, and drained: it stays so, for a human to look at and release"
            yield Correction(node.node_id, text, partial(_hold, node.node_id, lost, ports, policy))
        elif not is_out and _is_held(node):
            text = "it is in service, and no incident's any more"
            yield Correction(node.node_id, text, partial(_free, node.node_id, ports))


def _is_held(node: Node) -> bool:
    return node.open_incident is not None or node.drained_by_us


def _placement(node: Node, ports: Ports) -> NodePlacement | None:
    try:
        return ports.scheduler_of(node).gate.placement_of(node)
    except NotFound:
        return None  # its silence is found by the sweep


def _hold(node_id: str, lost: _Lost, ports: Ports, policy: RecoveryPolicy) -> None:
    """Out of service, and a human's: for the incident that it names, or for one that says why."""
    node = node_of(node_id, ports)
    ports.pools.claim(node.pool, node_id, len(ports.pools.holders(node.pool)) + 1)
    if is_a_humans(node, ports):
        change_node(node_id, ports, lambda known: _held(known, str(known.open_incident), lost, ports))
        return
    change_node(node_id, ports, lambda known: replace(known, open_incident=None))
    request = request_action(node_of(node_id, ports), Action.ISOLATE, lost.why, ports, key=uuid4().hex)
    new = Incident(incident_id_of(request), node_id, node.pool, request, ports.clock(), policy.version)
    held = _held(node_of(node_id, ports), new.incident_id, lost, ports)
    ports.incidents.open(_handed_over(new, lost, ports), held)


def _held(node: Node, incident_id: str, lost: _Lost, ports: Ports) -> Node:
    if node.state is NodeState.QUARANTINED:
        return node
    out = node if node.state in OUT_OF_SERVICE else moved(node, NodeState.ISOLATED, lost.why, ports.clock())
    held = moved(out, NodeState.QUARANTINED, lost.why, ports.clock())
    return replace(held, open_incident=incident_id, drained_by_us=True)


def _retire(node_id: str, lost: _Lost, ports: Ports) -> None:
    def retired(node: Node) -> Node:
        out = node
        if node.state in (NodeState.ISOLATED, NodeState.RECOVERING):  # they have no other way there
            out = moved(node, NodeState.QUARANTINED, lost.why, ports.clock())
        gone = moved(out, NodeState.RETIRED, lost.why, ports.clock())
        return replace(gone, job_id=None, claimed_by=None)

    change_node(node_id, ports, retired)  # it names its incident until its slot is free
    _free(node_id, ports)


def _free(node_id: str, ports: Ports) -> None:
    pool = node_of(node_id, ports).pool
    for slots in (pool, replacement_slots(pool)):
        ports.pools.release(slots, node_id)
    change_node(node_id, ports, lambda known: replace(known, open_incident=None, drained_by_us=False))


def _of_new_machines(lost: _Lost) -> Iterator[Correction]:
    """Yield what only a person can do: no record says of what pool they are."""
    for machine_id in lost.new_machines:
        text = "it is new since then, and not on record: enroll it again, and see that its scheduler has it in service"
        yield Correction(machine_id, text, lambda: None)


def _of_jobs(lost: _Lost, ports: Ports) -> Iterator[Correction]:
    submitted: dict[str, int] = {}
    for job_start in lost.started:
        submitted[job_start.job_id] = max(job_start.submission, submitted.get(job_start.job_id, 0))
    listed = {job.job_id: job for job in lost.jobs}
    for name in sorted((listed.keys() | submitted.keys()) - {""}):
        job, used = listed.get(name) or ports.jobs.get(name), submitted.get(name, 0)
        if job is None:
            yield Correction(name, "it is not on record: submit it again, under another name", lambda: None)
        elif used > job.submission or (not job.is_over and not _is_where_it_was(job, ports)):
            text = "its workflow is not where its record is: the job is handed to a human"
            yield Correction(name, text, partial(_give_up, job, max(used, job.submission) + 1, lost, ports))
        elif job.is_over and name in listed:
            yield Correction(name, "how its ranks have ended is noted", partial(_note_ends, job, ports))


def _is_where_it_was(job: Job, ports: Ports) -> bool:
    """Whether its workflow still watches the very ranks that are on record as running."""
    run = ports.jobs.get_run(job.job_id, job.current_run)
    is_watched = any(
        operation.verb is VerbName.WATCH_GANG for operation in ports.operations.open_of(job_owner(job.job_id))
    )
    if run is None or not is_watched or not ports.workflows.runs_job(job.job_id, job.submission):
        return False
    live = {rank.task_id for rank in ports.launcher_for(job).live_ranks(job.cluster) if rank.job_id == job.job_id}
    return live == {task.task_id for task in run.tasks}


def _give_up(job: Job, submission: int, lost: _Lost, ports: Ports) -> None:
    """With a new number its workflow finds itself superseded, and the next one has a name that was never used."""
    _note_ends(job, ports)
    _end(ports.operations.open_of(job_owner(job.job_id)), ports)

    def given_up(known: Job) -> Job:
        known = replace(known, submission=max(known.submission, submission))
        return known if known.is_over else replace(known, state=JobState.FAILED, summary=lost.why)

    leave(given_up(ports.jobs.get(job.job_id) or job), ports)
    change_job(job.job_id, ports, given_up)  # last: from now on it is not looked at any more


def _note_ends(job: Job, ports: Ports) -> None:
    run = ports.jobs.get_run(job.job_id, job.current_run)
    if run is not None:
        note_ends(job, run, ports)


def _of_attempts(lost: _Lost, ports: Ports, policy: RecoveryPolicy) -> Iterator[Correction]:
    limits = policy.limits.values()
    recovered = {started.node_id for started in lost.started} & set(lost.new_machines)
    for name in dict.fromkeys([*(node.node_id for node in lost.touched), *sorted(recovered)]):
        spent = ports.attempts.spent(node_scope(name), *limits)
        if any(spent[limit.group] < limit.limit for limit in limits):
            text = "what was tried on it is not on record: all its attempts count as spent from now on"
            yield Correction(name, text, partial(_spend, name, lost, ports, policy))


def _spend(node_id: str, lost: _Lost, ports: Ports, policy: RecoveryPolicy) -> None:
    """The same restore spends them once, however often it is set right."""
    for limit in policy.limits.values():
        for number in range(limit.limit):
            attempt_id = f"{_ENTRY}-{lost.since:%Y%m%dT%H%M%S}/{number}"
            ports.attempts.reserve(node_scope(node_id), attempt_id, limit)
