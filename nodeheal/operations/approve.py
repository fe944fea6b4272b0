"""APPROVE: asks a human and waits for the answer. Silence does not count as yes."""

from dataclasses import dataclass

from nodeheal.contract.names import APPROVAL_REQUESTED
from nodeheal.contract.results import Answered, StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Action, Outcome, VerbName
from nodeheal.domain.operation import Operation, incident_owner
from nodeheal.domain.recovery.approval_links import Answer, Question
from nodeheal.operations.handler import Handler, OperationFacts, VerbContext, step_result
from nodeheal.operations.questions import RecordedAnswer, recorded_answer
from nodeheal.operations.record import mark_sending, plan_step, start_waiting
from nodeheal.ports import Ports
from nodeheal.services.notify.compose_waiting import compose_question
from nodeheal.services.operators.describe_answer import describe_answer
from nodeheal.services.steps import add_timeline_entry


@dataclass(frozen=True)
class _Facts(OperationFacts):
    """`answer`: the first one, and its words. `moot`: why nothing is left to be asked."""

    answer: RecordedAnswer | None = None
    moot: str = ""


def plan(request: StepRequest, ports: Ports) -> Operation:
    """The operation of this turn."""
    return plan_step(request, ports, VerbName.APPROVE, incident_owner(request.incident_id))


def _start(operation: Operation, world: VerbContext) -> Operation:
    ports, request, deadline = world.ports, operation.step, operation.deadline_at
    operation = mark_sending(operation, ports)  # an answer may be quicker than this function
    add_timeline_entry(
        request, ports, "asked", f"a human is asked; the answer is due by {deadline:%Y-%m-%d %H:%M:%S} UTC"
    )
    question = Question(request.incident_id, request.turn)
    history = ports.incidents.history(request.incident_id)
    if recorded_answer(question, history) is None:
        addresses = {answer: world.links.link(question, answer, deadline) for answer in Answer}
        consequences = describe_answer(request.decision, history.incident, ports)
        notification = compose_question(history, request, addresses, deadline, ports.console_links, consequences)
        ports.notifier.announce(APPROVAL_REQUESTED, notification)
    return start_waiting(operation, ports)


def _read(operation: Operation, ports: Ports) -> _Facts:
    request = operation.step
    history = ports.incidents.history(request.incident_id)
    first = recorded_answer(Question(request.incident_id, request.turn), history)
    node, is_of_job = ports.nodes.get(history.incident.node_id), request.decision.action is Action.RESTART_WORKLOAD
    job = ports.jobs.get(str(request.decision.job_id)) if is_of_job else None
    moot = f"{job.job_id} {job.why_no_restart}" if job is not None and job.why_no_restart else ""
    return _Facts(ports.clock(), node=node, answer=first, moot=moot)


def _observe(operation: Operation, facts: _Facts) -> StepResult | None:
    decision, first = operation.step.decision, facts.answer
    if first is not None:
        outcome = Outcome.DONE if first.answer is Answer.approve else Outcome.REFUSED
        return step_result(operation, facts.now, outcome, first.text, facts=Answered(answer=first.answer.value))
    if facts.node is not None and facts.node.open_incident != operation.incident_id:
        over = f"{facts.node.node_id} was given back or retired by hand"
        return step_result(operation, facts.now, Outcome.REFUSED, over)
    if facts.moot:
        return step_result(operation, facts.now, Outcome.REFUSED, facts.moot)
    if not facts.is_final:
        return None
    return step_result(operation, facts.now, Outcome.TIMED_OUT, f"nobody answered within {decision.deadline_seconds} s")


HANDLER = Handler(_start, _observe, _read, may_repeat=True)
