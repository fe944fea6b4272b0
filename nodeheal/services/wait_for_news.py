"""Wait: until a job ends, a node has settled, a slot is free, a breaker is reset, or something new is reported."""

from datetime import timedelta

from nodeheal.contract.names import INCIDENT_WAITING, pool_line
from nodeheal.contract.steps import Decision, StepRequest
from nodeheal.contract.vocabulary import Awaited, Outcome, Refusal
from nodeheal.domain.recovery.incident import History, Incident
from nodeheal.ports import Ports, Wait
from nodeheal.services.compose_waiting import compose_waiting
from nodeheal.services.look_around import is_running
from nodeheal.services.queue import IN_LINE, place_of, wake_queue
from nodeheal.services.steps import node_of, result_of, resume_if_complete, tell, token_of
from nodeheal.services.warn_job import warn_job

NEWS = "news"
_NEWS: dict[Awaited | None, str] = {
    Awaited.JOB_END: "there is news: the job has ended, or something new was reported",
    Awaited.BUDGET: "its turn in line has come, or something new was reported",
    Awaited.BREAKER: "the breaker was reset, or something new was reported",
}


def wait_for_news(request: StepRequest, ports: Ports) -> None:
    """Store the wait. The workflow resumes with DONE when there is news; its deadline is the decision's."""
    deadline = ports.clock() + timedelta(seconds=request.decision.deadline_seconds)
    awaited = request.decision.awaits
    news = result_of(request, ports, Outcome.DONE, _NEWS.get(awaited, "something new was reported"))
    wait = Wait(
        NEWS,
        request.incident_id,
        token_of(request),
        request.incident_id,
        deadline,
        result_json=news.model_dump_json(),
        line=_line(request, ports) if awaited in IN_LINE else None,
    )
    ports.waits.save(wait)
    tell(request, ports, "waiting", f"waiting until {deadline:%Y-%m-%d %H:%M:%S} UTC at most")
    warn_job(request, ports)
    history = ports.incidents.history(request.incident_id)
    told = compose_waiting(history, request.decision, deadline, ports.reading)
    if told is not None:
        ports.messenger.announce(INCIDENT_WAITING, told)
    # What happened between the decision and the wait has resumed nothing: see to it now that the wait is stored.
    if _has_come_meanwhile(request.decision, history, ports):
        resume_if_complete(ports, wait)


def _line(request: StepRequest, ports: Ports) -> tuple[str, str]:
    incident, awaited = ports.incidents.incident(request.incident_id), str(request.decision.awaits)
    return pool_line(awaited, _pool_of(incident, ports)), place_of(request.decision, incident)


def _pool_of(incident: Incident, ports: Ports) -> str:
    """The pool whose budget and breaker hold the node back: where it is now, and not where its incident began."""
    return node_of(incident.node_id, ports).pool


def _has_come_meanwhile(decision: Decision, history: History, ports: Ports) -> bool:
    """Whether there is an event that the decision has not seen, or the job may have ended since it was taken."""
    if history.event_count > decision.events_seen:
        return True
    match decision.awaits:
        case Awaited.JOB_END:
            return not is_running(history.incident, ports)
        case Awaited.BREAKER:
            return not ports.pools.get(_pool_of(history.incident, ports)).is_tripped
        case Awaited.BUDGET:
            _call_for_a_free_slot(history, ports)
            return False  # it is called like anybody else in the line
        case _:
            return False


def _call_for_a_free_slot(history: History, ports: Ports) -> None:
    """A slot that became free between the refusal and the wait woke nobody: call the first in line now."""
    pool = _pool_of(history.incident, ports)
    refusals = (t.result.refused_for(Refusal.BUDGET_FULL) for t in reversed(history.turns) if t.result)
    slots = next((refused.slots for refused in refusals if refused is not None), 0)
    if len(ports.pools.holders(pool)) < (slots or 0):
        wake_queue(pool, ports)


def bring_news(incident_id: str, ports: Ports) -> None:
    """Resume the incident's wait, if it has one."""
    resume_if_complete(ports, ports.waits.get(NEWS, incident_id))
