"""Ask a human, and wait for the answer. Silence is no yes."""

from datetime import timedelta

from nodeheal.contract.names import APPROVAL_REQUESTED
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Outcome
from nodeheal.domain.recovery.approval_links import Answer, Links, Question
from nodeheal.ports import Ports, Wait
from nodeheal.services.compose_waiting import compose_question
from nodeheal.services.consequences import meant_by
from nodeheal.services.recorded_answer import answered, recorded_answer
from nodeheal.services.steps import result_of, resume, tell, token_of

APPROVAL = "approval"


def wait_for_approval(request: StepRequest, ports: Ports, links: Links) -> None:
    """Store the wait, then send the question. The workflow resumes with DONE for yes and REFUSED for no.

    Called again after a crash, it finds an answer that has come to the question of the first call.
    """
    deadline = ports.clock() + timedelta(seconds=request.decision.deadline_seconds)
    question = Question(request.incident_id, request.turn)
    blank = result_of(request, ports, Outcome.UNKNOWN, "not answered yet")
    wait = Wait(
        APPROVAL,
        approval_key(question),
        token_of(request),
        request.incident_id,
        deadline,
        result_json=blank.model_dump_json(),
    )
    ports.waits.save(wait)
    tell(request, ports, "asked", f"a human is asked; the answer is due by {deadline:%Y-%m-%d %H:%M:%S} UTC")
    addresses = {answer: links.link(question, answer, deadline) for answer in Answer}
    history = ports.incidents.history(request.incident_id)
    if (before := recorded_answer(question, history)) is not None:
        resume(ports, wait, answered(blank, before, ports))
        return
    told = compose_question(
        history, request, addresses, deadline, ports.reading, meant_by(request.decision, history.incident, ports)
    )
    ports.messenger.announce(APPROVAL_REQUESTED, told)


def approval_key(question: Question) -> str:
    """How the wait for an answer is found."""
    return f"{question.incident_id}/{question.turn}"
