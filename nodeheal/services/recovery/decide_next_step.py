"""Record how the last step went, then ask the core for the next one."""

from dataclasses import replace

from nodeheal.contract.names import INCIDENT_WAITING
from nodeheal.contract.steps import DecideRequest, Decision, StepRequest
from nodeheal.contract.vocabulary import IncidentState, Step
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.unmanaged_tasks import stopped_tasks
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.confirmation import is_unclear
from nodeheal.domain.recovery.decide import decide
from nodeheal.domain.recovery.guardrails import breaker_cause
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.recovery.progress import read_progress
from nodeheal.domain.recovery.timeline import TimelineEntry, decision_entry, result_entry
from nodeheal.operations.engine import conclude
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_replacement_node import release_replacement_nodes
from nodeheal.services.notify.compose_waiting import compose_waiting
from nodeheal.services.notify.notify_job_owner import (
    notify_owner_of_step,
    notify_owner_of_wait,
    notify_owners_of_tasks,
)
from nodeheal.services.operators.operator_guardrails import trip_breaker
from nodeheal.services.recovery.build_decision_context import build_decision_context
from nodeheal.services.recovery.show_condition import show_condition
from nodeheal.services.saving import node_of


def decide_next_step(request: DecideRequest, ports: Ports, policy: RecoveryPolicy) -> Decision:
    """The decision of this turn. Asked again for the same turn, it answers the same: what was decided is written."""
    history = ports.incidents.history(request.incident_id)
    if len(history.turns) > request.turn:
        return history.turns[request.turn].decision
    decision = _decide_turn(_looked(request, history, ports), history, ports, policy)
    if request.turn == 0:  # last, and not again by a repeat: an API server that does not answer keeps nothing waiting
        show_condition(history, ports, policy)
    return decision


def decide_at_once(request: DecideRequest, ports: Ports, policy: RecoveryPolicy) -> Decision | None:
    """The decision that follows a step whose result is here. None: no workflow is left that would carry it out."""
    history = ports.incidents.history(request.incident_id)
    if history.incident.state is IncidentState.ESCALATED:
        return None
    if len(history.turns) > request.turn:
        return history.turns[request.turn].decision
    return _decide_turn(request, history, ports, policy)


def _decide_turn(request: DecideRequest, history: History, ports: Ports, policy: RecoveryPolicy) -> Decision:
    request = _witnessed(request, history, ports)
    entries, history = _with_result(request, history)
    notify_owner_of_step(history, request.result, ports, policy)
    if request.result is not None and request.result.step is Step.ISOLATE:
        restarted = [each.task for each in stopped_tasks(history.timeline) if each.is_restarted]
        notify_owners_of_tasks(history, restarted, ports, policy)
    if read_progress(history, policy).replacement_failed:
        release_replacement_nodes(history, ports, policy)  # before it could be taken for a spare of this incident
    seen, decision, has_tripped = _decide(history, ports, policy)
    if seen.context.is_job_broken:
        notify_owner_of_wait(seen, decision, ports.clock(), ports, policy)
    decided_at = ports.clock()
    entries.append(decision_entry(request.turn, decision, decided_at))
    state = IncidentState.WAITING if decision.step is Step.WAIT else IncidentState.OPEN
    if history.incident.state is IncidentState.CLOSED:
        state = IncidentState.CLOSED  # by a human's release: it only has to end
    head = replace(
        history.incident,
        turn=request.turn + 1,
        state=state,
        step=decision.step,
        step_at=decided_at,
        awaits=decision.awaits,
    )
    if not ports.incidents.advance(head, entries):
        raise NotAccepted(f"turn {request.turn} of {request.incident_id} is being decided elsewhere")
    if has_tripped:
        _page(history, decision, ports)
    return decision


def _page(history: History, decision: Decision, ports: Ports) -> None:
    """Pages at once when the breaker opens. Each wait for it pages under the same key, so people get one email, also
    if this one is lost.
    """
    told = compose_waiting(history, decision, ports.clock(), ports.console_links)
    if told is not None:
        ports.notifier.announce(INCIDENT_WAITING, told)


def _decide(history: History, ports: Ports, policy: RecoveryPolicy) -> tuple[History, Decision, bool]:
    """The history with what the decision was taken on, the decision, and whether it came with the breaker's opening.

    Where so many nodes fail for one cause that the breaker must open, it is open before anything is decided.
    """
    seen = build_decision_context(history, ports, policy)
    cause = breaker_cause(seen, policy, ports.clock())
    if cause is not None:
        found = seen.context.pool
        now = trip_breaker(found.name, cause.text, ports, found)
        seen = replace(seen, context=replace(seen.context, pool=now))
    return seen, decide(seen, policy, ports.clock()), cause is not None


def _looked(request: DecideRequest, history: History, ports: Ports) -> DecideRequest:
    """Queries once how a step went whose answer did not come in time: events get lost, and it may have worked."""
    if request.result is not None or not history.turns:
        return request
    asked = StepRequest(incident_id=request.incident_id, turn=request.turn, decision=history.turns[-1].decision)
    return request.model_copy(update={"result": conclude(asked, ports)})


def _witnessed(request: DecideRequest, history: History, ports: Ports) -> DecideRequest:
    """Adds to the result which probes report a node down that has not answered. The incident stores it."""
    result = request.result
    if result is None or not history.turns or not is_unclear(history.turns[-1].decision, result):
        return request
    down = [answer for answer in ports.liveness_probes.ask(node_of(result.node_id, ports)) if answer.is_up is False]
    if not down:
        return request
    told = "; ".join(f"{answer.witness}: {answer.text}" for answer in down)
    known = {"down_reported_by": told, "reason": f"{result.reason}; {told}"}
    return request.model_copy(update={"result": result.model_copy(update=known)})


def _with_result(request: DecideRequest, history: History) -> tuple[list[TimelineEntry], History]:
    if request.result is None or not history.turns:
        return [], history
    last = request.turn - 1
    ended = replace(history.turns[-1], result=request.result)
    return [result_entry(last, request.result)], replace(history, turns=(*history.turns[:-1], ended))
