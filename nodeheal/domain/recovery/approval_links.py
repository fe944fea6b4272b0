"""Signed links with which a human answers one question until a time. The timeline ensures single use."""

import hashlib
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from urllib.parse import quote, urlencode


class Answer(StrEnum):
    """A human's answer to a proposal of nodeheal."""

    approve = "approve"
    refuse = "refuse"


class LinkRefused(ValueError):
    """The link answers nothing. Says why."""


@dataclass(frozen=True)
class Question:
    """The decision of one turn of one incident, as a human is asked about it."""

    incident_id: str
    turn: int


@dataclass(frozen=True)
class Links:
    """Makes and reads links. `key`: a secret that only nodeheal's functions can read; `console_url`: of a console that
    people sign in to; empty: there is none.
    """

    base_url: str
    key: bytes
    console_url: str = ""

    def link(self, question: Question, answer: Answer, expires_at: datetime) -> str:
        """Returns the address of the page on which this answer is given: the console's, which asks who one is; where
        there is none, a signed one.
        """
        if self.console_url:
            return f"{self.console_url}/incidents/{quote(question.incident_id, safe='')}#answer"
        return f"{self.base_url}?{self.query(question, answer, expires_at)}"

    def query(self, question: Question, answer: Answer, expires_at: datetime) -> str:
        """Returns the signed part of the address, without the page's own."""
        expires = int(expires_at.timestamp())
        query = {"incident": question.incident_id, "turn": question.turn, "answer": answer.value, "expires": expires}
        return urlencode({**query, "signature": self._sign(question, answer, expires)})

    def read(self, query: dict[str, str], now: datetime) -> tuple[Question, Answer]:
        """Returns the question and the answer of a link.

        Raises LinkRefused for one that is forged, cut short, or late.
        """
        try:
            question = Question(query["incident"], int(query["turn"]))
            answer, expires = Answer(query["answer"]), int(query["expires"])
            given = query["signature"]
        except (KeyError, ValueError):
            raise LinkRefused("this link is not whole: open it as it stands in the email") from None
        if not hmac.compare_digest(self._sign(question, answer, expires).encode(), given.encode()):
            raise LinkRefused("this link was not made by nodeheal")
        if now >= datetime.fromtimestamp(expires, UTC):
            raise LinkRefused("this link has expired; what nobody has answered has gone to a human")
        return question, answer

    def _sign(self, question: Question, answer: Answer, expires: int) -> str:
        text = f"{question.incident_id}\n{question.turn}\n{answer.value}\n{expires}"
        return hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()
