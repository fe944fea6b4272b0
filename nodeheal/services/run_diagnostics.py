"""Have a node rerun its diagnostics, and let its own answer resume the workflow."""

import re
from dataclasses import replace
from datetime import timedelta

from nodeheal.contract.results import Diagnosed
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Outcome
from nodeheal.domain.errors import NotFound
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.evidence import Diagnosis
from nodeheal.ports import Ports, Wait
from nodeheal.services.send_command import send_once
from nodeheal.services.stand_in import claim_node
from nodeheal.services.steps import forget, node_of, result_of, tell, token_of

DIAGNOSTICS = "diagnostics"
FIRST_TESTS = 5
_TEST = re.compile(r"[a-z][a-z0-9_]{0,39}")


def run_diagnostics(request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> None:
    """Send the command once. The workflow resumes with what the node found on the boot that it has now."""
    token = token_of(request)
    node = node_of(request.decision.node_id, ports)
    is_held = request.decision.is_move and claim_node(node.node_id, request.incident_id, ports)
    if node.open_incident != request.incident_id and not is_held:
        why = f"{node.node_id} belongs to incident {node.open_incident or 'nobody'}; its accelerators may be in use"
        ports.workflows.resume(token, result_of(request, ports, Outcome.REFUSED, why))
        return
    deadline = ports.clock() + timedelta(seconds=request.decision.deadline_seconds)
    wait = Wait(DIAGNOSTICS, request_id_of(request), token, request.incident_id, deadline, boot_id=node.boot_id)
    wait = _with_template(wait, request, ports, policy)
    first = _failed_before(request, ports)
    ask = Diagnosis(request.decision.diagnostics_level or 1, policy.pool(node.pool).checks, first)
    try:
        sent = send_once(wait, lambda name: ports.commands.diagnose(node, ask, name, deadline), request, ports)
    except NotFound as gone:
        forget(ports, wait)
        result = result_of(request, ports, Outcome.UNKNOWN, f"the diagnostics were not started: {gone}")
        ports.workflows.resume(token, result)
        return
    if sent is not None:
        again = f", {', '.join(first)} first" if first else ""
        text = f"diagnostics at level {ask.level} ({', '.join(ask.checks)}) started on {node.node_id}{again}"
        tell(request, ports, "diagnostics-sent", text)


def request_id_of(request: StepRequest) -> str:
    """The key of the wait of this turn. The node is given it with a random part: see request_ids."""
    return f"{request.incident_id}-{request.turn}"


def _failed_before(request: StepRequest, ports: Ports) -> tuple[str, ...]:
    """The tests that this node has failed in this incident: a repair is proven by them before anything else."""
    turns = ports.incidents.history(request.incident_id).turns
    results = [turn.result for turn in turns if turn.result is not None]
    own = [result for result in results if result.node_id == request.decision.node_id]
    named = [test for result in own if isinstance(result.facts, Diagnosed) for test in result.facts.failed_tests]
    # They come from a node, and go into a command.
    return tuple(dict.fromkeys(test for test in named if _TEST.fullmatch(test)))[:FIRST_TESTS]


def _with_template(wait: Wait, request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> Wait:
    """The wait with a result to fill in: whoever resumes it knows neither the step, nor the node, nor the policy."""
    known = Diagnosed(tolerated_percent=policy.regression_percent)
    blank = result_of(request, ports, Outcome.UNKNOWN, "no answer yet", boot_id=wait.boot_id, facts=known)
    return replace(wait, result_json=blank.model_dump_json())
