"""A question that operators are asked by email."""

from nodeheal.contract.notification import Notification
from nodeheal.contract.steps import StepRequest
from nodeheal.domain.recovery.approval_links import Answer
from nodeheal.domain.review.console_links import ConsoleLinks
from nodeheal.services.notify.compose_waiting import compose_question
from tests.support.builders import NOW
from tests.support.recovery_story import Story

ARN = "arn:aws:states:eu-west-1:111122223333:stateMachine:nodeheal-recover-node"


READING = ConsoleLinks(ARN, "https://wiki.example/runbooks/")


LINKS = {answer: f"https://approve.example/{answer}?{'x' * 200}" for answer in Answer}


def question(story: Story) -> Notification:
    """The email that asks before the story goes on."""
    request = StepRequest(incident_id=story.history.incident.incident_id, turn=1, decision=story.next())
    return compose_question(story.history, request, LINKS, NOW, READING)
