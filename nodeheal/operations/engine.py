"""Moves operations: starts them once, follows their facts, stores their result, and resumes the workflow with it.

The step's function, an event, the deadline and the sweep all come here. Nothing else ends an operation. A repeated
call, an event that is late or comes twice, and a function that crashed between two lines are therefore one case.
"""

import logging
from dataclasses import replace
from importlib import import_module

from nodeheal.contract.health_event import NodeAnswer
from nodeheal.contract.results import CallAgain, Refused, StepResult
from nodeheal.contract.steps import DecidedResult, DecideRequest, StepRequest
from nodeheal.contract.vocabulary import Outcome, Refusal, VerbName
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.operation import Operation, OperationState, node_owner
from nodeheal.operations.handler import Handler, NextActDue, Result, VerbContext, step_result
from nodeheal.operations.record import update
from nodeheal.ports import Ports
from nodeheal.services.recovery.reserve_attempt import refund_attempt
from nodeheal.services.recovery.taken_over import why_taken_over
from nodeheal.services.scheduling import why_work_unknown

logger = logging.getLogger(__name__)
_RANDOM_PART = 33  # characters of a request id: a dot and 32 hexadecimal digits


def handler_of(verb: VerbName) -> Handler:
    """Returns the handler of the verb's own file, which has its name and is loaded when it is first asked for."""
    handler: Handler = import_module(f"nodeheal.operations.{verb.value.lower()}").HANDLER
    return handler


def begin(planned: Operation, world: VerbContext) -> None:
    """Start the operation, or go on with the one that an earlier call of the same turn, or a step before, has started.

    The workflow resumes with the token of this call. Raises ValueError for a call without one, but of a part.
    """
    if not planned.token and planned.parent is None:
        raise ValueError(f"{planned.verb} {planned.operation_id} was called without a task token")
    known = world.ports.operations.get(planned.owner, planned.operation_id)
    if known is None:
        _start(planned, world)
        return
    operation = update(
        known, world.ports, lambda operation: operation if operation.is_over else _called_again(operation, planned)
    )
    if operation.is_over:
        deliver(_called_again(operation, planned), world.ports)
        return
    handler = handler_of(operation.verb)
    if handler.refreshes_when_repeated:
        operation = handler.refresh(operation, world.ports)
    is_broken_off = operation.state is OperationState.SENDING
    if operation.state is OperationState.PLANNED or (is_broken_off and handler.may_repeat):
        _start(operation, world)
        return
    _follow(operation, handler, world)


def begin_ahead(planned: Operation, world: VerbContext) -> None:
    """Starts an operation before its step. The step finds it by the same name; until then no workflow waits for it."""
    if world.ports.operations.get(planned.owner, planned.operation_id) is None:
        _start(replace(planned, token=""), world)


def reconcile(operation: Operation, ports: Ports) -> bool:
    """Observes the operation after a fact that may concern it, and ends it if it is done.

    True: it has ended, and its workflow waited for that.
    """
    if operation.state in (OperationState.PLANNED, OperationState.DELIVERED):
        return False
    return _follow(operation, handler_of(operation.verb), VerbContext(ports))


def signal(operation: Operation, answer: str, ports: Ports) -> bool:
    """Records the answer that the operation waits for, and ends it. True: its workflow waited for that."""
    known = update(
        operation,
        ports,
        lambda operation: (
            operation if operation.answer_json or operation.is_over else replace(operation, answer_json=answer)
        ),
    )
    return reconcile(known, ports)


def reconcile_all(owner: str, ports: Ports) -> None:
    """Reconciles every open operation of a node, an incident or a job."""
    for operation in ports.operations.open_of(owner):
        reconcile(operation, ports)


def end(operation: Operation, ports: Ports) -> Operation:
    """Ends an operation that no workflow waits for: queries the authority, observes once more, stores the result."""
    handler = handler_of(operation.verb)
    operation = handler.refresh(operation, ports)
    result = handler.observe(operation, replace(handler.read(operation, ports), is_final=True))
    assert isinstance(result, Result), f"{operation.verb} gave no result at its end"
    handler.settle(operation, result, ports)
    if isinstance(result.facts, CallAgain):
        return _with_result(operation, result)
    done = _done(operation, result, ports) if operation.version else _with_result(operation, result)
    return update(done, ports, Operation.delivered) if done.version else done


def deliver(operation: Operation, ports: Ports) -> bool:
    """Resume the workflow with the stored result; a part has the operation that it is a part of look again.

    False: the workflow has its result already, no longer waits with this token, or has not come to the step yet; or it
    is a part.
    """
    if operation.parent is not None:
        _deliver_part(operation, operation.parent, ports)
        return False
    was_waiting = bool(operation.token) and ports.workflows.resume(operation.token, _as_delivered(operation, ports))
    if operation.version and operation.state is not OperationState.DELIVERED:
        update(operation, ports, Operation.delivered)
    return was_waiting


def finish(operation: Operation, result: Result, ports: Ports) -> bool:
    """Ends the operation with this result. If two results compete, the first one stored holds."""
    handler_of(operation.verb).settle(operation, result, ports)
    fitting = type(result).model_validate(result.model_dump())  # a copy with other words is not held to the bounds
    done = _done(operation, fitting, ports) if operation.version else _with_result(operation, fitting)
    return deliver(done, ports)


def answered(event: NodeAnswer, ports: Ports) -> bool:
    """Records a node's answer to its operation, and ends it. False: the node has no such operation.

    The request id is random, and the boot is the one that was asked: an answer of another boot says nothing. What was
    left for the next boot takes that of the first boot that answers.
    """
    operation = ports.operations.get(node_owner(event.node_id), event.request_id[:-_RANDOM_PART])
    if operation is None or operation.request_id != event.request_id:
        return False
    answers = handler_of(operation.verb).answers
    if answers is None or not isinstance(event, answers.event):
        return False
    if not operation.boot_id or operation.boot_id == event.boot_id:
        known = update(
            operation, ports, lambda operation: replace(operation, boot_id=operation.boot_id or event.boot_id)
        )
        signal(known, answers.stored(event), ports)
    return True


def command_failed(node_id: str, command_id: str, ports: Ports) -> None:
    """SSM reports that a command ended without doing what it was sent for."""
    for operation in ports.operations.open_of(node_owner(node_id)):
        if operation.reference == command_id:
            known = update(operation, ports, lambda operation: replace(operation, has_command_failed=True))
            reconcile(handler_of(known.verb).refresh(known, ports), ports)


def machine_stopped(node_id: str, ports: Ports) -> None:
    """EC2 reports that the machine has stopped."""
    for operation in ports.operations.open_of(node_owner(node_id)):
        reconcile(handler_of(operation.verb).machine_stopped(operation, ports), ports)


def machine_gone(node_id: str, ports: Ports) -> None:
    """EC2 reports that the machine was terminated."""
    for operation in ports.operations.open_of(node_owner(node_id)):
        reconcile(update(operation, ports, lambda operation: replace(operation, is_machine_gone=True)), ports)


def _start(operation: Operation, world: VerbContext) -> None:
    handler = handler_of(operation.verb)
    refused = _why_left_alone(operation, world.ports) if handler.needs_isolation else None
    started = refused or handler.start(operation, world)
    if isinstance(started, Operation):
        _follow(started, handler, world)  # a fact that came before the record was stored has ended nothing
    else:
        finish(_as_stored(operation, world.ports), started, world.ports)


def _why_left_alone(operation: Operation, ports: Ports) -> StepResult | None:
    """Returns the refusal of an operation that was not begun, where its node is a person's or its work not known. None:
    it may begin.
    """
    node = ports.nodes.get(operation.node_id)
    if operation.state is not OperationState.PLANNED or node is None or node.open_incident != operation.incident_id:
        return None
    code, why = Refusal.WORK_UNKNOWN, why_work_unknown(ports.scheduler_of(node))
    if not why:
        code, why = Refusal.TAKEN_OVER, why_taken_over(node, ports)
    if not why:
        return None
    refund_attempt(operation.step, ports)  # a call before may have reserved it, and sent nothing
    return step_result(operation, ports.clock(), Outcome.REFUSED, why, facts=Refused(code=code))


def _follow(operation: Operation, handler: Handler, world: VerbContext) -> bool:
    if operation.is_over:
        return deliver(operation, world.ports)
    result = handler.observe(operation, handler.read(operation, world.ports))
    if isinstance(result, NextActDue):
        if handler.acts_in_step and not world.is_step:
            return _call_again(operation, world.ports)
        acted = handler.start(operation, world)
        return False if isinstance(acted, Operation) else finish(_as_stored(operation, world.ports), acted, world.ports)
    return finish(operation, result, world.ports) if result is not None else False


def _call_again(operation: Operation, ports: Ports) -> bool:
    """Has the workflow call its step again, because the next act is due and this function may not do it."""
    why = "the next part of the step is due"
    again = step_result(operation, ports.clock(), Outcome.UNKNOWN, why, facts=CallAgain())
    return ports.workflows.resume(operation.token, again)


def _as_delivered(operation: Operation, ports: Ports) -> Result:
    result = operation.result
    if not isinstance(result, StepResult) or handler_of(operation.verb).is_half_of_step:
        return result
    if (
        operation.verb is VerbName.WAIT
    ):  # news finds a wait by the incident's turn: it must not move before the wait ends
        return result
    return with_decision(operation.step, result, ports)


def with_decision(request: StepRequest, result: StepResult, ports: Ports) -> StepResult:
    """Returns the result of a turn, with the next decision if this function may decide. That saves a transition.

    If it cannot decide, the workflow asks for the decision, and pages if that fails.
    """
    try:
        decision = ports.decide(DecideRequest(incident_id=request.incident_id, turn=request.turn, result=result))
    except NotAccepted as busy:  # another function decides the same turn, or AWS throttles
        logger.info("no decision yet; the workflow asks for it", extra={"incident": request.incident_id, "why": busy})
        return result
    except Exception:
        logger.exception("no decision yet; the workflow asks for it", extra={"incident": request.incident_id})
        return result
    return DecidedResult(**dict(result), next=decision) if decision is not None else result


def _deliver_part(part: Operation, parent: tuple[str, str], ports: Ports) -> None:
    """Marked as delivered only after: an event that comes again after a crash between looks once more."""
    if part.state is OperationState.DELIVERED:
        return
    whole = ports.operations.get(*parent)
    if whole is not None:
        reconcile(whole, ports)
    update(part, ports, Operation.delivered)


def _called_again(operation: Operation, planned: Operation) -> Operation:
    return replace(operation, token=planned.token, deadline_at=planned.deadline_at, request_json=planned.request_json)


def _as_stored(operation: Operation, ports: Ports) -> Operation:
    """A start that came to nothing may have stored the operation on its way."""
    return ports.operations.get(operation.owner, operation.operation_id) or operation


def _done(operation: Operation, result: Result, ports: Ports) -> Operation:
    return update(
        operation, ports, lambda operation: operation if operation.is_over else _with_result(operation, result)
    )


def _with_result(operation: Operation, result: Result) -> Operation:
    return replace(operation, state=OperationState.DONE, result_json=result.model_dump_json())
