"""Wait until a job ends, a node has settled, or something new is reported."""

from datetime import timedelta

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Outcome
from nodeheal.ports import Ports, Wait
from nodeheal.services.look_around import is_running
from nodeheal.services.steps import result_of, resume_if_complete, tell, token_of

NEWS = "news"


def wait_for_news(request: StepRequest, ports: Ports) -> None:
    """Store the wait. The workflow resumes with DONE when there is news; its deadline is the decision's."""
    deadline = ports.clock() + timedelta(seconds=request.decision.deadline_seconds)
    news = result_of(request, ports, Outcome.DONE, "there is news: the job has ended, or something new was reported")
    wait = Wait(
        NEWS, request.incident_id, token_of(request), request.incident_id, deadline, result_json=news.model_dump_json()
    )
    ports.waits.save(wait)
    tell(request, ports, "waiting", f"waiting until {deadline:%Y-%m-%d %H:%M:%S} UTC at most")
    # What happened between the decision and the wait has resumed nothing: see to it now that the wait is stored.
    if _has_come_meanwhile(request, ports):
        resume_if_complete(ports, wait)


def _has_come_meanwhile(request: StepRequest, ports: Ports) -> bool:
    """Whether there is an event that the decision has not seen, or the job may have ended since it was taken."""
    decision, history = request.decision, ports.incidents.history(request.incident_id)
    if len(history.events) > decision.events_seen:
        return True
    return decision.awaits_job and not is_running(history.incident, ports)


def bring_news(incident_id: str, ports: Ports) -> None:
    """Resume the incident's wait, if it has one."""
    resume_if_complete(ports, ports.waits.get(NEWS, incident_id))
