"""The steps of a recovery that are operations, as the state machine's functions call them."""

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Action
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.approval_links import Links
from nodeheal.operations import approve, diagnose, reboot, stop_start
from nodeheal.operations import freeze_evidence as evidence
from nodeheal.operations.engine import begin
from nodeheal.operations.handler import World
from nodeheal.ports import Ports


def reboot_node(request: StepRequest, ports: Ports) -> None:
    """Reboot the node, or stop and start its machine. Its next boot resumes the workflow."""
    plan = stop_start.plan if request.decision.action is Action.STOP_START else reboot.plan
    begin(plan(request, ports), World(ports))


def run_diagnostics(request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> None:
    """Have the node rerun its diagnostics. Its answer resumes the workflow."""
    begin(diagnose.plan(request, ports), World(ports, policy))


def freeze_evidence(request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> None:
    """Have the node save its evidence, and say whether it shows the fault. Its answer resumes the workflow."""
    begin(evidence.plan(request, ports), World(ports, policy))


def wait_for_approval(request: StepRequest, ports: Ports, links: Links) -> None:
    """Ask a human. The answer resumes the workflow: DONE for yes, REFUSED for no."""
    begin(approve.plan(request, ports), World(ports, given_links=links))
