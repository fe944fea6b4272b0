"""A person's inbox: a queue that is subscribed to a topic, like an email address."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nodeheal.contract.names import OWNER_ATTRIBUTE

OPERATORS, OWNERS = "nodeheal-mailbox", "nodeheal-owner-mailbox"
EVERY_OWNER = "nodeheal-every-owner-mailbox"
BATCH = 10


class Mailbox:
    """Collects the topic's messages."""

    def __init__(self, sqs: Any, queue: str = OPERATORS) -> None:
        self._sqs = sqs
        self._url = sqs.create_queue(QueueName=queue)["QueueUrl"]
        self._mails: list[tuple[str, str, str, str]] = []

    def subscribe(self, sns: Any, topic_arn: str, filter_policy: str = "") -> None:
        """Subscribe, with this filter. Raw delivery would lose the subject."""
        known = self._sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])
        queue_arn = known["Attributes"]["QueueArn"]
        statement = {
            "Effect": "Allow",
            "Principal": {"Service": "sns.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": queue_arn,
            "Condition": {"ArnEquals": {"aws:SourceArn": topic_arn}},
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        self._sqs.set_queue_attributes(QueueUrl=self._url, Attributes={"Policy": policy})
        chosen = {"FilterPolicy": filter_policy} if filter_policy else {}
        sns.subscribe(TopicArn=topic_arn, Protocol="sqs", Endpoint=queue_arn, Attributes=chosen)

    def read(self) -> list[tuple[str, str]]:
        """Return (subject, body) of every email so far, in order of arrival."""
        return [(subject, body) for _, subject, body, _ in self.read_dated()]

    def read_dated(self) -> list[tuple[str, str, str, str]]:
        """Return (time of sending in ISO 8601, subject, body, job owner) of every email so far, in order of arrival.

        The owner is an address; empty: the email is for the operators.
        """
        while True:
            found = self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=BATCH).get("Messages", [])
            if not found:
                return list(self._mails)
            for message in found:
                envelope = json.loads(message["Body"])
                owner = envelope.get("MessageAttributes", {}).get(OWNER_ATTRIBUTE, {}).get("Value", "")
                self._mails.append((envelope["Timestamp"], envelope.get("Subject", ""), envelope["Message"], owner))
                self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])


class MailFolder:
    """A folder with a file for each email, in the order in which they came."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: set[tuple[str, str, str]] = set()

    def keep(
        self, mails: Sequence[tuple[str, str, str]], gets_emails: Callable[[str], bool] = lambda owner: True
    ) -> Iterator[tuple[str, Path]]:
        """Write those that are new, each (subject, body, job owner); the subject and the file of each.

        An email to an owner who gets none is kept, and says so: it shows what the owner would be told.
        """
        self.folder.mkdir(exist_ok=True)
        for subject, body, owner in mails:
            if (subject, body, owner) in self._seen:
                continue
            self._seen.add((subject, body, owner))
            name = re.sub(r"[^a-z0-9]+", "-", subject.lower()).strip("-")[:60]
            file = self.folder / f"{len(self._seen):03d}-{name}.txt"
            to = owner or "the operators"
            nobody = "" if not owner or gets_emails(owner) else " (not subscribed: nobody gets this)"
            file.write_text(f"To: {to}{nobody}\nSubject: {subject}\n\n{body}\n", "utf-8")
            yield subject, file
