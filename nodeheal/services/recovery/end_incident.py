"""Ends an incident.

The workflow calls it once, after the decision that ends the incident. Where AWS or another writer breaks the
call off, the state's `Retry` repeats it as a whole; at any other error operators are paged, and the incident is marked
as escalated.

1. Tasks of others that were stopped for the recovery are started again, each once; the timeline says which.
2. The situation is read.
3. The effects of the ending follow from it (`domain/recovery/effects.py`) and are carried out in their order: the
   ending is stored, nodes are released, incidents and jobs that wait for them are woken, people are notified.
"""

from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Outcome
from nodeheal.domain.fleet.unmanaged_tasks import not_restarted_text, stopped_tasks
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.effects import effects_of_ending
from nodeheal.domain.recovery.ending import incident_at_end
from nodeheal.domain.recovery.situation import Situation
from nodeheal.ports import Ports
from nodeheal.services.recovery.carry_out import carry_out_ending
from nodeheal.services.recovery.read_situation import read_ending
from nodeheal.services.recovery.unmanaged_tasks import restart_unmanaged_tasks
from nodeheal.services.steps import result_of


def end_incident(request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> StepResult:
    """End it as the decision says. A node that we took out of service and nothing has proven stays quarantined.

    Raises ValueError for a decision that ends nothing.
    """
    history = ports.incidents.history(request.incident_id)
    incident_at_end(history, request.decision, ports.clock())  # before anything is done
    if stopped_tasks(history.timeline):
        # What is around the incident does not matter to them: the next lines read it.
        restart_unmanaged_tasks(request, Situation(history, policy), ports)
        history = ports.incidents.history(request.incident_id)
    reason = request.decision.reason + not_restarted_text(history.timeline)
    decision = request.decision.model_copy(update={"reason": reason})
    situation = read_ending(history, ports, policy)
    carry_out_ending(effects_of_ending(situation, decision, ports.clock()), situation, decision, ports)
    return result_of(request, ports, Outcome.DONE, reason)
