"""When something was seen is told by AWS's time where the node's clock is wrong, however it was set meanwhile."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from nodeheal.agent.transport.clock_correction import redated
from nodeheal.agent.transport.credentials import CredentialChain
from nodeheal.agent.transport.event import Entry, EventFactory
from nodeheal.agent.transport.sender import Sender
from nodeheal.agent.transport.spool import Spool
from tests.support.agent_fakes import IDENTITY, KEYS, START, Answer, FakeEventBridge, FakeTime, bus_at, xid_event

DAY = 86_400.0
HOUR = 3_600.0
TOLD = START.isoformat()


@pytest.fixture
def spool(tmp_path: Path, time: FakeTime) -> Iterator[Spool]:
    spool = Spool(tmp_path, clock=time.clock(), boot_id="boot-1")
    yield spool
    spool.close()


@pytest.fixture
def sender(spool: Spool, bus: FakeEventBridge, time: FakeTime) -> Iterator[Sender]:
    clock = time.clock()
    client = bus_at(bus.url, CredentialChain(clock, KEYS), clock)
    yield Sender(spool, client, clock)
    client.close()


def refuses(bus: FakeEventBridge, ahead_seconds: float) -> None:
    """The bus once, as AWS does what was signed at a strange time; its own is so far ahead of the tests'."""
    bus.date = format_datetime(START + timedelta(seconds=ahead_seconds), usegmt=True)
    bus.answers = [Answer(403, "InvalidSignatureException")]


def dates(bus: FakeEventBridge) -> list[str]:
    return [detail["observed_at"] for detail in bus.details()]


@pytest.mark.parametrize("ahead", [DAY, -DAY, 301.0])
def test_a_clock_that_is_wrong_dates_nothing(spool: Spool, sender: Sender, bus: FakeEventBridge, ahead: float) -> None:
    spool.put([xid_event(79)])  # at START, by this node's clock
    refuses(bus, ahead)

    assert sender.send_all() == 0

    right = START + timedelta(seconds=ahead)
    assert dates(bus) == [right.isoformat()]
    assert [entry["Time"] for entry in bus.accepted] == [right.timestamp()]


def test_a_clock_that_aws_lets_pass_dates_what_it_sees(spool: Spool, sender: Sender, bus: FakeEventBridge) -> None:
    spool.put([xid_event(79)])
    refuses(bus, 119.0)

    sender.send_all()  # refused for another reason
    sender.send_all()

    assert dates(bus) == [TOLD]


@pytest.mark.parametrize("set_by", [DAY, -DAY, -120.0])
def test_a_clock_that_is_put_right_before_the_bus_is_back_has_dated_nothing(
    spool: Spool, sender: Sender, bus: FakeEventBridge, time: FakeTime, set_by: float
) -> None:
    spool.put([xid_event(79)])
    time.seconds += HOUR
    time.set_by_seconds = set_by

    sender.send_all()

    assert dates(bus) == [(START + timedelta(seconds=set_by)).isoformat()]


@pytest.mark.parametrize("set_by", [DAY, -DAY])
def test_what_was_dated_right_stays_so_when_the_clock_is_set_wrong(
    spool: Spool, sender: Sender, bus: FakeEventBridge, time: FakeTime, set_by: float
) -> None:
    spool.put([xid_event(79)])
    time.seconds += HOUR
    time.set_by_seconds = set_by
    refuses(bus, HOUR)

    sender.send_all()

    assert dates(bus) == [TOLD]


@pytest.mark.parametrize("set_by", [DAY, -DAY])
def test_what_is_told_a_minute_after_it_was_seen_was_dated_by_the_clock_of_then(
    spool: Spool, sender: Sender, bus: FakeEventBridge, time: FakeTime, set_by: float
) -> None:
    time.seconds += 30
    time.set_by_seconds = set_by
    spool.put([])
    time.seconds += 30
    spool.put([xid_event(79)])  # which was seen at START
    spool.put([replace(xid_event(31), observed_at=time.clock().utc_now())])

    sender.send_all()

    assert dates(bus) == [(START + timedelta(seconds=seconds)).isoformat() for seconds in (set_by, set_by + 60)]


def test_what_is_told_long_after_the_clock_was_set_was_dated_by_it(
    spool: Spool, sender: Sender, bus: FakeEventBridge, time: FakeTime
) -> None:
    time.set_by_seconds = DAY
    spool.put([])
    time.seconds += DAY
    spool.put([xid_event(79)])  # history: it was found where the kernel has kept it, at START by this clock

    sender.send_all()

    assert dates(bus) == [TOLD]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_next_agent_on_this_boot_knows_by_which_clock_it_was_dated(
    spool: Spool, bus: FakeEventBridge, time: FakeTime, tmp_path: Path, is_restarted: bool
) -> None:
    spool.put([xid_event(79)])
    time.set_by_seconds = DAY
    again = Spool(tmp_path, clock=time.clock(), boot_id="boot-1" if is_restarted else "boot-2")
    client = bus_at(bus.url, CredentialChain(time.clock(), KEYS), time.clock())

    Sender(again, client, time.clock()).send_all()

    # Of the boot before, nobody knows what its clock was set by in the end.
    assert dates(bus) == [(START + timedelta(seconds=DAY * is_restarted)).isoformat()]
    client.close()


def test_when_the_node_booted_is_put_right_as_well(spool: Spool, sender: Sender, bus: FakeEventBridge) -> None:
    booted_at = START - timedelta(minutes=3)
    spool.put([EventFactory(IDENTITY, "boot-1").booted(booted_at, "10.0.0.7", 8, START)])
    refuses(bus, DAY)

    sender.send_all()

    [told] = bus.details("Node Booted")
    assert told["booted_at"] == (booted_at + timedelta(days=1)).isoformat()
    assert told["observed_at"] == (START + timedelta(days=1)).isoformat()


def test_nothing_else_of_an_event_is_touched(spool: Spool, sender: Sender, bus: FakeEventBridge) -> None:
    event = xid_event(79)
    spool.put([event])
    refuses(bus, DAY)

    sender.send_all()

    told, kept = json.loads(bus.accepted[0]["Detail"]), json.loads(event.to_json())
    assert list(told) == list(kept)
    assert {**told, "observed_at": kept["observed_at"]} == kept


@pytest.mark.parametrize("spoilt", ["{", '{"observed_at": 7}', '{"observed_at": "9999-12-31T23:00:00+00:00"}'])
def test_what_cannot_be_dated_anew_is_sent_as_it_is(spoilt: str) -> None:
    entry = Entry("1", "Node Booted", spoilt, 0.0, "boot-1", 0.0)

    assert redated(entry, DAY) is entry


def test_a_clock_that_no_calendar_knows_changes_nothing() -> None:
    entry = Entry("1", "Node Booted", xid_event(79).to_json(), 0.0, "boot-1", -1e300)

    assert redated(entry, DAY) is entry
