"""Implements Notifier on EventBridge, SNS and SQS."""

import json
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from nodeheal.adapters.aws.calls import throttles_named
from nodeheal.adapters.aws.items import Table, plain, to_item
from nodeheal.contract import names
from nodeheal.contract.notification import Notification
from nodeheal.domain.errors import NotAccepted
from nodeheal.ports.clock import Clock
from nodeheal.ports.messaging import Delivery, Message, Way

if TYPE_CHECKING:
    from collections.abc import Callable

    from types_boto3_events import EventBridgeClient
    from types_boto3_sns import SNSClient
    from types_boto3_sqs import SQSClient

# A workflow's own retries end within hours; EventBridge redelivers for one day.
_SENT_REMEMBERED = timedelta(days=7)
# Longer than the function may run, shorter than the minute after which Lambda retries a failed event.
_SENDING_SECONDS = 45
# Longer than the sweep can be down without an alarm.
_COUNT_REMEMBERED = timedelta(days=1)
# SQS accepts 256 KiB in all; the reason travels as an attribute beside the body.
_QUARANTINED_CHARACTERS = 200_000
_WHY_CHARACTERS = 1_000


@dataclass(frozen=True)
class Destinations:
    """The targets of messages."""

    bus: str
    topic_arn: str
    quarantine_url: str
    owners_topic_arn: str = ""


class AwsNotifier:
    """Implements Notifier."""

    def __init__(
        self,
        events: "Callable[[], EventBridgeClient]",
        sns: "Callable[[], SNSClient]",
        sqs: "Callable[[], SQSClient]",
        table: Table,
        to: Destinations,
        clock: Clock,
    ) -> None:
        self._events, self._sns, self._sqs = events, sns, sqs
        self._table, self._to, self._clock = table, to, clock

    def announce(self, detail_type: str, notification: Notification) -> None:
        self._put(detail_type, notification.model_dump_json())

    def _put(self, detail_type: str, detail: str) -> None:
        with throttles_named("PutEvents"):
            answer = self._events().put_events(
                Entries=[
                    {
                        "EventBusName": self._to.bus,
                        "Source": names.CONTROL_SOURCE,
                        "DetailType": detail_type,
                        "Detail": detail,
                    }
                ]
            )
        if answer["FailedEntryCount"]:
            raise NotAccepted(f"PutEvents: {answer['Entries'][0].get('ErrorMessage')}")

    def send(self, message: Message, a_minute: int) -> Delivery:
        if not self._claim(message.key):
            return Delivery.BUSY
        if message.way is Way.WEBHOOK:
            payload = {"channel": message.channel, "key": message.key, "message": message.rendered}
            self._put(names.CHANNEL_MESSAGE, json.dumps(payload))
            return Delivery.SENT
        if not self._has_room(message.channel, a_minute):
            return Delivery.FOLDED
        notification = message.notification
        with throttles_named("Publish"):
            self._sns().publish(
                TopicArn=self._topic_of(message),
                Subject=notification.subject,
                Message=notification.body if message.rendered is None else json.dumps(message.rendered),
                MessageAttributes={
                    name: {"DataType": "String", "StringValue": value}
                    for name, value in notification.attributes.items()
                },
            )
        return Delivery.SENT

    def _topic_of(self, message: Message) -> str:
        if message.notification.owner:
            return self._to.owners_topic_arn
        if message.channel == names.EMAIL_CHANNEL:
            return self._to.topic_arn
        place, _, _ = self._to.topic_arn.rpartition(":")
        return f"{place}:{names.CHANNEL_TOPIC_PREFIX}{message.channel}"

    def folded(self, minute: datetime, channel: str) -> int:
        item = self._table.get(_minute_pk(minute), _minute_sk(channel))
        return int(plain(item).get("folded", 0)) if item else 0

    def _has_room(self, channel: str, a_minute: int) -> bool:
        """Take one of this minute's messages to the channel, or count one that is folded.

        If the function dies before it sends, its message stays counted: fewer are sent, never more.
        """
        now = self._clock()
        expires = int((now + _COUNT_REMEMBERED).timestamp())
        taken = f"ADD emails :one SET {names.TTL_ATTRIBUTE} = :expires"
        values = {":one": 1, ":expires": expires, ":limit": a_minute}
        is_free = "attribute_not_exists(emails) OR emails < :limit"
        if self._table.update(_minute_pk(now), _minute_sk(channel), taken, values, is_free):
            return True
        self._table.count(_minute_pk(now), _minute_sk(channel), "folded", expires)
        return False

    def was_sent(self, key: str) -> bool:
        return self._table.get(_sent_pk(key), "sent") is not None

    def mark_sent(self, key: str) -> bool:
        """Record a sent message under the claim's token, for the same reason as in `_claim`."""
        expires, by = int((self._clock() + _SENT_REMEMBERED).timestamp()), uuid.uuid4().hex
        item = to_item({"pk": _sent_pk(key), "sk": "sent", "marked_by": by, names.TTL_ATTRIBUTE: expires})
        return self._table.put(item, "attribute_not_exists(pk) OR marked_by = :by", {":by": by})

    def _claim(self, key: str) -> bool:
        """Claim a message for a while, so that nobody else sends it. After that the claimant has died, and its event is
        delivered again.

        The claim has a token: the SDK repeats a write whose answer was lost, and must recognise its own.
        """
        now, by = int(self._clock().timestamp()), uuid.uuid4().hex
        until = now + _SENDING_SECONDS
        claim = {"claimed_until": until, "claimed_by": by, names.TTL_ATTRIBUTE: until}
        is_free = "attribute_not_exists(pk) OR claimed_until <= :now OR claimed_by = :by"
        item = to_item({"pk": _sent_pk(key), "sk": "claim", **claim})
        return self._table.put(item, is_free, {":now": now, ":by": by})

    def quarantine(self, body: str, why: str) -> None:
        why = "".join(c if c.isprintable() else " " for c in why)  # SQS accepts no control character in an attribute
        with throttles_named("SendMessage"):
            self._sqs().send_message(
                QueueUrl=self._to.quarantine_url,
                MessageBody=body[:_QUARANTINED_CHARACTERS] or "(empty)",
                MessageAttributes={"why": {"DataType": "String", "StringValue": why[:_WHY_CHARACTERS] or "unknown"}},
            )


def _minute_pk(at: datetime) -> str:
    return f"emails#{at.astimezone(UTC):%Y-%m-%dT%H:%M}"


def _minute_sk(channel: str) -> str:
    return "emails" if channel == names.EMAIL_CHANNEL else f"channel#{channel}"


def _sent_pk(key: str) -> str:
    return f"notification#{key}"
