"""From the spool to the bus: at least once, in order, through every kind of trouble."""

import base64
import json
import logging
import shutil
import time as real_time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from nodeheal.agent.identity.signing import FILE_NAME as KEY_FILE
from nodeheal.agent.identity.signing import Signer
from nodeheal.agent.identity.sts_identity import StsIdentity
from nodeheal.agent.transport.aws_client import AwsClient
from nodeheal.agent.transport.bus import CALL_BYTES, ENVELOPE_BYTES, BusUnavailable, EventBus, Receipt, batch
from nodeheal.agent.transport.credentials import CredentialChain
from nodeheal.agent.transport.endpoint import endpoint
from nodeheal.agent.transport.event import Entry
from nodeheal.agent.transport.heartbeat_client import HeartbeatItem
from nodeheal.agent.transport.sender import BACKOFF_LIMIT_SECONDS, COMPLAINT_SECONDS, Sender
from nodeheal.agent.transport.spool import Spool
from nodeheal.contract.signed_event import SignedEvent
from nodeheal.services.intake.verify_event import verify
from tests.support.agent_fakes import KEYS, START, Answer, FakeEventBridge, FakeTime, bus_at, eventually, xid_event
from tests.support.signing import Keys as NodeKeys


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path / "state")
    yield spool
    spool.close()


@pytest.fixture
def sender(spool: Spool, bus: FakeEventBridge, time: FakeTime) -> Iterator[Sender]:
    clock = time.clock()
    client = bus_at(bus.url, CredentialChain(clock, KEYS), clock)
    yield Sender(spool, client, clock)
    client.close()


def waiting(spool: Spool) -> list[str]:
    return [json.loads(entry.detail)["code"] for entry in spool.oldest(1000)]


def test_an_event_arrives_as_event_bridge_wants_it(spool: Spool, sender: Sender, bus: FakeEventBridge) -> None:
    spool.put([xid_event(79)])

    assert sender.send_all() == 0

    [entry] = bus.accepted
    assert (entry["Source"], entry["DetailType"], entry["EventBusName"]) == (
        "nodeheal.agent",
        "Node Health Reported",
        "nodeheal",
    )
    assert entry["Time"] == START.timestamp()
    assert bus.headers[0]["X-Amz-Target"] == "AWSEvents.PutEvents"
    assert bus.headers[0]["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKID/20261121/eu-central-1/events/")
    assert waiting(spool) == []


def test_many_events_go_in_order_ten_a_call_over_one_connection(
    spool: Spool, sender: Sender, bus: FakeEventBridge
) -> None:
    spool.put([xid_event(code) for code in range(25)])

    sender.send_all()

    assert bus.codes() == [str(code) for code in range(25)]
    assert [len(call["Entries"]) for call in bus.calls] == [10, 10, 5]
    assert bus.connections == 1


def test_an_outage_keeps_everything_and_recovery_delivers_it_in_order(
    spool: Spool, sender: Sender, bus: FakeEventBridge, caplog: pytest.LogCaptureFixture
) -> None:
    spool.put([xid_event(1)])
    sender.send_all()
    bus.stop()
    spool.put([xid_event(2), xid_event(3)])
    with caplog.at_level(logging.INFO):
        delays = [sender.send_all() for _ in range(12)]
        bus.start()
        assert sender.send_all() == 0

    assert bus.codes() == ["1", "2", "3"]
    assert delays[0] < 1
    assert all(0 < delay <= BACKOFF_LIMIT_SECONDS for delay in delays)
    assert delays[-1] >= BACKOFF_LIMIT_SECONDS / 2
    assert [record.getMessage() for record in caplog.records] == [
        "the bus is out of reach",
        "the bus accepts events again",
    ]


@pytest.mark.parametrize(
    "answer",
    [
        Answer(400, "ThrottlingException"),
        Answer(500, "InternalException"),
        Answer(503, ""),
        Answer(400, "SomethingNew"),
        Answer(entry_errors={0: "ThrottlingException"}),
        Answer(entry_errors={0: "InternalFailure"}),
    ],
)
def test_a_passing_refusal_is_repeated(spool: Spool, sender: Sender, bus: FakeEventBridge, answer: Answer) -> None:
    bus.answers = [answer]
    spool.put([xid_event(1)])

    assert sender.send_all() > 0
    assert waiting(spool) == ["1"]
    assert sender.send_all() == 0

    assert bus.codes() == ["1"]


def test_only_what_was_not_accepted_is_sent_again(spool: Spool, sender: Sender, bus: FakeEventBridge) -> None:
    bus.answers = [Answer(entry_errors={1: "ThrottlingException"})]
    spool.put([xid_event(1), xid_event(2), xid_event(3)])

    assert sender.send_all() > 0  # a moment later, lest a bus that is throttled is asked without a pause
    assert len(bus.calls) == 1
    sender.send_all()

    assert bus.codes() == ["1", "3", "2"]


def test_an_answer_that_is_not_in_the_words_of_the_bus_is_shown_with_its_sender(
    spool: Spool,
    sender: Sender,
    bus: FakeEventBridge,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bus, "answer", lambda *_: (Answer(302), b"<html>sign in" + b"!" * 1000))
    spool.put([xid_event(1)])

    assert sender.send_all() > 0

    shown = f"b'<html>sign in{'!' * 87}'"
    assert vars(caplog.records[0])["why"] == f"302 {shown} of {bus.url.removeprefix('http://')}"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("InternalFailure", "the bus is out of reach"),
        ("NotAuthorizedForSourceException", "the bus refuses this node's events; they are kept"),
    ],
)
def test_an_entry_that_is_not_accepted_yet_is_told_with_its_reason(
    spool: Spool, sender: Sender, bus: FakeEventBridge, caplog: pytest.LogCaptureFixture, error: str, said: str
) -> None:
    bus.answers = [Answer(entry_errors={0: error, 2: error})]
    spool.put([xid_event(1), xid_event(2), xid_event(3)])

    assert sender.send_all() > 0

    [record] = caplog.records
    assert (record.getMessage(), vars(record)["why"]) == (said, f"2 of 3 entries were not accepted: {error}")
    assert waiting(spool) == ["1", "3"]


@pytest.mark.parametrize(("status", "error"), [(400, "AccessDeniedException"), (403, "ExpiredTokenException")])
def test_missing_permission_is_told_once_a_minute_and_nothing_is_lost(
    spool: Spool,
    sender: Sender,
    bus: FakeEventBridge,
    time: FakeTime,
    caplog: pytest.LogCaptureFixture,
    status: int,
    error: str,
) -> None:
    bus.always = Answer(status, error)
    spool.put([xid_event(1)])
    with caplog.at_level(logging.ERROR):
        for second in (0, 1, COMPLAINT_SECONDS - 1, COMPLAINT_SECONDS):
            time.seconds = second
            sender.send_all()

    assert [record.getMessage() for record in caplog.records] == [
        "the bus refuses this node's events; they are kept"
    ] * 2
    assert error in vars(caplog.records[0])["why"]
    assert waiting(spool) == ["1"]


def test_an_entry_that_the_bus_will_never_take_is_dropped_and_told(
    spool: Spool, sender: Sender, bus: FakeEventBridge, caplog: pytest.LogCaptureFixture
) -> None:
    bus.answers = [Answer(entry_errors={0: "MalformedDetail"})]
    spool.put([xid_event(1), xid_event(2)])

    with caplog.at_level(logging.ERROR):
        assert sender.send_all() == 0

    assert bus.codes() == ["2"]
    assert waiting(spool) == []
    assert "refuses an event for good" in caplog.text


def test_one_bad_entry_does_not_take_its_call_with_it(spool: Spool, sender: Sender, bus: FakeEventBridge) -> None:
    bus.answers = [Answer(400, "ValidationException"), Answer(), Answer(400, "ValidationException"), Answer()]
    spool.put([xid_event(1), xid_event(2), xid_event(3)])

    assert sender.send_all() == 0

    assert bus.codes() == ["1", "3"]
    assert waiting(spool) == []


@pytest.mark.parametrize("count", [1, 3])
def test_what_is_too_large_for_somebody_before_the_bus_is_kept(
    spool: Spool, sender: Sender, bus: FakeEventBridge, count: int
) -> None:
    spool.put([xid_event(code) for code in range(count)])
    bus.always = Answer(413)

    assert sender.send_all() > 0

    assert len(waiting(spool)) == count
    bus.always = None
    assert sender.send_all() == 0
    assert bus.codes() == [str(code) for code in range(count)]


def test_what_the_bus_itself_calls_too_large_is_dropped(spool: Spool, sender: Sender, bus: FakeEventBridge) -> None:
    spool.put([xid_event(79)])
    bus.always = Answer(413, "RequestEntityTooLargeException")

    assert sender.send_all() == 0

    assert waiting(spool) == []


def test_a_connection_that_the_bus_has_closed_is_opened_again_at_once(
    spool: Spool, sender: Sender, bus: FakeEventBridge
) -> None:
    bus.answers = [Answer(hangs_up=True)]
    spool.put([xid_event(1)])
    sender.send_all()

    spool.put([xid_event(2)])

    assert sender.send_all() == 0
    assert bus.codes() == ["1", "2"]
    assert bus.connections == 2


def test_without_credentials_nothing_is_sent_and_nothing_lost(
    spool: Spool, bus: FakeEventBridge, time: FakeTime
) -> None:
    chain = CredentialChain(time.clock(), {"HOME": "/nonexistent", "AWS_EC2_METADATA_DISABLED": "true"})
    spool.put([xid_event(1)])

    delay = Sender(spool, bus_at(bus.url, chain, time.clock()), time.clock()).send_all()

    assert delay > 0
    assert bus.calls == []
    assert waiting(spool) == ["1"]


def test_a_running_sender_delivers_what_it_is_woken_for(spool: Spool, sender: Sender, bus: FakeEventBridge) -> None:
    sender.start()

    spool.put([xid_event(79)])
    sender.wake()

    eventually(lambda: bus.codes() == ["79"])
    sender.stop(5)
    assert not sender.is_alive()


def test_news_do_not_cut_a_back_off_short(spool: Spool, sender: Sender, bus: FakeEventBridge) -> None:
    bus.always = Answer(500)
    spool.put([xid_event(79)])
    sender.start()
    eventually(lambda: bus.calls)

    for _ in range(10):
        sender.wake()
        real_time.sleep(0.01)  # all of it less than half of the first back-off

    assert len(bus.calls) == 1
    sender.stop(5)


class CountingCredentials(CredentialChain):
    """How often they were to be found anew."""

    forgotten = 0

    def forget(self) -> None:
        self.forgotten += 1


@pytest.mark.parametrize(
    ("status", "answer", "is_refusal"),
    [
        (400, {"__type": "com.amazon#AccessDeniedException"}, True),
        (400, {"code": "UnrecognizedClientException"}, True),
        (403, {}, True),
        (401, {}, True),
        (400, {"__type": "ThrottlingException"}, False),
        (200, {"Entries": []}, False),
        (200, {"Entries": {}}, False),
        (200, [], False),
    ],
)
def test_what_is_refused_is_told_from_what_is_not_answered_and_credentials_are_found_anew(
    time: FakeTime, monkeypatch: pytest.MonkeyPatch, status: int, answer: object, is_refusal: bool
) -> None:
    monkeypatch.setattr(AwsClient, "ask", lambda *_: (status, json.dumps(answer).encode()))
    credentials = CountingCredentials(time.clock(), KEYS)
    client = bus_at("http://127.0.0.1:9", credentials, time.clock())

    with pytest.raises(BusUnavailable) as failed:
        client.put([Entry("1", "t", "{}", 0.0)])

    assert (failed.value.is_refusal, credentials.forgotten) == (is_refusal, int(is_refusal))


def test_a_sender_that_meets_what_nobody_expected_goes_on(
    spool: Spool,
    sender: Sender,
    bus: FakeEventBridge,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    surprises = [KeyError("nobody expected this"), KeyError("nor this")]
    put = EventBus.put

    def surprised(client: EventBus, entries: Sequence[Entry]) -> Receipt:
        if surprises:
            raise surprises.pop(0)
        return put(client, entries)

    monkeypatch.setattr(EventBus, "put", surprised)
    spool.put([xid_event(79)])

    with caplog.at_level(logging.ERROR):
        sender.start()
        eventually(lambda: bus.codes() == ["79"])
        sender.stop(5)

    assert caplog.text.count("sending fails for an unexpected reason") == 1


def test_an_answer_that_is_nested_beyond_reason_is_no_answer(
    spool: Spool, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AwsClient, "ask", lambda *_: (200, b"[" * 100_000))
    spool.put([xid_event(79)])

    assert sender.send_all() > 0

    assert waiting(spool) == ["79"]


def test_a_call_never_exceeds_what_put_events_takes() -> None:
    entries = [Entry(str(number), "t", "é" * (CALL_BYTES // 8 - ENVELOPE_BYTES), 0.0) for number in range(10)]

    assert len(batch(entries)) == 4
    assert len(batch([Entry(str(n), "t", '"' * (CALL_BYTES // 8 - ENVELOPE_BYTES), 0.0) for n in range(10)])) == 4
    assert len(batch([Entry("1", "t", "x" * 2 * CALL_BYTES, 0.0), *entries])) == 1


def test_every_partition_has_its_own_endpoint() -> None:
    assert endpoint("events", "eu-central-1", {}) == "https://events.eu-central-1.amazonaws.com"
    assert endpoint("events", "cn-north-1", {}) == "https://events.cn-north-1.amazonaws.com.cn"


def refuses_wrong_clocks(bus: FakeEventBridge, ahead: timedelta) -> None:
    bus.date = format_datetime(START + ahead, usegmt=True)
    bus.answers = [Answer(400, "InvalidSignatureException")]


def signed_at(bus: FakeEventBridge) -> list[str]:
    return [headers["X-Amz-Date"] for headers in bus.headers]


def test_a_node_whose_clock_is_wrong_signs_by_the_time_of_the_bus(
    spool: Spool, sender: Sender, bus: FakeEventBridge
) -> None:
    refuses_wrong_clocks(bus, timedelta(minutes=20))
    spool.put([xid_event(79)])

    assert sender.send_all() == 0
    spool.put([xid_event(48)])
    sender.send_all()

    assert bus.codes() == ["79", "48"]
    assert signed_at(bus) == ["20261121T055031Z", "20261121T061031Z", "20261121T061031Z"]


@pytest.mark.parametrize("ahead", [timedelta(seconds=119), timedelta(seconds=-119)])
def test_a_refusal_for_another_reason_is_not_repeated_at_once(
    spool: Spool, sender: Sender, bus: FakeEventBridge, ahead: timedelta
) -> None:
    refuses_wrong_clocks(bus, ahead)
    spool.put([xid_event(79)])

    assert sender.send_all() > 0
    assert len(bus.calls) == 1


@pytest.mark.parametrize("date", ["", "yesterday", "Sat, 99 Nov 2026 05:50:31 GMT", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_a_bus_that_does_not_tell_the_time_is_not_believed(
    spool: Spool, sender: Sender, bus: FakeEventBridge, date: str
) -> None:
    bus.date, bus.answers = date, [Answer(403, "SignatureDoesNotMatch")]
    spool.put([xid_event(79)])

    assert sender.send_all() > 0
    assert len(bus.calls) == 1


def test_a_bus_whose_time_jumps_is_asked_twice_and_no_more(spool: Spool, sender: Sender, bus: FakeEventBridge) -> None:
    refuses_wrong_clocks(bus, timedelta(hours=1))
    bus.always = Answer(400, "InvalidSignatureException")
    spool.put([xid_event(79)])

    assert sender.send_all() > 0
    assert len(bus.calls) == 2


@pytest.mark.parametrize("result", [None, {}, [], "EventId", 7, {"EventId": ""}])
def test_an_event_of_which_the_bus_says_nothing_is_kept(
    spool: Spool, sender: Sender, bus: FakeEventBridge, monkeypatch: pytest.MonkeyPatch, result: object
) -> None:
    spool.put([xid_event(79)])
    answer = json.dumps({"FailedEntryCount": 0, "Entries": [result]}).encode()

    with monkeypatch.context() as patched:
        patched.setattr(bus, "answer", lambda *_: (Answer(), answer))
        assert sender.send_all() > 0

    assert waiting(spool) == ["79"]
    assert sender.send_all() == 0
    assert bus.codes() == ["79"]


def test_deliveries_refusals_and_failures_are_served(
    spool: Spool, sender: Sender, bus: FakeEventBridge, time: FakeTime
) -> None:
    before = served(sender, time)
    spool.put([xid_event(1), xid_event(2)])
    bus.answers = [Answer(status=500), Answer(entry_errors={1: "MalformedDetail"})]
    sender.send_all()
    sender.send_all()
    time.seconds += 30.0

    assert before == {"events_sent_total": 0, "events_refused_total": 0, "publish_failures_total": 0}
    assert served(sender, time) == {
        "events_sent_total": 1,
        "events_refused_total": 1,
        "publish_failures_total": 1,
        "last_publish_age_seconds": 30.0,
    }


def served(sender: Sender, time: FakeTime) -> dict[str, float]:
    return {sample.name: sample.value for sample in sender.samples(time.seconds)}


# Two machines of one disk --------------------------------------------------------------------------------------------

ORIGIN, COPY = "mi-0a1b2c3d4e5f67890", "mi-0c0c0c0c0c0c0c0c0"


def starts(disk: Path, bus: FakeEventBridge, time: FakeTime, configured: str, boot_id: str) -> tuple[Spool, Sender]:
    """The agent's own parts on this disk, as `watch` assembles them."""
    clock = time.clock()
    events, sts, table = (
        AwsClient(name, "eu-central-1", bus.url, CredentialChain(clock, KEYS), clock)
        for name in ("events", "sts", "dynamodb")
    )
    spool = Spool(disk, clock=clock, boot_id=boot_id, node_id=configured)
    signer = Signer(disk, configured, HeartbeatItem(configured, table, StsIdentity(sts)), clock)
    return spool, Sender(spool, EventBus("nodeheal", events, signer), clock)


def believed(bus: FakeEventBridge, now: float) -> list[tuple[str, str]]:
    """The node and the code of each event on the bus, by the control plane's own check. Raises Forged."""
    keys, read = NodeKeys(), []
    for update in bus.table.keys:
        for name, value in update["ExpressionAttributeValues"].items():
            if name.startswith(":key_"):
                public = base64.b64decode(value["S"].partition(" ")[0])
                keys.by_name[update["Key"]["who"]["S"], name.removeprefix(":key_")] = public
    for call in bus.calls:
        for entry in call["Entries"]:
            signed = SignedEvent.model_validate_json(entry["Detail"])
            event = verify(signed, entry["DetailType"], keys, {signed.role_id}, now).event
            read.append((str(event["node_id"]), str(event["code"])))
    return read


def test_two_machines_of_one_disk_each_sign_as_themselves_and_lose_no_fault(
    tmp_path: Path, bus: FakeEventBridge, time: FakeTime
) -> None:
    now = START.timestamp()
    spool, sender = starts(tmp_path / "origin", bus, time, ORIGIN, "boot-1")
    spool.put([xid_event(79, "boot-1")])
    sender.send_all()
    spool.put([xid_event(94, "boot-1")])  # the bus has not taken this one when the image is made
    spool.close()
    shutil.copytree(tmp_path / "origin", tmp_path / "copy")
    bus.table.node_id = COPY

    # The copied configuration names the origin: nothing is signed in its name, and what is found waits.
    spool, sender = starts(tmp_path / "copy", bus, time, ORIGIN, "boot-2")
    spool.put([xid_event(48, "boot-2")])
    assert sender.send_all() > 0
    spool.close()
    assert believed(bus, now) == [(ORIGIN, "79")]

    # The installer writes the machine's own id into it.
    spool, sender = starts(tmp_path / "copy", bus, time, COPY, "boot-2")
    assert sender.send_all() == 0
    spool.close()
    bus.table.node_id = ORIGIN
    spool, sender = starts(tmp_path / "origin", bus, time, ORIGIN, "boot-1")
    assert sender.send_all() == 0

    assert believed(bus, now) == [(ORIGIN, "79"), (COPY, "48"), (ORIGIN, "94")]
    assert len({json.loads((tmp_path / one / KEY_FILE).read_text())["secret"] for one in ("origin", "copy")}) == 2
