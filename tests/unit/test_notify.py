"""S6: so many emails a minute in all, pages before what can wait, and one that says how many were not sent."""

from datetime import timedelta

import pytest

from nodeheal.contract.notification import Notification
from nodeheal.ports import Ports
from nodeheal.ports.messaging import Message
from nodeheal.services.notify.deliver_notification import (
    EMAILS_A_MINUTE,
    ROUTINE_A_MINUTE,
    STORM_MINUTES,
    notify,
    report_storm,
)
from nodeheal.services.sweep import sweep
from tests.support.builders import ACT, FrozenClock, memory_ports


@pytest.fixture
def ports(clock: FrozenClock) -> Ports:
    return memory_ports(clock)


def told(number: int, severity: str = "PAGE") -> Notification:
    return Notification(key=f"{severity}/{number}", subject="broken", body="look", severity=severity, pool="demo")


def announced(ports: Ports) -> list[Notification]:
    return [notification for _, notification in ports.notifier.announced]  # type: ignore[attr-defined]


def test_a_thousand_pages_are_thirty_emails_and_one_that_counts_the_others(ports: Ports, clock: FrozenClock) -> None:
    sent = [notify(told(number), ports, ACT) for number in range(1_000)]
    clock.advance(60)
    sweep(ports, ACT)

    assert sum(sent) == EMAILS_A_MINUTE
    [storm] = announced(ports)
    assert storm.subject == f"[nodeheal] storm: 970 more emails at {clock() - timedelta(minutes=1):%Y-%m-%d %H:%M} UTC"
    assert notify(storm, ports, ACT)


def test_it_stays_below_what_sns_takes_of_an_address() -> None:
    assert EMAILS_A_MINUTE + STORM_MINUTES < 10 * 60 / 2


def test_what_can_wait_leaves_room_for_pages(ports: Ports) -> None:
    routine = [notify(told(number, "INFO"), ports, ACT) for number in range(100)]
    pages = [notify(told(number), ports, ACT) for number in range(100)]

    assert (sum(routine), sum(pages)) == (ROUTINE_A_MINUTE, EMAILS_A_MINUTE - ROUTINE_A_MINUTE)


def test_the_next_minute_is_another_one(ports: Ports, clock: FrozenClock) -> None:
    for number in range(100):
        notify(told(number), ports, ACT)

    clock.advance(60)

    assert notify(told(1_000), ports, ACT)


def test_a_storm_is_told_once_for_each_minute_whatever_breaks(ports: Ports, clock: FrozenClock) -> None:
    for minute in range(2):
        for number in range(100):
            notify(told(100 * minute + number), ports, ACT)
        clock.advance(60)

    first = report_storm(ports)
    again = report_storm(ports)  # its sending was lost: it is announced again, under the same key
    for notification in announced(ports):
        notify(notification, ports, ACT)

    assert first == again
    assert len(first) == 2
    assert report_storm(ports) == []
    storms = [one for one in ports.notifier.sent if one.key.startswith("storm/")]  # type: ignore[attr-defined]
    assert sorted(one.key for one in storms) == sorted(first)


def test_a_storm_is_told_while_the_minute_is_full(ports: Ports, clock: FrozenClock) -> None:
    for number in range(100):
        notify(told(number), ports, ACT)
    clock.advance(60)
    for number in range(100, 200):
        notify(told(number), ports, ACT)
    report_storm(ports)

    assert notify(announced(ports)[0], ports, ACT)


def test_one_that_was_counted_is_not_sent_later(ports: Ports, clock: FrozenClock) -> None:
    for number in range(EMAILS_A_MINUTE + 1):
        notify(told(number), ports, ACT)
    clock.advance(120)

    assert not notify(told(EMAILS_A_MINUTE), ports, ACT)


def test_of_a_page_that_is_announced_many_times_at_once_one_place_is_taken(ports: Ports) -> None:
    same = told(1)
    ports.notifier.send(Message(same), EMAILS_A_MINUTE)
    for _ in range(100):
        notify(same, ports, ACT)

    assert [notify(told(number), ports, ACT) for number in range(2, 2 + EMAILS_A_MINUTE)].count(
        True
    ) == EMAILS_A_MINUTE - 1


def test_no_storm_no_email(ports: Ports, clock: FrozenClock) -> None:
    notify(told(1), ports, ACT)
    clock.advance(60)

    assert report_storm(ports) == []
