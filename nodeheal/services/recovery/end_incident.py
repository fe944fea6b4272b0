"""Ends an incident: records how it ended, releases the nodes, wakes waiting incidents, notifies people."""

from dataclasses import replace

from nodeheal.contract.names import INCIDENT_CLOSED, INCIDENT_ESCALATED, OPERATOR_REQUEST
from nodeheal.contract.notification import Notification
from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import Decision, StepRequest
from nodeheal.contract.vocabulary import Ending, IncidentState, NodeState, Outcome, Step
from nodeheal.domain.faults.correlation import is_dropped_by_reset
from nodeheal.domain.faults.diagnosis import was_fault_of_job
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node, PastRecovery, moved
from nodeheal.domain.fleet.unmanaged_tasks import stopped_tasks
from nodeheal.domain.operation import job_owner
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.incident import History, Incident, fingerprint
from nodeheal.domain.recovery.job_move import needs_no_restart
from nodeheal.domain.recovery.progress import Progress, read_progress
from nodeheal.operations.engine import reconcile_all
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_nodes import call_next_job
from nodeheal.services.jobs.job_replacement_node import release_claims_of_move, release_replacement_nodes
from nodeheal.services.jobs.runs import current_run
from nodeheal.services.notify.compose import compose
from nodeheal.services.notify.compose_dropped import compose_dropped
from nodeheal.services.notify.compose_needed import Situation
from nodeheal.services.notify.notify_job_owner import notify_owner_of_ending, notify_owners_of_tasks
from nodeheal.services.notify.read_situation import read_situation
from nodeheal.services.recovery.build_decision_context import is_running
from nodeheal.services.recovery.new_node_places import free_place
from nodeheal.services.recovery.queue import wake_for_free_slots
from nodeheal.services.recovery.unmanaged_tasks import restart_unmanaged_tasks
from nodeheal.services.recovery.wait_for_news import bring_news
from nodeheal.services.saving import change_node
from nodeheal.services.steps import result_of


def end_incident(request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> StepResult:
    """End it as the decision says. A node that we took out of service and nothing has proven stays quarantined.

    Each part may be repeated after a crash; the email comes last and is folded."""
    ending = request.decision.ending
    if ending is None:
        raise ValueError(f"{request.decision.step} of {request.incident_id} does not say how it ends")
    is_handed_over = ending is Ending.HANDED_TO_A_HUMAN
    state = IncidentState.ESCALATED if is_handed_over else IncidentState.CLOSED
    history = ports.incidents.history(request.incident_id)
    seen = read_progress(history, policy)
    decided = request.decision
    restarted = restart_unmanaged_tasks(request, history, seen, ports)
    decided = decided.model_copy(update={"reason": decided.reason + restarted})
    closed = replace(
        history.incident,
        state=state,
        ending=ending,
        summary=decided.reason,
        closed_at=ports.clock(),
        has_only_restarted=history.has_only_restarted(ending),
    )
    if history.incident.ending is None:
        ports.incidents.finish(closed)
    # With what was started again just now.
    at_end = ports.incidents.history(request.incident_id) if stopped_tasks(history.timeline) else history
    # From the history, and not from the pool's list, which lags: a spare that is forgotten is never free again.
    spares = {turn.result.replacement_node_id for turn in history.turns if turn.result} - {None, closed.node_id}
    job, run = current_run(closed.job_id, ports)
    seen.job_is_over = job is not None and needs_no_restart(history, job, run, policy)
    seen.job_is_down = job is not None and not seen.job_is_over and not is_running(job, run, closed, ports)
    for spare in sorted(map(str, spares)):
        _release_node(spare, history, seen, decided, ports, policy)
    release_replacement_nodes(history, ports, policy)
    release_claims_of_move(history, ports)
    node = _release_node(closed.node_id, history, seen, decided, ports, policy)
    free_place(closed, ports)
    if node.state is NodeState.QUARANTINED:
        wake_for_free_slots(node.pool, ports, policy)  # it may count for no slot any more
    _wake_who_waits_for_the_job(closed, ports)
    if closed.job_id:
        reconcile_all(job_owner(closed.job_id), ports)
    call_next_job(node.pool, ports)
    detail_type = INCIDENT_ESCALATED if is_handed_over else INCIDENT_CLOSED
    if is_handed_over or not closed.is_of_new_node:  # a new node that passes is no news
        situation = read_situation(history, seen, decided, job, ports, policy)
        ports.notifier.announce(detail_type, _email(at_end, seen, decided, node, ports, situation))
    notify_owner_of_ending(history, seen, decided, ports, policy)
    late = [each.task for each in stopped_tasks(at_end.timeline) if each.is_restarted and each.by_us is None]
    notify_owners_of_tasks(at_end, late, ports, policy)
    return result_of(request, ports, Outcome.DONE, decided.reason)


def _email(
    history: History, seen: Progress, decided: Decision, node: Node, ports: Ports, situation: Situation
) -> Notification:
    if is_dropped_by_reset(decided.page_key):
        return compose_dropped(history, decided, ports.pools.get(node.pool), ports.console_links)
    return compose(history, seen, decided, node, ports.console_links, situation)


def _wake_who_waits_for_the_job(incident: Incident, ports: Ports) -> None:
    """Wakes incidents on the job's other nodes that wait for its end: this incident will not restart it."""
    _, run = current_run(incident.job_id, ports)
    if run is None or not run.has_ended:
        return
    for task in run.tasks:
        node = ports.nodes.get(task.node_id)
        if node is not None and node.open_incident not in (None, incident.incident_id):
            bring_news(str(node.open_incident), ports)


def _release_node(
    node_id: str, history: History, seen: Progress, decided: Decision, ports: Ports, policy: RecoveryPolicy
) -> Node:
    """A node in service is free for the next incident; one that is out of service stays with this one until a human
    says so. What the incident dealt with is settled for this boot: its repeats are history, not news."""
    incident_id = history.incident.incident_id

    def released(node: Node) -> Node:
        if node.open_incident != incident_id:
            return node
        if node_id == history.incident.node_id and seen.is_isolated and not _is_no_fault(history.incident):
            node = node.with_recovery(_past(history, seen, decided, ports))
        if node_id != history.incident.node_id and seen.has_serving_machine:
            return replace(node, open_incident=None)  # its scheduler has given it work already
        if node_id != history.incident.node_id and not seen.is_proven:
            return replace(node, open_incident=None).entered(NodeState.SUSPECT, "no proof as a spare", ports.clock())
        if node.state in OUT_OF_SERVICE:
            why = node.state_reason if node.state is NodeState.QUARANTINED else decided.reason
            return moved(node, NodeState.QUARANTINED, why, ports.clock())
        dealt_with = _settled(node, history, seen, decided, policy)
        node = replace(node.with_resolved_faults(dealt_with), open_incident=None)
        is_unproven = decided.is_held_back and seen.has_waited
        return replace(node, state_reason=f"in service unproven: {decided.reason}") if is_unproven else node

    return change_node(node_id, ports, released)


def _past(history: History, seen: Progress, decided: Decision, ports: Ports) -> PastRecovery:
    """What this recovery took, from the isolation until the node was proven and back: so long a job would wait. Without
    what its job's move took: a job that waits has none."""
    incident, out, back = history.incident, seen.isolation, seen.returned
    since = out.finished_at if out is not None else incident.opened_at
    until = back.finished_at if back is not None else ports.clock()
    moving = sum(turn.seconds or 0.0 for turn in history.turns if turn.decision.is_move)
    return PastRecovery(
        incident.incident_id,
        incident.opened_at,
        (until - since).total_seconds() - moving if decided.ending is Ending.RECOVERED else None,
        rung=seen.tried[-1].action if seen.tried else None,
        proof_seconds=_proof_seconds(history),
    )


def _proof_seconds(history: History) -> float | None:
    """How long its last diagnosis took that came to something; None: there was none."""
    proofs = [turn for turn in history.turns if turn.decision.step is Step.DIAGNOSE]
    took = [turn.seconds for turn in proofs if turn.result is not None and turn.result.outcome is Outcome.DONE]
    return took[-1] if took else None


def _is_no_fault(incident: Incident) -> bool:
    """Whether the incident is no fault of the node: an operator's request, or a new node."""
    return incident.is_of_new_node or incident.root.code == OPERATOR_REQUEST


def _settled(node: Node, history: History, seen: Progress, decided: Decision, policy: RecoveryPolicy) -> dict[str, str]:
    """Returns the node's faults that the last decision knew. If others came later, only the root fault is certain."""
    root = history.incident.root
    known = history.events if history.event_count <= decided.events_seen else (root,)
    # What a node reported after its return is a relapse: the next report of it is news.
    mine = [e for e in known if e.node_id == node.node_id and e.boot_id == root.boot_id]
    prints = {fingerprint(event) for event in mine}
    if seen.restart is not None and seen.restart.outcome is Outcome.DONE:
        prints = {
            fault for fault in prints if not was_fault_of_job(fault, policy, node.pool)
        }  # the next run's are news
    return dict.fromkeys(prints, history.incident.incident_id)
