"""The marks of the records, in their table and outside it: memory and DynamoDB over one specification."""

from datetime import timedelta

from nodeheal.domain.records_epoch import LONGEST_RESTORE, Epoch
from nodeheal.ports import Ports
from tests.support.builders import NOW
from tests.support.dynamo_tables import clock, ports

__all__ = ["clock", "ports"]  # fixtures

MINUTE = timedelta(minutes=1)


def test_where_nothing_was_ever_marked_nothing_has_gone_back(ports: Ports) -> None:
    assert ports.epoch.read() == Epoch()
    assert not Epoch().has_gone_back


def test_both_marks_are_renewed_over_the_one_that_was_read(ports: Ports) -> None:
    assert ports.epoch.renew(Epoch(), NOW)
    assert ports.epoch.renew(Epoch(NOW, NOW), NOW + MINUTE)

    assert ports.epoch.read() == Epoch(NOW + MINUTE, NOW + MINUTE)


def test_a_mark_that_is_not_the_one_that_was_read_stays(ports: Ports) -> None:
    """Else a run of the sweep that began before a restore would hide it."""
    ports.epoch.renew(Epoch(), NOW)

    assert not ports.epoch.renew(Epoch(), NOW + MINUTE)
    assert not ports.epoch.renew(Epoch(NOW - MINUTE, NOW), NOW + MINUTE)

    assert ports.epoch.read() == Epoch(NOW, NOW)


def test_a_table_has_gone_back_that_is_behind_the_mark_outside() -> None:
    restored, empty = Epoch(NOW - MINUTE, NOW), Epoch(None, NOW)

    assert (restored.has_gone_back, restored.lost_since) == (True, NOW - MINUTE)
    assert (empty.has_gone_back, empty.lost_since) == (True, NOW - LONGEST_RESTORE)


def test_a_crash_between_the_two_marks_is_no_restore() -> None:
    assert not Epoch(NOW, NOW - MINUTE).has_gone_back
    assert Epoch(NOW, NOW - MINUTE).lost_since is None
