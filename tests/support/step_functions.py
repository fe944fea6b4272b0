"""The functions of a recovery whose step is one operation, each by its name in the state machine."""

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Action, Step
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.operations.verbs import run_step
from nodeheal.ports import Ports


def as_step(request: StepRequest, step: Step, action: Action | None = None) -> StepRequest:
    """The same request, for another step."""
    decision = request.decision.model_copy(update={"step": step, "action": action})
    return request.model_copy(update={"decision": decision})


def isolate_node(request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> None:
    run_step(request, ports, policy)


def reboot_node(request: StepRequest, ports: Ports) -> None:
    run_step(request, ports)


def replace_node(request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> None:
    run_step(request, ports, policy)


def run_diagnostics(request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> None:
    run_step(request, ports, policy)


def freeze_evidence(request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> None:
    run_step(request, ports, policy)
