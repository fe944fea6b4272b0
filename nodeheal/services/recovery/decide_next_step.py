"""Decides the next step of an incident.

The workflow calls it at its beginning and after each step, and so does a function that ends a step:

1. The result of the last step is taken from the call; where it did not come in time, it is looked for.
2. The situation is read: the incident, and what is around it.
3. The core decides (`domain/recovery/decide.py`).
4. The effects of the decision (`domain/recovery/effects.py`) are carried out in their order. One of them stores the
   decision, behind all that a crash must not lose. A repeated call finds it and answers the same.
"""

from dataclasses import replace

from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import DecideRequest, Decision, StepRequest
from nodeheal.contract.vocabulary import IncidentState
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.confirmation import is_unclear
from nodeheal.domain.recovery.decide import decide
from nodeheal.domain.recovery.effects import effects_of_turn
from nodeheal.domain.recovery.guardrails import breaker_cause, with_open_breaker
from nodeheal.domain.recovery.incident import History
from nodeheal.operations.verbs import conclude
from nodeheal.ports import Ports
from nodeheal.services.recovery.carry_out import carry_out_turn
from nodeheal.services.recovery.read_situation import read_situation
from nodeheal.services.recovery.show_condition import show_condition
from nodeheal.services.saving import node_of


def decide_next_step(request: DecideRequest, ports: Ports, policy: RecoveryPolicy) -> Decision:
    """The decision of this turn. Asked again for the same turn, it answers the same: what was decided is written."""
    history = ports.incidents.history(request.incident_id)
    if len(history.turns) > request.turn:
        return history.turns[request.turn].decision
    decision = _decide_turn(request.turn, _result_of(request, history, ports), history, ports, policy)
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
    return _decide_turn(request.turn, request.result, history, ports, policy)


def _decide_turn(
    turn: int, result: StepResult | None, history: History, ports: Ports, policy: RecoveryPolicy
) -> Decision:
    if result is not None and history.turns:
        result = _with_witnesses(result, history, ports)
        history = replace(history, turns=(*history.turns[:-1], replace(history.turns[-1], result=result)))
    else:
        result = None
    situation, now = read_situation(history, ports, policy), ports.clock()
    # Where so many nodes fail for one cause that the breaker must open, the decision knows it as open.
    cause = breaker_cause(situation, now)
    if cause is not None:
        situation = with_open_breaker(situation, cause, now)
    decision = decide(situation, now)
    carry_out_turn(effects_of_turn(situation, decision, turn, result, cause, now), situation, decision, ports)
    return decision


def _result_of(request: DecideRequest, history: History, ports: Ports) -> StepResult | None:
    """The last step's result. One that did not come in time is queried once: events get lost, and it may have worked.

    None: nothing was decided yet.
    """
    if request.result is not None or not history.turns:
        return request.result
    step = StepRequest(incident_id=request.incident_id, turn=request.turn, decision=history.turns[-1].decision)
    return conclude(step, ports)


def _with_witnesses(result: StepResult, history: History, ports: Ports) -> StepResult:
    """Adds to the result which probes report a node down that has not answered. The incident stores it."""
    if not is_unclear(history.turns[-1].decision, result):
        return result
    down = [answer for answer in ports.liveness_probes.ask(node_of(result.node_id, ports)) if answer.is_up is False]
    if not down:
        return result
    reports = "; ".join(f"{answer.witness}: {answer.text}" for answer in down)
    return result.model_copy(update={"down_reported_by": reports, "reason": f"{result.reason}; {reports}"})
