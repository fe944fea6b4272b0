"""The end of an incident: what is written of it, and what becomes of its nodes. Pure."""

from dataclasses import replace
from datetime import datetime

from nodeheal.contract.names import IDLE_CHECK, OPERATOR_REQUEST
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Ending, IncidentState, NodeState, Outcome, Step
from nodeheal.domain.faults.diagnosis import was_fault_of_job
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node, PastRecovery, moved
from nodeheal.domain.recovery.incident import History, Incident, fingerprint
from nodeheal.domain.recovery.situation import Situation


def incident_at_end(history: History, decision: Decision, now: datetime) -> Incident:
    """Returns the incident as its last decision ends it. Raises ValueError for a decision that ends nothing."""
    ending = decision.ending
    if ending is None:
        raise ValueError(f"{decision.step} of {history.incident.incident_id} does not say how it ends")
    return replace(
        history.incident,
        state=IncidentState.ESCALATED if ending is Ending.HANDED_TO_A_HUMAN else IncidentState.CLOSED,
        ending=ending,
        summary=decision.reason,
        closed_at=now,
        has_only_restarted=history.has_only_restarted(ending),
    )


def left_by_incident(node: Node, situation: Situation, decision: Decision, now: datetime) -> Node:
    """Returns the node without the incident, where it has it.

    A node in service is free for the next incident; one that is out of service stays with this one until a human says
    so. What the incident dealt with is settled for this boot: its repeats are history, not news.
    """
    incident, progress = situation.history.incident, situation.progress
    if node.open_incident != incident.incident_id:
        return node
    is_own = node.node_id == incident.node_id
    if is_own and progress.is_isolated and not _is_no_fault(situation.history):
        node = node.with_recovery(past_recovery(situation, decision, now))
    if not is_own and progress.has_serving_machine:
        return replace(node, open_incident=None)  # its scheduler has given it work already
    if not is_own and not progress.is_proven:
        return replace(node, open_incident=None).entered(NodeState.SUSPECT, "no proof as a spare", now)
    if node.state in OUT_OF_SERVICE:
        why = node.state_reason if node.state is NodeState.QUARANTINED else decision.reason
        return moved(node, NodeState.QUARANTINED, why, now)
    node = replace(node.with_resolved_faults(settled_faults(node, situation, decision)), open_incident=None)
    is_unproven = decision.is_held_back and progress.has_waited
    return replace(node, state_reason=f"in service unproven: {decision.reason}") if is_unproven else node


def past_recovery(situation: Situation, decision: Decision, now: datetime) -> PastRecovery:
    """Returns what this recovery took, from the isolation until the node was proven and back: so long a job would wait.

    Without what its job's move took: a job that waits has none.
    """
    history, progress = situation.history, situation.progress
    incident, out, back = history.incident, progress.isolation, progress.returned
    since = out.finished_at if out is not None else incident.opened_at
    until = back.finished_at if back is not None else now
    moving = sum(turn.seconds or 0.0 for turn in history.turns if turn.decision.is_move)
    return PastRecovery(
        incident.incident_id,
        incident.opened_at,
        (until - since).total_seconds() - moving if decision.ending is Ending.RECOVERED else None,
        rung=progress.tried[-1].action if progress.tried else None,
        proof_seconds=_proof_seconds(history),
    )


def settled_faults(node: Node, situation: Situation, decision: Decision) -> dict[str, str]:
    """Returns the node's faults that the last decision knew. If others came later, only the root fault is certain."""
    history, restart = situation.history, situation.progress.restart
    root = history.incident.root
    known = history.events if history.event_count <= decision.events_seen else (root,)
    # What a node reported after its return is a relapse: the next report of it is news.
    mine = [e for e in known if e.node_id == node.node_id and e.boot_id == root.boot_id and e.code != IDLE_CHECK]
    prints = {fingerprint(event) for event in mine}
    if restart is not None and restart.outcome is Outcome.DONE:  # the next run's are news
        prints = {fault for fault in prints if not was_fault_of_job(fault, situation.policy, node.pool)}
    return dict.fromkeys(prints, history.incident.incident_id)


def _proof_seconds(history: History) -> float | None:
    """How long its last diagnosis took that came to something; None: there was none."""
    proofs = [turn for turn in history.turns if turn.decision.step is Step.DIAGNOSE]
    took = [turn.seconds for turn in proofs if turn.result is not None and turn.result.outcome is Outcome.DONE]
    return took[-1] if took else None


def _is_no_fault(history: History) -> bool:
    """Whether the incident is no fault of the node: an operator's request, or a routine check that met none."""
    return history.is_only_a_check or history.incident.root.code == OPERATOR_REQUEST
