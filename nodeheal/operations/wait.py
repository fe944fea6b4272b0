"""WAIT: until a job ends, a slot is free, a breaker is reset, capacity may be there, or something new is reported."""

from collections.abc import Mapping
from dataclasses import replace

from nodeheal.contract.names import INCIDENT_WAITING, pool_line
from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import Decision, StepRequest
from nodeheal.contract.vocabulary import Awaited, Outcome, VerbName
from nodeheal.domain.operation import Operation, incident_owner
from nodeheal.domain.recovery.incident import History
from nodeheal.operations.handler import Handler, OperationFacts, VerbContext, read_time, step_result
from nodeheal.operations.record import mark_sending, plan_step, start_waiting
from nodeheal.ports import Ports
from nodeheal.services.jobs.runs import current_run
from nodeheal.services.notify.compose_waiting import compose_waiting
from nodeheal.services.notify.warn_job import warn_job
from nodeheal.services.recovery.queue import IN_LINE, place_of
from nodeheal.services.recovery.read_situation import is_running
from nodeheal.services.saving import node_of
from nodeheal.services.steps import add_timeline_entry

NEWS = "news"  # the answer that ends a wait: the news itself is recorded elsewhere
_NEWS: Mapping[Awaited | None, str] = {
    Awaited.JOB_END: "there is news: the job has ended, or something new was reported",
    Awaited.BUDGET: "its turn in line has come, or something new was reported",
    Awaited.BREAKER: "the breaker was reset, or something new was reported",
    Awaited.EXTERNAL_REPAIR: "the node has rebooted, or something new was reported",
}
# Of a wait for time to pass: its end is what was waited for, and no failure.
_TIME_IS_UP: Mapping[Awaited | None, str] = {
    Awaited.SETTLED: "the node has had its time to boot",
    Awaited.STABLE: "it ran for that long without a fault",
    Awaited.CAPACITY: "it is time to try again",
    Awaited.REPLACEMENT: "it is time to try again",
}


def plan(request: StepRequest, ports: Ports) -> Operation:
    """The operation of this turn."""
    return plan_step(request, ports, VerbName.WAIT, incident_owner(request.incident_id))


def operation_id_of(incident_id: str, turn: int) -> str:
    """The name of the wait of this turn."""
    return f"{incident_id}-{turn}"


def _start(operation: Operation, world: VerbContext) -> Operation:
    ports, request = world.ports, operation.step
    history = ports.incidents.history(request.incident_id)
    if request.decision.awaits in IN_LINE:
        # The budget and breaker of the node's present pool hold it back, not those of the pool at the incident's start.
        pool = node_of(history.incident.node_id, ports).pool
        line = (pool_line(str(request.decision.awaits), pool), place_of(request.decision, history.incident))
        operation = replace(operation, line=line)
    operation = mark_sending(operation, ports)
    deadline = operation.deadline_at
    add_timeline_entry(request, ports, "waiting", f"waiting until {deadline:%Y-%m-%d %H:%M:%S} UTC at most")
    warn_job(request, ports)
    history = ports.incidents.history(request.incident_id)
    notification = compose_waiting(history, request.decision, deadline, ports.console_links)
    if notification is not None:
        ports.notifier.announce(INCIDENT_WAITING, notification)
    # A fact between the decision and the record has ended no wait.
    if _has_come_meanwhile(request.decision, history, ports):
        return start_waiting(replace(operation, answer_json=NEWS), ports)
    return start_waiting(operation, ports)


def _has_come_meanwhile(decision: Decision, history: History, ports: Ports) -> bool:
    """Whether there is an event that the decision has not seen, or the job may have ended since it was taken."""
    if history.event_count > decision.events_seen:
        return True
    match decision.awaits:
        case Awaited.JOB_END:
            return not is_running(*current_run(history.incident.job_id, ports), history.incident, ports)
        case Awaited.EXTERNAL_REPAIR:
            return node_of(history.incident.node_id, ports).boot_id != decision.boot_id
        case Awaited.BREAKER:
            return not ports.pools.get(node_of(history.incident.node_id, ports).pool).is_tripped
        case _:
            return False  # the free slot goes to the first in line, which may be another incident


def _observe(operation: Operation, facts: OperationFacts) -> StepResult | None:
    decision = operation.step.decision
    if operation.answer_json:
        reason = _NEWS.get(decision.awaits, "something new was reported")
        return step_result(operation, facts.now, Outcome.DONE, reason)
    if not facts.is_final:
        return None
    if decision.awaits in _TIME_IS_UP:
        return step_result(operation, facts.now, Outcome.DONE, _TIME_IS_UP[decision.awaits])
    return step_result(operation, facts.now, Outcome.TIMED_OUT, f"no news within {decision.deadline_seconds} s")


HANDLER = Handler(_start, _observe, read_time, may_repeat=True)
