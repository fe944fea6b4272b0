"""Record how the last step went, then ask the core for the next one."""

from dataclasses import replace

from nodeheal.contract.steps import DecideRequest, Decision
from nodeheal.domain.decide import decide
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.incident import History, TimelineEntry, Turn, decision_entry, result_entry
from nodeheal.domain.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.look_around import look_around


def decide_next_step(request: DecideRequest, ports: Ports, policy: RecoveryPolicy) -> Decision:
    """The decision of this turn. Asked again for the same turn, it answers the same: what was decided is written."""
    history = ports.incidents.history(request.incident_id)
    if len(history.turns) > request.turn:
        return history.turns[request.turn].decision
    entries, history = _with_result(request, history)
    decision = decide(look_around(history, ports, policy), policy, ports.clock())
    entries.append(decision_entry(request.turn, decision, ports.clock()))
    if not ports.incidents.advance(replace(history.incident, turn=request.turn + 1), entries):
        raise NotAccepted(f"turn {request.turn} of {request.incident_id} is being decided elsewhere")
    return decision


def _with_result(request: DecideRequest, history: History) -> tuple[list[TimelineEntry], History]:
    if request.result is None or not history.turns:
        return [], history
    last = request.turn - 1
    told = Turn(history.turns[-1].decision, request.result)
    return [result_entry(last, request.result)], replace(history, turns=(*history.turns[:-1], told))
