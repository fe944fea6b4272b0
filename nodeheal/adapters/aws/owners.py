"""Subscribes email addresses: of job owners, each to its own jobs only, and confirms subscriptions."""

import json
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from nodeheal.adapters.aws.calls import code_of, throttles_named
from nodeheal.contract import names
from nodeheal.domain.jobs.owner import Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from types_boto3_sns import SNSClient

_PENDING = "pending confirmation"
_UNANSWERED = (
    "PendingConfirmation",
    "Deleted",
)  # in place of an ARN, for an address that has not confirmed, or has unsubscribed
# Pages of 100 subscriptions each. Searching a larger topic takes longer than an email justifies.
_PAGES = 20


def topic_arn(caller_arn: str, region: str, topic: str = names.OWNERS_TOPIC) -> str:
    """Return the ARN of a topic in the account and partition of the caller's ARN: by default that of job owners."""
    _, partition, _, _, account, *_ = caller_arn.split(":")
    return f"arn:{partition}:sns:{region}:{account}:{topic}"


def filter_for(owner: Owner) -> str:
    """Return the filter policy of an owner's subscription. SNS compares exactly: addresses are in lower case."""
    return json.dumps({names.OWNER_ATTRIBUTE: [owner.address]})


class SnsOwners:
    """Subscribes job owners."""

    def __init__(self, sns: "SNSClient", topic: str) -> None:
        self._sns, self._topic = sns, topic

    def subscribe(self, owner: Owner) -> bool:
        """Request the address's confirmation. Returns True where it has confirmed before.

        A pending address gets another request. Raises ValueError for an address that is subscribed with another filter.
        """
        from botocore.exceptions import ClientError

        try:
            with throttles_named("Subscribe"):
                answer = self._sns.subscribe(
                    TopicArn=self._topic,
                    Protocol="email",
                    Endpoint=owner.address,
                    Attributes={"FilterPolicy": filter_for(owner)},
                )
        except ClientError as error:
            if code_of(error) != "InvalidParameter" or "already exists" not in str(error):
                raise
            problem = f"{owner.address} is subscribed to {names.OWNERS_TOPIC} already, with another filter policy"
            raise ValueError(f"{problem}; remove that subscription first") from None
        return answer["SubscriptionArn"].lower() != _PENDING

    def is_confirmed(self, owner: Owner) -> bool:
        """Whether the address has confirmed. It searches the topic's subscriptions: for a person, not for a loop."""
        with throttles_named("ListSubscriptionsByTopic"):
            pages = self._sns.get_paginator("list_subscriptions_by_topic").paginate(TopicArn=self._topic)
            return any(
                entry.get("Endpoint", "").lower() == owner.address and entry["SubscriptionArn"] not in _UNANSWERED
                for page in pages
                for entry in page["Subscriptions"]
            )


class SnsSignedConfirmations:
    """Confirms subscriptions to `topics` so that the link at the end of an email does not unsubscribe.

    SNS requires a signature to unsubscribe only where the confirmation was signed (`AuthenticateOnUnsubscribe`).
    """

    def __init__(self, sns: "SNSClient", topics: "Collection[str]") -> None:
        self._sns, self._topics = sns, topics

    def confirm(self, link: str) -> str:
        """Confirm the subscription of SNS's confirmation link; returns the subscription's ARN.

        Raises ValueError for a link that is not from SNS, or is for another topic. The link is not opened: only the
        topic and the token are taken from it.
        """
        asked = {key: values[0] for key, values in parse_qs(urlsplit(link.strip()).query).items()}
        topic, token = asked.get("TopicArn", ""), asked.get("Token", "")
        if not topic or not token:
            raise ValueError(
                "this is not a confirmation link of SNS: it has no TopicArn and Token. Copy the whole link of "
                '"Confirm subscription", and put it in single quotes'
            )
        if topic not in self._topics:
            known = " and ".join(self._topics)
            raise ValueError(f"the link is for the topic {topic!r}, and nodeheal's here are {known}")
        with throttles_named("ConfirmSubscription"):
            answer = self._sns.confirm_subscription(TopicArn=topic, Token=token, AuthenticateOnUnsubscribe="true")
        return answer["SubscriptionArn"]


class SnsConfirmations:
    """Implements HasConfirmed with the topic's list, where a subscription has an ARN once it is confirmed."""

    def __init__(self, sns: "Callable[[], SNSClient]", topic: str) -> None:
        self._sns, self._topic = sns, topic

    def __call__(self, address: str) -> bool | None:
        if not self._topic:
            return None
        pages = self._sns().get_paginator("list_subscriptions_by_topic").paginate(TopicArn=self._topic)
        is_heard_otherwise = False
        with throttles_named("ListSubscriptionsByTopic"):
            for read, page in enumerate(pages, 1):
                confirmed = [s for s in page.get("Subscriptions", []) if s["SubscriptionArn"].startswith("arn:")]
                if any(s["Endpoint"].lower() == address for s in confirmed):
                    return True
                # A queue or a chat: its filter says for whom, which is not read here.
                is_heard_otherwise |= any(not s["Protocol"].startswith("email") for s in confirmed)
                if read == _PAGES and "NextToken" in page:
                    return None
        return None if is_heard_otherwise else False
