"""Spend an attempt before a destructive step. What is denied spends nothing."""

from nodeheal.contract.steps import AttemptLimit, StepRequest, StepResult
from nodeheal.contract.vocabulary import Action, NodeState, Outcome
from nodeheal.domain import budget
from nodeheal.domain.node import Node
from nodeheal.ports import Ports
from nodeheal.services.steps import result_of, tell


def reserve_attempt(request: StepRequest, ports: Ports) -> StepResult:
    """DONE: one attempt is spent (once a turn, however often this is called). REFUSED: the window is full."""
    limit = limit_of(request)
    granted, spent = ports.attempts.reserve(scope_of(request), attempt_id_of(request), limit)
    told = budget.spelled(limit, spent)
    if not granted:
        return result_of(request, ports, Outcome.REFUSED, f"{told} are spent")
    tell(request, ports, "attempt-reserved", f"attempt reserved: {told}")
    return result_of(request, ports, Outcome.DONE, told)


def why_not_act(node: Node, request: StepRequest, ports: Ports, *more_states: NodeState) -> str:
    """What speaks against a destructive step: it needs our isolation, a budget slot and an attempt. Empty: nothing.

    Every destructive service asks, whatever the workflow did before. `more_states`: where a repeated call may find it.
    """
    states = (NodeState.ISOLATED, NodeState.RECOVERING, *more_states)
    if node.open_incident != request.incident_id or node.state not in states:
        return f"{node.node_id} is {node.state} and not isolated by {request.incident_id}"
    if node.node_id not in ports.budget.holders(node.pool):
        return f"{node.node_id} holds no slot of pool {node.pool}'s disruption budget"
    # Asking again for the attempt of this turn spends nothing.
    granted, _ = ports.attempts.reserve(scope_of(request), attempt_id_of(request), limit_of(request))
    return "" if granted else "no attempt is reserved"


def attempt_id_of(request: StepRequest) -> str:
    """One attempt for one turn of one incident."""
    return f"{request.incident_id}/{request.turn}"


def scope_of(request: StepRequest) -> str:
    """What the counter counts for: the node; for restarts the job."""
    decision = request.decision
    if decision.action is Action.RESTART_WORKLOAD:
        return f"job#{decision.job_id}"
    return f"node#{decision.node_id}"


def limit_of(request: StepRequest) -> AttemptLimit:
    """The limit that the decision carries. Raises ValueError: a destructive step was decided without one."""
    if request.decision.attempt is None:
        raise ValueError(f"{request.decision.step} of {request.incident_id} carries no attempt limit")
    return request.decision.attempt
