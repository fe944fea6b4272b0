"""Maps each verb to its file, and each step of a recovery to its operation.

A verb's file has its name, and in it a HANDLER; the file of a verb that carries out a step of a recovery has a `plan`.
"""

from importlib import import_module

from nodeheal.contract.health_event import NodeAnswer
from nodeheal.contract.results import CallAgain, StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Outcome, Step, VerbName
from nodeheal.domain.operation import Operation, OperationState
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.verbs import verb_of_step
from nodeheal.operations import launch_gang, stop_gang
from nodeheal.operations.engine import begin, end, handler_of
from nodeheal.operations.handler import Handler, VerbContext
from nodeheal.operations.record import update
from nodeheal.ports import Ports
from nodeheal.services.jobs.find_checkpoint import search_ahead

HANDLERS: dict[VerbName, Handler] = {verb: handler_of(verb) for verb in VerbName}
_ANSWERS = (handler.answers.event for handler in HANDLERS.values() if handler.answers is not None)
ANSWERS: dict[str, type[NodeAnswer]] = {event.detail_type: event for event in _ANSWERS}  # by their names on the bus


def run_step(request: StepRequest, ports: Ports, policy: RecoveryPolicy | None = None) -> None:
    """Carry out a step that is one operation. The workflow resumes with its result.

    Raises ValueError for a step without an operation.
    """
    planned = operation_of(request, ports)
    if planned is None:
        raise ValueError(f"{request.decision.step} is no operation")
    begin(planned, VerbContext(ports, policy))
    if request.decision.step is Step.REBOOT:
        search_ahead(request, ports)


def operation_of(request: StepRequest, ports: Ports) -> Operation | None:
    """The operation that carries out this step, not stored; None: the step answers at once."""
    decision = request.decision
    if decision.step is Step.RESTART_WORKLOAD:
        return _half_of_restart(request, ports)
    verb = verb_of_step(decision.step, decision.action).operation
    if verb is None:
        return None
    planned = import_module(f"nodeheal.operations.{verb.value.lower()}").plan(request, ports)
    assert isinstance(planned, Operation)
    return planned  # a question to a human is stored under the name of a wait, and its record says which it is


def conclude(request: StepRequest, ports: Ports) -> StepResult:
    """Returns how the step went, for a workflow that has stopped waiting.

    The answer is stored, so that a call that is repeated gets the same one.
    """
    planned = operation_of(request, ports)
    if planned is None:
        return StepResult(
            step=request.decision.step,
            node_id=request.decision.node_id,
            outcome=Outcome.UNKNOWN,
            reason="the step broke, and there is nothing to look at",
            finished_at=ports.clock(),
        )
    operation = ports.operations.get(planned.owner, planned.operation_id) or planned
    handler = handler_of(operation.verb)
    operation = update(operation, ports, Operation.delivered) if operation.is_over else end(operation, ports)
    result = operation.result
    assert isinstance(result, StepResult)
    if handler.is_half_of_step and result.outcome is Outcome.DONE:
        return result.model_copy(update={"outcome": Outcome.UNKNOWN, "facts": CallAgain()})
    return result


def _half_of_restart(request: StepRequest, ports: Ports) -> Operation:
    """The stop of the gang while that is not over, else its launch."""
    stop = stop_gang.plan(request, ports)
    known = ports.operations.get(stop.owner, stop.operation_id)
    if known is None or known.state is OperationState.DELIVERED:
        return launch_gang.plan(request, ports)
    return known
