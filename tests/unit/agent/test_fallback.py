"""The way around the bus: what goes there, when, and how often."""

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from nodeheal.agent.identity.sts_identity import StsIdentity
from nodeheal.agent.transport.aws_client import AwsClient
from nodeheal.agent.transport.credentials import CredentialChain
from nodeheal.agent.transport.fallback import EVENTS_A_TRY, Fallback
from nodeheal.agent.transport.sender import Sender
from nodeheal.agent.transport.spool import Spool
from nodeheal.contract.vocabulary import Verdict
from tests.support.agent_fakes import KEYS, PLAIN, START, FakeEventBridge, FakeTime, bus_at, xid_event

PATIENCE = 120.0
TOPIC = "arn:aws:sns:eu-central-1:111122223333:nodeheal-node-fallback"


@pytest.fixture
def sns() -> Iterator[FakeEventBridge]:
    """Up while the bus is down."""
    server = FakeEventBridge()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path / "state")
    yield spool
    spool.close()


@pytest.fixture
def sender(spool: Spool, bus: FakeEventBridge, sns: FakeEventBridge, time: FakeTime) -> Iterator[Sender]:
    clock, credentials = time.clock(), CredentialChain(time.clock(), KEYS)
    ways = [AwsClient(name, "eu-central-1", sns.url, credentials, clock) for name in ("sns", "sts")]
    fallback = Fallback(ways[0], StsIdentity(ways[1]), PLAIN)
    client = bus_at(bus.url, credentials, clock)
    yield Sender(spool, client, clock, fallback, PATIENCE)
    client.close()
    fallback.close()


def published(sns: FakeEventBridge) -> list[str]:
    """The codes of the findings that were published."""
    return [json.loads(post["Message"][0])["code"] for post in map(parse_qs, sns.table.published)]


def tries_for(sender: Sender, time: FakeTime, seconds: float) -> None:
    until = time.seconds + seconds
    while time.seconds < until:
        time.seconds = min(until, time.seconds + max(sender.send_all(), 1.0))
    sender.send_all()


def test_what_is_grave_goes_around_a_bus_that_takes_nothing_once_and_the_bus_gets_it_later(
    sender: Sender, spool: Spool, bus: FakeEventBridge, sns: FakeEventBridge, time: FakeTime
) -> None:
    bus.stop()
    spool.put([xid_event(79), replace(xid_event(92), verdict=Verdict.DEGRADED), xid_event(48)])

    tries_for(sender, time, PATIENCE - 1)
    assert published(sns) == []
    tries_for(sender, time, 600)
    assert published(sns) == ["79", "48"]
    bus.start()
    sender.send_all()

    assert bus.codes() == ["79", "92", "48"]
    post = parse_qs(sns.table.published[0])
    assert (post["Action"], post["TopicArn"]) == (["Publish"], [TOPIC])
    first = bus.details()[0]
    assert json.loads(post["Message"][0]) == first  # the same event id: it is one event


def test_what_comes_while_the_bus_is_away_goes_around_it_too(
    sender: Sender, spool: Spool, bus: FakeEventBridge, sns: FakeEventBridge, time: FakeTime
) -> None:
    bus.stop()
    spool.put([xid_event(79)])
    tries_for(sender, time, PATIENCE)

    spool.put([xid_event(48)])
    sender.send_all()

    assert published(sns) == ["79", "48"]


def test_many_go_in_portions(
    sender: Sender, spool: Spool, bus: FakeEventBridge, sns: FakeEventBridge, time: FakeTime
) -> None:
    bus.stop()
    spool.put([replace(xid_event(code), verdict=Verdict.FAILED) for code in range(25)])
    sender.send_all()
    time.seconds = PATIENCE

    told = []
    for _ in range(4):
        sender.send_all()
        told.append(len(published(sns)))

    assert told == [EVENTS_A_TRY, 2 * EVENTS_A_TRY, 25, 25]


def test_a_bus_that_is_away_for_a_moment_now_and_then_is_no_reason(
    sender: Sender, spool: Spool, bus: FakeEventBridge, sns: FakeEventBridge, time: FakeTime
) -> None:
    for _ in range(3):
        bus.stop()
        spool.put([xid_event(79)])
        tries_for(sender, time, PATIENCE - 1)
        bus.start()
        sender.send_all()

    assert published(sns) == []


def test_where_sns_does_not_take_it_either_it_is_said_once_and_tried_again(
    sender: Sender,
    spool: Spool,
    bus: FakeEventBridge,
    sns: FakeEventBridge,
    time: FakeTime,
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus.stop()
    sns.table.refusal = "AuthorizationError"
    spool.put([xid_event(79)])
    with caplog.at_level(logging.ERROR):
        tries_for(sender, time, 2 * PATIENCE)
        sns.table.refusal = ""
        sender.send_all()

    told = [
        record
        for record in caplog.records
        if record.getMessage() == "SNS does not accept grave findings either; retrying"
    ]
    assert len(told) == 1
    assert "AuthorizationError" in str(vars(told[0])["why"])
    assert published(sns) == ["79"]


def test_that_sns_does_not_take_it_either_is_said_again_in_the_next_outage(
    sender: Sender,
    spool: Spool,
    bus: FakeEventBridge,
    sns: FakeEventBridge,
    time: FakeTime,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sns.table.refusal = "AuthorizationError"
    with caplog.at_level(logging.ERROR):
        for code in (79, 48):
            bus.stop()
            spool.put([xid_event(code)])
            tries_for(sender, time, 2 * PATIENCE)
            bus.start()
            sender.send_all()

    assert [record.getMessage() for record in caplog.records].count(
        "SNS does not accept grave findings either; retrying"
    ) == 2


def test_each_reason_why_sns_does_not_take_it_is_said_once(
    sender: Sender,
    spool: Spool,
    bus: FakeEventBridge,
    sns: FakeEventBridge,
    time: FakeTime,
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus.stop()
    spool.put([xid_event(79)])
    for sns.table.refusal in ("AuthorizationError", "InvalidParameter", "AuthorizationError"):
        tries_for(sender, time, 2 * PATIENCE)

    said = [
        str(vars(one)["why"])
        for one in caplog.records
        if one.getMessage() == "SNS does not accept grave findings either; retrying"
    ]
    assert said == ["SNS answered 403 AuthorizationError", "SNS answered 403 InvalidParameter"]


def test_around_the_bus_too_a_clock_that_is_wrong_dates_nothing(
    tmp_path: Path, sns: FakeEventBridge, time: FakeTime
) -> None:
    clock, credentials = time.clock(), CredentialChain(time.clock(), KEYS)
    spool = Spool(tmp_path, clock=clock, boot_id="boot-1")
    spool.put([xid_event(79)])
    time.set_by_seconds = timedelta(days=1).total_seconds()
    topic, who = (AwsClient(name, "eu-central-1", sns.url, credentials, clock) for name in ("sns", "sts"))

    Fallback(topic, StsIdentity(who), PLAIN).tell(spool)

    [post] = [parse_qs(body) for body in sns.table.published]
    assert json.loads(post["Message"][0])["observed_at"] == (START + timedelta(days=1)).isoformat()
