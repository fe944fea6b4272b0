"""What tests of approvals are made of."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from nodeheal.domain.recovery.approval_links import Answer, Links, Question
from nodeheal.operations.steps import wait_for_approval
from nodeheal.services.operators.answer_approval import answer_approval
from tests.support.builders import NOW
from tests.support.incident_steps import Incident
from tests.support.policies import with_policy


def both(first: Answer = Answer.approve) -> dict[Answer, str]:
    """A link for each answer, the one that was opened first."""
    return {answer: f"?answer={answer}&signature=s" for answer in sorted(Answer, key=lambda each: each is not first)}


LINKS = Links("https://approve.example/approval", b"a secret")


APPROVE = with_policy(default_pool={"mode": "approve"})


DUE = NOW + timedelta(hours=1)


class Dead:
    """Step Functions, for a function that is killed."""

    def resume(self, *_: object) -> bool:
        raise TimeoutError


class Asked(Incident):
    """An incident that has just asked a human."""

    def __init__(self, code: int = 79, prepare: Callable[[Incident], object] = lambda _: None) -> None:
        super().__init__(code, policy=APPROVE)
        prepare(self)
        self.asked = self.request()
        wait_for_approval(self.asked, self.ports, LINKS)

    @property
    def question(self) -> Question:
        return Question(self.id, self.asked.turn)

    @property
    def mail(self) -> str:
        [(_, told)] = self.ports.notifier.announced  # type: ignore[attr-defined]
        return f"{told.subject}\n{told.body}"

    def answer(self, answer: Answer, who: str = "ada", why: str = "") -> tuple[bool, str]:
        answered = answer_approval(self.question, answer, who, why, self.ports)
        return answered.is_taken, answered.text

    def dies_after_recording(self, answer: Answer, why: str = "") -> None:
        """The function that takes the answer is killed before it can resume the workflow."""
        with pytest.raises(TimeoutError):
            answer_approval(self.question, answer, "ada", why, replace(self.ports, workflows=Dead()))  # type: ignore[arg-type]

    def told(self) -> list[str]:
        return [entry.text for entry in self.ports.incidents.history(self.id).timeline if entry.kind == "answer"]
