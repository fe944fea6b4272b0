"""The functions of a recovery whose step is one operation, each by its name in the state machine."""

from nodeheal.contract.steps import StepRequest
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.operations.verbs import run_step
from nodeheal.ports import Ports


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
