"""Have a node rerun its diagnostics, and let its own answer resume the workflow."""

from dataclasses import replace
from datetime import timedelta

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Outcome
from nodeheal.ports import Ports, Wait
from nodeheal.services.send_command import send_once
from nodeheal.services.steps import node_of, result_of, tell, token_of

DIAGNOSTICS = "diagnostics"


def run_diagnostics(request: StepRequest, ports: Ports) -> None:
    """Send the command once. The workflow resumes with what the node found on the boot that it has now."""
    token = token_of(request)
    node = node_of(request.decision.node_id, ports)
    if node.open_incident != request.incident_id:
        why = f"{node.node_id} belongs to incident {node.open_incident or 'nobody'}; its accelerators may be in use"
        ports.workflows.resume(token, result_of(request, ports, Outcome.REFUSED, why))
        return
    request_id = request_id_of(request)
    deadline = ports.clock() + timedelta(seconds=request.decision.deadline_seconds)
    wait = Wait(DIAGNOSTICS, request_id, token, request.incident_id, deadline, boot_id=node.boot_id)
    wait = _with_template(wait, request, ports)
    level = request.decision.diagnostics_level or 1
    if send_once(wait, lambda: ports.commands.diagnose(node, level, request_id, deadline), request, ports) is not None:
        tell(request, ports, "diagnostics-sent", f"dcgmi diag -r {level} started on {node.node_id}")


def request_id_of(request: StepRequest) -> str:
    """Names this diagnosis to the node and back."""
    return f"{request.incident_id}-{request.turn}"


def _with_template(wait: Wait, request: StepRequest, ports: Ports) -> Wait:
    """The wait with a result to fill in: whoever resumes it knows neither the step nor the node."""
    blank = result_of(request, ports, Outcome.UNKNOWN, "no answer yet", boot_id=wait.boot_id)
    return replace(wait, result_json=blank.model_dump_json())
