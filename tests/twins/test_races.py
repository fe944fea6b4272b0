"""DynamoDB when two write at once: what was read is old by the time it is written, and the condition says so."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import ANY, Stubber
from moto import mock_aws

from nodeheal.adapters.aws.items import Item, Table, to_item
from nodeheal.adapters.aws.limits import DynamoAttemptLedger, DynamoPoolStore
from nodeheal.adapters.aws.notifier import AwsNotifier, Destinations
from nodeheal.adapters.aws.stores import DynamoIncidentStore, DynamoNodeStore
from nodeheal.adapters.memory.world import MemoryNotifier
from nodeheal.contract import names
from nodeheal.contract.notification import Notification
from nodeheal.contract.steps import AttemptLimit
from nodeheal.contract.vocabulary import Action, Ending, IncidentState
from nodeheal.domain.errors import NotAccepted
from nodeheal.ports.messaging import Delivery, Message
from tests.support.builders import NOW, FrozenClock, node, xid
from tests.support.dynamo_tables import LateTable, dynamo_ports, new_incident

CLOCK = FrozenClock()


def reboots(limit: int) -> AttemptLimit:
    return AttemptLimit(group=Action.REBOOT, limit=limit, window_seconds=3600)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Iterator[LateTable]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        dynamo_ports(CLOCK)
        yield LateTable(boto3.client("dynamodb", region_name="us-east-1"), "state")


def on_time(late: LateTable) -> Table:
    return Table(late.client, late.name)


def test_two_that_both_saw_the_last_slot_free_do_not_both_get_it(late: LateTable) -> None:
    late.remember(names.pool_pk("demo"), "-")
    first = DynamoPoolStore(on_time(late)).claim("demo", "a", 1)

    second = DynamoPoolStore(late).claim("demo", "b", 1)

    assert (first, second) == (True, False)
    assert DynamoPoolStore(on_time(late)).holders("demo") == ["a"]


def test_a_slot_that_somebody_else_has_by_now_is_not_released(late: LateTable) -> None:
    budget = DynamoPoolStore(on_time(late))
    budget.claim("demo", "a", 1)
    late.remember(names.pool_pk("demo"), "-")
    budget.release("demo", "a")
    budget.claim("demo", "b", 1)

    DynamoPoolStore(late).release("demo", "a")

    assert budget.holders("demo") == ["b"]


@pytest.mark.parametrize("spent", [0, 1])
def test_two_that_both_saw_the_last_attempt_do_not_both_get_it(late: LateTable, spent: int) -> None:
    ledger = DynamoAttemptLedger(on_time(late), CLOCK)
    for n in range(spent):
        ledger.reserve("node#a", f"earlier-{n}", reboots(spent + 1))
    late.remember("node#a", names.attempts_sk("REBOOT"))
    first = ledger.reserve("node#a", "first", reboots(spent + 1))

    second = DynamoAttemptLedger(late, CLOCK).reserve("node#a", "second", reboots(spent + 1))

    assert (first, second) == ((True, spent + 1), (False, spent + 1))


def test_a_ledger_that_always_loses_says_that_nothing_was_spent_or_given_back(late: LateTable) -> None:
    ledger = DynamoAttemptLedger(on_time(late), CLOCK)
    ledger.reserve("node#a", "first", reboots(9))
    late.remember("node#a", names.attempts_sk("REBOOT"), reads=100)
    ledger.reserve("node#a", "second", reboots(9))

    with pytest.raises(NotAccepted, match="nothing was spent"):
        DynamoAttemptLedger(late, CLOCK).reserve("node#a", "third", reboots(9))
    with pytest.raises(NotAccepted, match="nothing was given back"):
        DynamoAttemptLedger(late, CLOCK).refund("node#a", "first", reboots(9))

    assert ledger.spent("node#a", reboots(9))[Action.REBOOT] == 2


def test_a_refund_of_nothing_writes_nothing(late: LateTable) -> None:
    DynamoAttemptLedger(on_time(late), CLOCK).refund("node#a", "never", reboots(1))

    assert on_time(late).get("node#a", names.attempts_sk("REBOOT")) is None


def test_history_is_kept_once_with_its_first_reason(late: LateTable) -> None:
    store = DynamoNodeStore(on_time(late))

    for why in ("first", "second"):
        store.record(xid(), None, why)

    [kept] = on_time(late).query(names.node_pk(xid().node_id), names.HISTORY_PREFIX)
    assert kept["note"] == {"S": "first"}
    assert int(kept[names.TTL_ATTRIBUTE]["N"]) > NOW.timestamp()


@pytest.mark.parametrize(
    ("code", "reasons", "outcome"),
    [
        ("TransactionCanceledException", ["None", "ConditionalCheckFailed"], False),
        ("TransactionCanceledException", ["ItemCollectionSizeLimitExceeded"], ClientError),
        ("ResourceNotFoundException", [], ClientError),
        ("ThrottlingException", [], NotAccepted),
    ],
)
def test_only_a_condition_that_does_not_hold_is_an_answer(
    code: str, reasons: list[str], outcome: bool | type[Exception]
) -> None:
    client = boto3.client("dynamodb", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
    modeled = {"CancellationReasons": [{"Code": reason} for reason in reasons]} if reasons else {}
    writes = [{"Put": {"TableName": "state", "Item": to_item({"pk": "a", "sk": "b"})}}]
    with Stubber(client) as stub:
        stub.add_client_error("transact_write_items", code, modeled_fields=modeled)
        if isinstance(outcome, bool):
            assert Table(client, "state").transact(writes) is outcome
        else:
            with pytest.raises(outcome):
                Table(client, "state").transact(writes)


@pytest.mark.parametrize(
    ("code", "error"), [("ResourceNotFoundException", ClientError), ("RequestLimitExceeded", NotAccepted)]
)
def test_a_write_that_went_wrong_is_no_lost_race(code: str, error: type[Exception]) -> None:
    client = boto3.client("dynamodb", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
    with Stubber(client) as stub:
        stub.add_client_error("put_item", code)
        with pytest.raises(error):
            Table(client, "state").put(to_item({"pk": "a", "sk": "b"}), "attribute_not_exists(pk)")


def test_an_email_that_has_gone_out_is_remembered_longer_than_it_is_delivered_again(late: LateTable) -> None:
    nowhere = Destinations("bus", "arn:t", "https://q")
    never_made: Any = None
    notifier = AwsNotifier(never_made, never_made, never_made, on_time(late), nowhere, CLOCK)
    told = Notification(key="inc-1/RECOVERED", subject="recovered", body="look", severity="INFO", pool="demo")

    before = notifier.was_sent(told.key)
    notifier.mark_sent(told.key)

    assert (before, notifier.was_sent(told.key)) == (False, True)
    kept = on_time(late).get("notification#inc-1/RECOVERED", "sent")
    assert kept is not None
    assert int(kept[names.TTL_ATTRIBUTE]["N"]) > (NOW + timedelta(days=1)).timestamp()


def test_of_all_who_mark_a_digest_as_sent_the_first_is_told_so(late: LateTable) -> None:
    never_made: Any = None
    nowhere = Destinations("bus", "arn:t", "https://q")
    one, other = (
        AwsNotifier(never_made, never_made, never_made, on_time(late), nowhere, CLOCK),
        MemoryNotifier(CLOCK),
    )

    for notifier in (one, other):
        assert [notifier.mark_sent("digest/email/2026-03-02T00") for _ in range(3)] == [True, False, False]


def test_what_decides_is_read_strongly_consistent() -> None:
    client = boto3.client("dynamodb", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
    with Stubber(client) as stub:
        key = to_item({"pk": "a", "sk": "b"})
        stub.add_response("get_item", {}, {"TableName": "state", "Key": key, "ConsistentRead": True})
        condition = {"KeyConditionExpression": ANY, "ExpressionAttributeValues": ANY}
        stub.add_response("query", {"Items": []}, {"TableName": "state", "ConsistentRead": True, **condition})

        assert Table(client, "state").get("a", "b") is None
        assert list(Table(client, "state").query("a", "b")) == []


def test_an_ending_that_was_read_early_takes_no_turn_back(late: LateTable) -> None:
    store, incident = DynamoIncidentStore(on_time(late)), new_incident()
    store.open(incident, node(open_incident=incident.incident_id))
    store.advance(replace(incident, turn=1), [])

    store.finish(replace(incident, state=IncidentState.CLOSED, ending=Ending.RECOVERED))

    seen = store.history(incident.incident_id).incident
    assert (seen.turn, seen.ending) == (1, Ending.RECOVERED)


def test_of_two_who_send_one_page_at_once_one_does_and_a_dead_ones_claim_runs_out(late: LateTable) -> None:
    clock = FrozenClock()
    sns = boto3.client("sns", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
    never_made: Any = None
    nowhere = Destinations("bus", "arn:t", "https://q")
    notifier = AwsNotifier(never_made, lambda: sns, never_made, on_time(late), nowhere, clock)
    told = Notification(key="breaker/demo", subject="breaker open", body="look", severity="PAGE", pool="demo")

    with Stubber(sns) as stub:
        stub.add_response("publish", {"MessageId": "first"})
        stub.add_response("publish", {"MessageId": "after a crash"})
        at_once = [notifier.send(Message(told), 2), notifier.send(Message(told), 2)]
        clock.advance(45)
        after_the_lease = notifier.send(Message(told), 2)

    assert at_once == [Delivery.SENT, Delivery.BUSY]
    assert after_the_lease is Delivery.SENT


def test_all_functions_together_send_so_many_in_a_minute_and_count_the_others(late: LateTable) -> None:
    clock = FrozenClock()
    sns = boto3.client("sns", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
    never_made: Any = None
    to = Destinations("bus", "arn:t", "https://q")
    one, other = (AwsNotifier(never_made, lambda: sns, never_made, on_time(late), to, clock) for _ in range(2))

    def told(number: int) -> Notification:
        return Notification(key=f"page/{number}", subject="broken", body="look", severity="PAGE", pool="demo")

    with Stubber(sns) as stub:
        for _ in range(4):
            stub.add_response("publish", {"MessageId": "1"})
        became = [notifier.send(Message(told(n)), 3) for n, notifier in enumerate((one, other, one, other, one))]
        minute = clock()
        clock.advance(60)
        later = other.send(Message(told(9)), 3)

    assert became == [Delivery.SENT] * 3 + [Delivery.FOLDED] * 2
    assert (later, one.folded(minute, "email"), one.folded(clock(), "email")) == (Delivery.SENT, 2, 0)


class Unanswered(Table):
    """The answer to the first write is lost, and the SDK sends the very same once more."""

    def put(self, item: Item, condition: str = "", values: Mapping[str, Any] | None = None) -> bool:
        super().put(item, condition, values)
        return super().put(item, condition, values)


def test_a_page_whose_claim_was_written_and_not_answered_is_sent(late: LateTable) -> None:
    sns = boto3.client("sns", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
    never_made: Any = None
    table = Unanswered(late.client, late.name)
    notifier = AwsNotifier(never_made, lambda: sns, never_made, table, Destinations("bus", "arn:t", "https://q"), CLOCK)
    told = Notification(key="inc-1/ENDED", subject="it needs a human", body="look", severity="PAGE", pool="demo")

    with Stubber(sns) as stub:
        stub.add_response("publish", {"MessageId": "first"})
        was_sent = notifier.send(Message(told), 1)
        by_another = AwsNotifier(
            never_made, lambda: sns, never_made, on_time(late), Destinations("bus", "arn:t", "https://q"), CLOCK
        ).send(Message(told), 1)

    assert (was_sent, by_another) == (Delivery.SENT, Delivery.BUSY)
