"""`nodeheal owners` and `nodeheal emails`: an address is asked once, and filtered to its own jobs."""

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws
from typer.testing import CliRunner, Result

from nodeheal.adapters.aws.owners import SnsOwners, SnsSignedConfirmations, filter_for, topic_arn
from nodeheal.cli import connect
from nodeheal.cli.main import app
from nodeheal.contract.names import ALERTS_TOPIC, OWNER_ATTRIBUTE, OWNERS_TOPIC
from nodeheal.contract.notification import Notification
from nodeheal.domain.jobs.owner import Owner

ADA = Owner("ada@example.com")


@pytest.fixture
def sns(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with mock_aws():
        made: Any = boto3.client("sns", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
        topic = made.create_topic(Name=OWNERS_TOPIC)["TopicArn"]
        monkeypatch.setattr(connect, "owners", lambda: SnsOwners(made, topic))
        yield made


def subscribe(email: str) -> Result:
    return CliRunner().invoke(app, ["owners", "subscribe", email])


def test_an_address_gets_what_is_about_its_own_jobs_and_nothing_else(sns: Any) -> None:
    result = subscribe("Ada Lovelace <Ada@Example.com>")

    [found] = sns.list_subscriptions()["Subscriptions"]
    attributes = sns.get_subscription_attributes(SubscriptionArn=found["SubscriptionArn"])["Attributes"]
    assert result.exit_code == 0
    assert result.output.startswith("ada@example.com ")
    assert (found["Protocol"], found["Endpoint"]) == ("email", "ada@example.com")
    assert json.loads(attributes["FilterPolicy"]) == {"owner": ["ada@example.com"]}


def test_the_filter_asks_for_what_the_emails_carry() -> None:
    letter = Notification(key="k", subject="s", body="b", severity="INFO", pool="p", owner=ADA.address)

    assert json.loads(filter_for(ADA)) == {OWNER_ATTRIBUTE: [letter.attributes[OWNER_ATTRIBUTE]]}


def test_what_is_no_address_is_asked_nothing(sns: Any) -> None:
    result = subscribe("ada")

    assert result.exit_code == 1
    assert "'ada' is not an email address" in result.output
    assert sns.list_subscriptions()["Subscriptions"] == []


class Refusing:
    """An SNS that has the address with another filter."""

    def subscribe(self, **_: object) -> None:
        why = "Invalid parameter: Attributes Reason: Subscription already exists with different attributes"
        raise ClientError({"Error": {"Code": "InvalidParameter", "Message": why}}, "Subscribe")


class Pending:
    """An SNS that waits for the address."""

    def subscribe(self, **_: object) -> dict[str, str]:
        return {"SubscriptionArn": "pending confirmation"}


def test_an_address_that_has_not_said_yes_is_said_to_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    pending: Any = Pending()
    monkeypatch.setattr(connect, "owners", lambda: SnsOwners(pending, "arn:t"))

    assert "once its link is followed" in subscribe("ada@example.com").output


def test_an_address_with_another_filter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing: Any = Refusing()
    monkeypatch.setattr(connect, "owners", lambda: SnsOwners(refusing, "arn:t"))

    result = subscribe("ada@example.com")

    assert result.exit_code == 1
    assert "ada@example.com is subscribed to nodeheal-job-owners already, with another filter policy" in result.output


def test_what_else_sns_finds_wrong_is_not_taken_for_another_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    class Strict:
        def subscribe(self, **_: object) -> None:
            raise ClientError({"Error": {"Code": "InvalidParameter", "Message": "Invalid parameter: TopicArn"}}, "S")

    strict: Any = Strict()

    with pytest.raises(ClientError, match="TopicArn"):
        SnsOwners(strict, "arn:t").subscribe(ADA)


def test_the_topic_is_the_callers_own_in_every_partition() -> None:
    caller = "arn:aws-cn:sts::111122223333:assumed-role/ops/ada"

    assert topic_arn(caller, "cn-north-1") == "arn:aws-cn:sns:cn-north-1:111122223333:nodeheal-job-owners"


def test_only_who_has_said_yes_is_confirmed() -> None:
    class Pages:
        def paginate(self, **_: object) -> list[dict[str, Any]]:
            arn = "arn:aws:sns:us-east-1:111122223333:nodeheal-job-owners:1"
            said = [
                ("Ada@example.com", arn),
                ("bob@example.com", "PendingConfirmation"),
                ("eve@example.com", "Deleted"),
            ]
            return [{"Subscriptions": [{"Endpoint": who, "SubscriptionArn": what}]} for who, what in said]

    class Listing:
        def get_paginator(self, name: str) -> Pages:
            assert name == "list_subscriptions_by_topic"
            return Pages()

    listing: Any = Listing()
    owners = SnsOwners(listing, "arn:t")

    found = [owners.is_confirmed(Owner(f"{who}@example.com")) for who in ("ada", "bob", "eve", "nobody")]

    assert found == [True, False, False, False]


ALERTS = f"arn:aws:sns:us-east-1:123456789012:{ALERTS_TOPIC}"
LINK = f"https://sns.us-east-1.amazonaws.com/confirmation.html?TopicArn={ALERTS}&Token=2336f&Endpoint=ada@example.com"


class Asked:
    """An SNS that keeps what it was asked to confirm."""

    def __init__(self) -> None:
        self.confirmed: list[dict[str, str]] = []

    def confirm_subscription(self, **asked: str) -> dict[str, str]:
        self.confirmed.append(asked)
        return {"SubscriptionArn": f"{asked['TopicArn']}:0a1b"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    it = Asked()
    sns: Any = it
    monkeypatch.setattr(connect, "confirmations", lambda: SnsSignedConfirmations(sns, [ALERTS]))
    return it


def test_an_address_is_confirmed_so_that_a_forwarded_email_cannot_end_it(asked: Asked) -> None:
    result = CliRunner().invoke(app, ["emails", "confirm", LINK])

    assert result.exit_code == 0
    assert asked.confirmed == [{"TopicArn": ALERTS, "Token": "2336f", "AuthenticateOnUnsubscribe": "true"}]
    assert f"{ALERTS}:0a1b" in result.output


@pytest.mark.parametrize(
    ("link", "why"),
    [
        ("https://example.com/", "no TopicArn and Token"),
        (LINK.split("&")[0], "no TopicArn and Token"),
        (LINK.replace(ALERTS_TOPIC, "theirs"), "'arn:aws:sns:us-east-1:123456789012:theirs'"),
    ],
)
def test_a_link_that_is_not_ours_is_refused(asked: Asked, link: str, why: str) -> None:
    result = CliRunner().invoke(app, ["emails", "confirm", link])

    assert result.exit_code == 1
    assert why in result.output.replace("\n", " ")
    assert asked.confirmed == []
