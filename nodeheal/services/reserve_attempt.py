"""Spend an attempt before a destructive step. What is denied spends nothing."""

from nodeheal.contract.steps import AttemptLimit, StepRequest, StepResult
from nodeheal.contract.vocabulary import Action, Outcome
from nodeheal.domain import budget
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


def is_reserved(request: StepRequest, ports: Ports) -> bool:
    """Whether this turn holds an attempt. The destructive services ask again: none acts without one."""
    granted, _ = ports.attempts.reserve(scope_of(request), attempt_id_of(request), limit_of(request))
    return granted


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
