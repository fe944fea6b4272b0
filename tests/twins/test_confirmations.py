"""Whether an owner hears us: the same answers in memory and of SNS."""

from collections.abc import Iterator

import boto3
import pytest
from botocore.stub import Stubber

from nodeheal.adapters.aws.owners import SnsConfirmations
from nodeheal.adapters.memory.owners import MemoryConfirmations
from nodeheal.ports.messaging import HasConfirmed

TOPIC = "arn:aws:sns:us-east-1:111122223333:nodeheal-job-owners"
ADA, BOB, EVE = "ada@example.com", "bob@example.com", "eve@example.com"


def subscription(address: str, arn: str, protocol: str = "email") -> dict[str, str]:
    return {"SubscriptionArn": arn, "Owner": "111122223333", "Protocol": protocol, "Endpoint": address}


@pytest.fixture(params=["memory", "sns"])
def has_confirmed(request: pytest.FixtureRequest) -> Iterator[HasConfirmed]:
    """Ada has confirmed; Bob was asked; Eve is not known at all."""
    if request.param == "memory":
        yield MemoryConfirmations(deaf={BOB, EVE})
        return
    client = boto3.client("sns", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
    with Stubber(client) as stub:
        first = {"Subscriptions": [subscription(BOB, "PendingConfirmation")], "NextToken": "more"}
        stub.add_response("list_subscriptions_by_topic", first, {"TopicArn": TOPIC})
        second = {"Subscriptions": [subscription("Ada@Example.com", f"{TOPIC}:0001")]}
        stub.add_response("list_subscriptions_by_topic", second, {"TopicArn": TOPIC, "NextToken": "more"})
        yield SnsConfirmations(lambda: client, TOPIC)


@pytest.mark.parametrize(("address", "hears"), [(ADA, True), (BOB, False), (EVE, False)])
def test_only_who_has_confirmed_hears(has_confirmed: HasConfirmed, address: str, hears: bool) -> None:
    assert has_confirmed(address) is hears


def test_where_nobody_can_tell_it_says_so() -> None:
    client = boto3.client("sns", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
    endless = SnsConfirmations(lambda: client, TOPIC)

    with Stubber(client) as stub:
        for page in range(20):
            stub.add_response("list_subscriptions_by_topic", {"Subscriptions": [], "NextToken": f"more-{page}"})
        assert endless(ADA) is None

    assert SnsConfirmations(lambda: client, "")(ADA) is None
    assert MemoryConfirmations(unknown={ADA})(ADA) is None


def test_where_somebody_listens_by_other_means_nobody_can_tell_for_whom() -> None:
    client = boto3.client("sns", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
    queue = subscription("arn:aws:sqs:us-east-1:111122223333:news", f"{TOPIC}:0002", "sqs")

    with Stubber(client) as stub:
        stub.add_response("list_subscriptions_by_topic", {"Subscriptions": [queue]}, {"TopicArn": TOPIC})
        assert SnsConfirmations(lambda: client, TOPIC)(ADA) is None
