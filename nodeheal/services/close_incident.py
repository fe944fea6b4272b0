"""The incident is over."""

from nodeheal.contract.steps import StepRequest, StepResult
from nodeheal.contract.vocabulary import IncidentState
from nodeheal.domain.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.end_incident import end_incident


def close_incident(request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> StepResult:
    """Recovered, or observed only."""
    return end_incident(request, ports, policy, IncidentState.CLOSED)
