"""Checks every write and every action against the invariants."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.vocabulary import NodeState, Step
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.jobs.job import Run
from nodeheal.domain.recovery.incident import Incident
from nodeheal.simulation.agenda import seconds_of
from nodeheal.simulation.cluster_jobs import ClusterJob
from nodeheal.simulation.invariants import (
    a_job_is_requeued_once,
    a_slot_is_kept_until_its_node_is_back,
    budget_is_never_exceeded,
    every_fault_is_accounted_for,
    hands_off_where_told,
    incidents_end_or_page_in_time,
    isolated_nodes_are_somebodys,
    no_act_on_stale_news,
    no_attempt_beyond_its_limit,
    no_attempt_on_an_accelerator_beyond_its_limit,
    no_diagnosis_beside_a_job,
    no_gang_is_restarted_above_its_count,
    no_gang_is_torn,
    no_gpu_is_reset_beside_tasks_of_others,
    no_job_is_forgotten,
    no_service_falls_below_its_floor,
    nodes_in_service_take_work,
    nothing_is_disrupted_without_a_reservation,
    nothing_is_done_without_a_yes,
    nothing_is_left_behind,
    nothing_is_left_of_a_job,
    nothing_stale_opens_an_incident,
    one_destructive_action_a_node,
    one_open_incident_a_node,
    only_nodes_in_service_take_work,
    requeued_jobs_run_again,
    serial_of,
    stopped_tasks_come_back,
    tasks_of_others_are_left_alone,
    two_runs_never_write_at_once,
    what_people_drained_stays_drained,
)
from nodeheal.simulation.kubernetes import PodGang, ReplicaSet
from nodeheal.simulation.launches import Launches
from nodeheal.simulation.seen import LIVE, NodeAction, Requeue, Seen, Violation
from nodeheal.simulation.trace import Trace

# A decision is carried out within its deadline, or twice that where a child workflow observes as well; then come
# retries and the observation.
MARGIN_SECONDS = 1_800.0
SETTLED_SECONDS = 3_600.0


class Watch:
    """Receives every write and every action, and collects violations."""

    def __init__(self, state: Seen, trace: Trace) -> None:
        self.state, self._trace = state, trace
        self._launches = Launches(state)
        self.violations: list[Violation] = []
        self.live_of: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self.acts: defaultdict[str, list[NodeAction]] = defaultdict(list)
        self.acts_on: defaultdict[str, list[NodeAction]] = defaultdict(list)  # by the serial of the accelerator
        self.requeues: list[Requeue] = []
        self.out_of_service: dict[str, None] = {}
        # Seconds from the fault, as the node saw it. After a wait: a decision required waiting for the job's end, a
        # person, a slot, or the end of a pause.
        self.isolated_at_once: list[float] = []
        self.isolated_after_wait: list[float] = []
        self._left_at: dict[str, float] = {}
        self._lost_seconds = 0.0
        self._accounted_for: set[str] = set()
        self._restores = 0
        state.nodes.on_save = self.node_saved
        state.incidents.on_change = self.incident_changed

    def node_saved(self, before: Node | None, after: Node) -> None:
        """Check a write of a node."""
        if before is not None and before.boot_id != after.boot_id:
            self.state.boots_heard_at[after.node_id] = self.state.agenda.now
        if after.state in OUT_OF_SERVICE:
            self.out_of_service[after.node_id] = None
            self._left_at.setdefault(after.node_id, self.state.agenda.now)
        elif after.node_id in self.out_of_service:
            del self.out_of_service[after.node_id]
            self._lost_seconds += self.state.agenda.now - self._left_at.pop(after.node_id)
        if after.state is NodeState.ISOLATED and (before is None or before.state is not NodeState.ISOLATED):
            self._hold(budget_is_never_exceeded(self.state, after))

    def incident_changed(self, before: Incident | None, after: Incident) -> None:
        """Check an incident that was opened, decided upon, or ended."""
        live = self.live_of[after.node_id]
        if after.state in LIVE:
            live[after.incident_id] = None
        else:
            live.pop(after.incident_id, None)
        if before is None:
            self._trace.tell("incident", after.incident_id, f"{after.root.family}/{after.root.code}")
            self._hold(one_open_incident_a_node(after, list(live)))
            self._hold(nothing_stale_opens_an_incident(self.state, after))
        if after.state in LIVE and (before is None or before.turn != after.turn):
            self._watch_turn(after)
        if before is not None and before.ending is None and after.ending is not None:
            self._trace.tell("ending", after.incident_id, f"{after.ending}: {after.summary}")
            self.look_later(SETTLED_SECONDS, lambda: nothing_is_left_behind(self.state, after.incident_id))
            self.look_later(SETTLED_SECONDS, lambda: stopped_tasks_come_back(self.state, after.incident_id))
            self.look_later(SETTLED_SECONDS, lambda: isolated_nodes_are_somebodys(self.state, after.node_id))
            self.look_later(SETTLED_SECONDS, lambda: nodes_in_service_take_work(self.state, after.node_id))

    def acted(self, verb: str, node_id: str, why: str) -> None:
        """Check an action on a node, by the incident that owns it."""
        node = self.state.nodes.nodes.get(node_id)
        if node is None:
            return
        of_incident = node.open_incident or ""
        act = NodeAction(
            self.state.agenda.now, verb, node_id, of_incident, node.boot_id, serial_of(self.state, of_incident)
        )
        self._trace.tell("act", node_id, f"{verb} ({why})")
        for check in (one_destructive_action_a_node, no_attempt_beyond_its_limit, hands_off_where_told):
            self._hold(check(self.state, self.acts[node_id], act))
        self._hold(no_attempt_on_an_accelerator_beyond_its_limit(self.state, self.acts_on[act.serial], act))
        self._hold(nothing_is_disrupted_without_a_reservation(self.state, act))
        self._hold(nothing_is_done_without_a_yes(self.state, act))
        self._hold(no_gpu_is_reset_beside_tasks_of_others(self.state, act))
        if verb != "stop":
            self._hold(no_act_on_stale_news(self.state, act))
        if verb == "isolate":
            incident = self.state.incidents.incidents.get(act.incident_id)
            is_done = any((past.verb, past.incident_id) == (verb, act.incident_id) for past in self.acts[node_id])
            if incident is not None and not is_done:  # a repeated call isolates it once more
                turns = self.state.incidents.history(act.incident_id).turns
                has_waited = any(turn.decision.step is Step.WAIT for turn in turns)
                into = self.isolated_after_wait if has_waited else self.isolated_at_once
                into.append(act.at - seconds_of(incident.root.observed_at))
        self.acts[node_id].append(act)
        if act.serial:
            self.acts_on[act.serial].append(act)

    def rank_started(self, run: Run) -> None:
        """Check that a rank of a job is really started."""
        self._hold(self._launches.started(run))
        self._hold(two_runs_never_write_at_once(self.state, run))

    def rank_asked_to_stop(self, reason: str) -> None:
        """Check that a rank of a job is stopped, and why."""
        self._hold(self._launches.asked_to_stop(reason))

    def switched_on(self, node_id: str) -> None:
        """Check that nodeheal puts a node back in service."""
        self._hold(what_people_drained_stays_drained(self.state, node_id))
        self._hold(only_nodes_in_service_take_work(self.state, node_id))

    def slot_released(self, pool: str, node_id: str) -> None:
        """Check that a slot of the budget is free again."""
        self._hold(a_slot_is_kept_until_its_node_is_back(self.state, pool, node_id))

    def unmanaged_task_stopped(self, node_id: str, unmanaged_task: UnmanagedTask) -> None:
        """Check that nodeheal stops an unmanaged task."""
        self._trace.tell("act", node_id, f"stops {unmanaged_task}")
        self._hold(tasks_of_others_are_left_alone(self.state, self.state.nodes.nodes[node_id], unmanaged_task))

    def job_requeued(self, node_id: str, job: ClusterJob) -> None:
        """Check that nodeheal requeues a job of Slurm from this node, or restarts a gang of Kubernetes."""
        node = self.state.nodes.nodes[node_id]
        requeue = Requeue(job.job_id, node_id, node.open_incident or "")
        self._hold(a_job_is_requeued_once(self.state, self.requeues, requeue))
        self.requeues.append(requeue)
        self._look_for_it_later(job, requeue)

    def gang_resumed(self, gang: PodGang) -> None:
        """Check that nodeheal resumes a gang of Kubernetes."""
        self._hold(no_gang_is_torn(self.state, gang))
        self._hold(no_gang_is_restarted_above_its_count(self.state, gang))

    def pod_evicted(self, service: ReplicaSet) -> None:
        """Check that nodeheal has evicted a pod of a service."""
        self._hold(no_service_falls_below_its_floor(self.state, service))

    def _look_for_it_later(self, job: ClusterJob, requeue: Requeue) -> None:
        """Schedule a check whether it runs again, and another while it does not."""

        def look() -> Iterator[Violation]:
            yield from requeued_jobs_run_again(self.state, requeue)
            if job.is_waiting:
                self._look_for_it_later(job, requeue)

        self.look_later(SETTLED_SECONDS, look)

    def diagnosed(self, node: Node) -> None:
        """Check diagnostics that are sent to a node."""
        self._hold(no_diagnosis_beside_a_job(self.state, self.state.nodes.nodes[node.node_id]))

    def restored(self) -> None:
        """Go on with the records of a restored table: what was to be checked of the others is checked no more."""
        self._restores += 1
        nodes, incidents = self.state.nodes.nodes, self.state.incidents.incidents
        self.live_of.clear()
        out = [node_id for node_id, node in nodes.items() if node.state in OUT_OF_SERVICE]
        self.out_of_service = dict.fromkeys(out)
        self._left_at = {node_id: self._left_at.get(node_id, self.state.agenda.now) for node_id in out}
        for incident in [incident for incident in incidents.values() if incident.state in LIVE]:
            self.live_of[incident.node_id][incident.incident_id] = None
            self._watch_turn(incident)

    def out_of_service_seconds(self) -> float:
        """Return the time out of service of all nodes together, by nodeheal or a human, until now."""
        return self._lost_seconds + sum(self.state.agenda.now - at for at in self._left_at.values())

    def look_later(self, seconds: float, check: Callable[[], Iterator[Violation]]) -> None:
        """Schedule a check of what must be true by then."""
        restores = self._restores
        self.state.agenda.after(seconds, lambda: self._hold(check() if restores == self._restores else iter(())))

    def ingested(self, event: HealthEvent) -> None:
        """Check an event that was processed. A repeated one may find its incident closed."""
        if event.event_id not in self._accounted_for:
            self._accounted_for.add(event.event_id)
            self._hold(every_fault_is_accounted_for(self.state, event))

    def jobs_ended(self, alive: Collection[str]) -> None:
        """Check the end of the simulation. `alive`: the jobs with a rank anywhere, including dark nodes."""
        self._hold(nothing_is_left_of_a_job(self.state, alive))
        self._hold(no_job_is_forgotten(self.state))

    def break_promise(self, invariant: str, about: str, text: str) -> None:
        """Record a violation that another module has found."""
        self._hold(iter([Violation(self.state.agenda.now, invariant, about, text)]))

    def _watch_turn(self, incident: Incident) -> None:
        seconds = MARGIN_SECONDS + self.state.outage_seconds
        turns = self.state.incidents.history(incident.incident_id).turns if incident.turn else ()
        if turns:
            seconds += 2 * turns[-1].decision.deadline_seconds
        turn = incident.turn
        self.look_later(seconds, lambda: incidents_end_or_page_in_time(self.state, incident.incident_id, turn))

    def _hold(self, broken: Iterator[Violation]) -> None:
        for violation in broken:
            self.violations.append(violation)
            self._trace.tell("VIOLATION", violation.about, f"{violation.invariant}: {violation.text}")
