"""nodeheal has done what it may, or knows; a human goes on."""

from nodeheal.contract.steps import StepRequest, StepResult
from nodeheal.contract.vocabulary import IncidentState
from nodeheal.domain.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.end_incident import end_incident


def escalate_incident(request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> StepResult:
    """A node that we took out of service is quarantined; one that we did not touch stays as it is."""
    return end_incident(request, ports, policy, IncidentState.ESCALATED)
