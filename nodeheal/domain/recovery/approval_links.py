"""Links with which a human answers: signed, for one question, until a time. Single use is the timeline's business."""

import hashlib
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from urllib.parse import urlencode


class Answer(StrEnum):
    """What a human says to what nodeheal would do."""

    approve = "approve"
    refuse = "refuse"


class LinkRefused(ValueError):
    """A link that answers nothing; says why."""


@dataclass(frozen=True)
class Question:
    """What is asked: the decision of one turn of one incident."""

    incident_id: str
    turn: int


@dataclass(frozen=True)
class Links:
    """Makes and reads links. `key`: a secret that only nodeheal's own functions can read."""

    base_url: str
    key: bytes

    def link(self, question: Question, answer: Answer, expires_at: datetime) -> str:
        """The address of the page on which this answer is given."""
        expires = int(expires_at.timestamp())
        query = {"incident": question.incident_id, "turn": question.turn, "answer": answer.value, "expires": expires}
        return f"{self.base_url}?{urlencode({**query, 'signature': self._sign(question, answer, expires)})}"

    def read(self, query: dict[str, str], now: datetime) -> tuple[Question, Answer]:
        """What a link asks and answers. Raises LinkRefused for one that is forged, cut short, or late."""
        try:
            question = Question(query["incident"], int(query["turn"]))
            answer, expires = Answer(query["answer"]), int(query["expires"])
            given = query["signature"]
        except (KeyError, ValueError):
            raise LinkRefused("this link is not whole: open it as it stands in the email") from None
        if not hmac.compare_digest(self._sign(question, answer, expires).encode(), given.encode()):
            raise LinkRefused("this link was not made by nodeheal")
        if now >= datetime.fromtimestamp(expires, UTC):
            raise LinkRefused("this link has expired; the incident has gone to a human")
        return question, answer

    def _sign(self, question: Question, answer: Answer, expires: int) -> str:
        text = f"{question.incident_id}\n{question.turn}\n{answer.value}\n{expires}"
        return hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()
