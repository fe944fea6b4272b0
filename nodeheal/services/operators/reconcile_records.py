"""Sets the records right after their table was restored to an earlier moment. Only the scheduler and the executions
know what has happened since then.

What a restored record says is under way goes to a human: its workflow, its operations and its attempts are of a time
that the record does not know. Each correction may be repeated, and nodeheal acts again only when all of them are made.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from nodeheal.contract.reconcile import CorrectionMade, ReconcileAnswer, ReconcileRequest
from nodeheal.contract.vocabulary import Action, Ending, IncidentState, JobState, NodeState, Provider
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node, moved
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.operation import Operation, incident_owner, job_owner, node_owner
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.decision_context import node_scope
from nodeheal.domain.recovery.incident import Incident, TimelineEntry, incident_id_of
from nodeheal.operations.record import update
from nodeheal.operations.replace import replacement_slots
from nodeheal.ports import Ports
from nodeheal.ports.scheduler import NodePlacement, Scheduler, TaskChange
from nodeheal.services.jobs.ask_after_ranks import note_ends
from nodeheal.services.jobs.job_nodes import leave
from nodeheal.services.operators.release_node import release_node
from nodeheal.services.operators.request_action import request_action
from nodeheal.services.recovery.new_node_places import free_place
from nodeheal.services.recovery.undo_isolation import is_a_humans
from nodeheal.services.saving import change_job, change_node, node_of

# An incident that waits for an approval or a breaker lasts days; an older one that is still open is broken.
LONGEST_INCIDENT = timedelta(days=90)
_ENTRY = "records-restored"
_NOT_ON_RECORD = "nodeheal: its run is not on record since the table was restored"


@dataclass(frozen=True)
class Correction:
    """What a record says wrongly, and what sets it right. May be made again."""

    about: str
    text: str
    make: Callable[[], object]


def reconcile_records(request: ReconcileRequest, ports: Ports, policy: RecoveryPolicy) -> ReconcileAnswer:
    """Say what is to be set right, and do so if that is asked for. Nothing is done to records that are whole."""
    epoch = ports.epoch.read()
    since = epoch.lost_since
    if since is None:
        return ReconcileAnswer(is_over=True)
    found = _Reconciliation(since, request.why, ports, policy)
    corrections = found.corrections()
    answer = ReconcileAnswer(
        lost_since=since,
        lost_until=epoch.outside,
        corrections=tuple(CorrectionMade(about=one.about, text=one.text) for one in corrections),
    )
    if not request.is_to_apply:
        return answer
    for one in corrections:
        one.make()
    left = tuple(f"{rank.task_id} of {rank.job_id}" for _, _, rank in found.unknown_ranks())
    is_over = not left and ports.epoch.renew(epoch, ports.clock())
    return answer.model_copy(update={"waits_for": left, "is_over": is_over})


class _Reconciliation:
    """Compares what is on record with what is the case."""

    def __init__(self, since: datetime, why: str, ports: Ports, policy: RecoveryPolicy) -> None:
        self._since, self._ports, self._policy = since, ports, policy
        self._why = f"the records were restored to {since:%Y-%m-%d %H:%M:%S} UTC ({why})"
        self._started = ports.workflows.started_since(since)
        pools = ports.fleet_index.pools()
        self._nodes = [node for pool in pools for node in ports.nodes.in_pool(pool)]
        self._jobs = [job for pool in pools for job in ports.job_notes.in_pool(pool, live_only=True)]
        known = {node.instance_id for node in (*self._nodes, *ports.nodes.unenrolled())}
        self._new_machines = sorted(ports.heartbeats.newest().keys() - known)
        self._live = [incident for pool in pools for incident in self._under_way(pool)]

    def corrections(self) -> list[Correction]:
        """Return them in the order in which they are to be made: ranks end and incidents are handed over first."""
        machines = [*self._of_nodes(), *self._of_new_machines()]
        # Jobs come later: what ran on a machine that is gone has ended.
        return [*self._of_ranks(), *self._of_incidents(), *machines, *self._of_jobs(), *self._of_attempts()]

    def unknown_ranks(self) -> Iterator[tuple[Scheduler, str, TaskChange]]:
        """Yield what runs for nodeheal and no run on record has, each with its scheduler and cluster."""
        for kind, scheduler in self._ports.schedulers.items():
            for cluster in sorted({node.cluster for node in self._nodes if node.scheduler is kind}):
                for rank in scheduler.live_ranks(cluster):
                    run = self._ports.jobs.get_run(rank.job_id, rank.run)
                    if run is None or all(task.task_id != rank.task_id for task in run.tasks):
                        yield scheduler, cluster, rank

    def _under_way(self, pool: str) -> Iterator[Incident]:
        now = self._ports.clock()
        for state in (IncidentState.OPEN, IncidentState.WAITING):
            yield from self._ports.fleet_index.incidents(pool, state, now - LONGEST_INCIDENT, now)

    def _of_ranks(self) -> Iterator[Correction]:
        for scheduler, cluster, rank in self.unknown_ranks():
            text = f"run {rank.run} of {rank.job_id} is not on record: its rank on {rank.placement} is stopped"
            yield Correction(rank.task_id, text, partial(scheduler.stop_rank, cluster, rank.task_id, _NOT_ON_RECORD))

    def _of_incidents(self) -> Iterator[Correction]:
        for incident in self._live:
            text = f"it is {incident.state} on record, at a step that is past: it is handed to a human"
            yield Correction(incident.incident_id, text, partial(self._hand_over, incident))

    def _hand_over(self, incident: Incident) -> None:
        ports, now = self._ports, self._ports.clock()
        ports.incidents.append(incident.incident_id, TimelineEntry(now, "progress", _ENTRY, self._why))
        ports.incidents.finish(
            replace(
                incident,
                state=IncidentState.ESCALATED,
                ending=Ending.HANDED_TO_A_HUMAN,
                summary=self._why,
                closed_at=now,
            )
        )
        others = [node.node_id for node in self._nodes if node.open_incident == incident.incident_id]
        owners = [incident_owner(incident.incident_id), *map(node_owner, {incident.node_id, *others})]
        of_it = [operation for owner in owners for operation in ports.operations.open_of(owner)]
        self._end(operation for operation in of_it if operation.incident_id == incident.incident_id)
        free_place(incident, ports)

    def _end(self, operations: Iterable[Operation]) -> None:
        """No workflow waits with their tokens any more, or it waits for a human now."""
        for operation in operations:
            update(operation, self._ports, Operation.delivered)

    def _of_jobs(self) -> Iterator[Correction]:
        submitted: dict[str, int] = {}
        for one in self._started:
            submitted[one.job_id] = max(one.submission, submitted.get(one.job_id, 0))
        listed = {job.job_id: job for job in self._jobs}
        for name in sorted((listed.keys() | submitted.keys()) - {""}):
            job, used = listed.get(name) or self._ports.jobs.get(name), submitted.get(name, 0)
            if job is None:
                yield Correction(name, "it is not on record: submit it again, under another name", lambda: None)
            elif used > job.submission or (not job.is_over and self._has_moved(job)):
                text = "its workflow is not where its record is: the job is handed to a human"
                yield Correction(name, text, partial(self._give_up, job, max(used, job.submission) + 1))
            elif job.is_over and name in listed:
                yield Correction(name, "how its ranks have ended is noted", partial(self._note_ends, job))

    def _has_moved(self, job: Job) -> bool:
        return self._ports.workflows.has_moved(job.job_id, job.submission, self._since)

    def _give_up(self, job: Job, submission: int) -> None:
        """With a new number its workflow finds itself superseded, and the next one has a name that was never used."""
        self._note_ends(job)
        self._end(self._ports.operations.open_of(job_owner(job.job_id)))

        def given_up(known: Job) -> Job:
            known = replace(known, submission=max(known.submission, submission))
            return known if known.is_over else replace(known, state=JobState.FAILED, summary=self._why)

        leave(change_job(job.job_id, self._ports, given_up), self._ports)

    def _note_ends(self, job: Job) -> None:
        run = self._ports.jobs.get_run(job.job_id, job.current_run)
        if run is not None:
            note_ends(job, run, self._ports)

    def _of_nodes(self) -> Iterator[Correction]:
        for node in self._touched():
            if node.provider is Provider.ec2 and self._ports.machines.describe(node.instance_id) is None:
                yield Correction(
                    node.node_id, "its machine is gone: it is retired", partial(self._retire, node.node_id)
                )
                continue
            placement = self._placement(node)
            is_out = node.state in OUT_OF_SERVICE
            if placement is None:
                continue
            if is_out and placement.is_schedulable:
                text = f"it is {node.state} on record, and its scheduler has it in service: the record follows"
                yield Correction(node.node_id, text, partial(release_node, node.node_id, self._why, self._ports))
            elif not placement.is_schedulable and not placement.why_not and node.state is not NodeState.QUARANTINED:
                text = f"it is {node.state} on record, and drained: it stays so, for a human to look at and release"
                yield Correction(node.node_id, text, partial(self._hold, node.node_id))
            elif not is_out and node.open_incident is not None:
                text = f"it is in service, and free of {node.open_incident}"
                yield Correction(node.node_id, text, partial(self._free, node.node_id))

    def _of_new_machines(self) -> Iterator[Correction]:
        """Yield what only a person can do: no record says of what pool they are."""
        for machine_id in self._new_machines:
            text = (
                "it is new since then, and not on record: enroll it again, and see that its scheduler has it in service"
            )
            yield Correction(machine_id, text, lambda: None)

    def _touched(self) -> list[Node]:
        """Return the nodes that a recovery may have done something to since then."""
        recovered = {started.node_id for started in self._started}
        mine = [node for node in self._nodes if node.state is not NodeState.RETIRED and node.has_reported]
        return [n for n in mine if n.node_id in recovered or n.open_incident is not None or n.state in OUT_OF_SERVICE]

    def _placement(self, node: Node) -> NodePlacement | None:
        try:
            return self._ports.scheduler_of(node).placement_of(node)
        except NotFound:
            return None  # its silence is found by the sweep

    def _hold(self, node_id: str) -> None:
        """Out of service, and a human's: of the incident that it names, or of one that says why."""
        ports, node = self._ports, node_of(node_id, self._ports)
        ports.pools.claim(node.pool, node_id, len(ports.pools.holders(node.pool)) + 1)
        if is_a_humans(node, ports):
            change_node(node_id, ports, lambda known: self._held(known, str(known.open_incident)))
            return
        change_node(node_id, ports, lambda known: replace(known, open_incident=None))
        request = request_action(node_id, Action.ISOLATE, self._why, ports)
        incident = Incident(
            incident_id=incident_id_of(request),
            node_id=node_id,
            pool=node.pool,
            root=request,
            opened_at=ports.clock(),
            policy_version=self._policy.version,
            state=IncidentState.ESCALATED,
            ending=Ending.HANDED_TO_A_HUMAN,
            summary=self._why,
            closed_at=ports.clock(),
        )
        ports.incidents.open(incident, self._held(node_of(node_id, ports), incident.incident_id))

    def _held(self, node: Node, incident_id: str) -> Node:
        if node.state is NodeState.QUARANTINED:
            return node
        now = self._ports.clock()
        out = node if node.state in OUT_OF_SERVICE else moved(node, NodeState.ISOLATED, self._why, now)
        return replace(moved(out, NodeState.QUARANTINED, self._why, now), open_incident=incident_id, drained_by_us=True)

    def _retire(self, node_id: str) -> None:
        def retired(node: Node) -> Node:
            out = node
            if node.state in (NodeState.ISOLATED, NodeState.RECOVERING):  # they have no other way there
                out = moved(node, NodeState.QUARANTINED, self._why, self._ports.clock())
            gone = moved(out, NodeState.RETIRED, self._why, self._ports.clock())
            return replace(gone, drained_by_us=False, job_id=None, claimed_by=None)

        change_node(node_id, self._ports, retired)
        self._free(node_id)

    def _free(self, node_id: str) -> None:
        change_node(node_id, self._ports, lambda known: replace(known, open_incident=None))
        pool = node_of(node_id, self._ports).pool
        for slots in (pool, replacement_slots(pool)):
            self._ports.pools.release(slots, node_id)

    def _of_attempts(self) -> Iterator[Correction]:
        limits = self._policy.limits.values()
        recovered = {started.node_id for started in self._started} & set(self._new_machines)
        for name in dict.fromkeys([*(node.node_id for node in self._touched()), *sorted(recovered)]):
            spent = self._ports.attempts.spent(node_scope(name), *limits)
            if any(spent[limit.group] < limit.limit for limit in limits):
                text = "what was tried on it is not on record: all its attempts count as spent from now on"
                yield Correction(name, text, partial(self._spend, name))

    def _spend(self, node_id: str) -> None:
        """The same restore spends them once, however often it is set right."""
        for limit in self._policy.limits.values():
            for number in range(limit.limit):
                attempt_id = f"{_ENTRY}-{self._since:%Y%m%dT%H%M%S}/{number}"
                self._ports.attempts.reserve(node_scope(node_id), attempt_id, limit)
