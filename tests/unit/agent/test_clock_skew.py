"""The clock check: by the time that the bus tells."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.agent.checks.check import Look, Place
from nodeheal.agent.checks.clock_skew import CHECK, WRONG_SECONDS, ahead_seconds
from nodeheal.agent.checks.tools import run_tool
from tests.unit.agent.fakes import CONFIG, START, FakeEventBridge

DATE = format_datetime(START, usegmt=True)


def look(url: str) -> Look:
    return CHECK.look(Place(replace(CONFIG, endpoint_url=url), run_tool), {})


@pytest.mark.parametrize(("seconds", "is_wrong"), [(0, False), (50, False), (-50, False), (70, True), (-70, True)])
def test_a_clock_that_is_a_minute_off_is_wrong(bus: FakeEventBridge, seconds: int, is_wrong: bool) -> None:
    bus.date = format_datetime(datetime.now(UTC) - timedelta(seconds=seconds), usegmt=True)

    found = look(bus.url)

    assert [problem.finding.code for problem in found.problems] == ["clock_skew"] * is_wrong
    assert abs(found.gauges["clock_ahead_seconds"] - seconds) < 10
    assert WRONG_SECONDS == 60.0


def test_which_way_it_is_wrong_is_said(bus: FakeEventBridge) -> None:
    bus.date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)

    assert "s behind" in look(bus.url).problems[0].evidence


@pytest.mark.parametrize("date", ["", "noon"])
def test_an_answer_without_a_date_tells_nothing(bus: FakeEventBridge, date: str) -> None:
    bus.date = date

    assert (look(bus.url).problems, bool(look(bus.url).unclear)) == ((), True)


def test_a_bus_out_of_reach_tells_nothing(bus: FakeEventBridge) -> None:
    bus.stop()

    assert "nobody tells the time" in look(bus.url).unclear


def test_a_date_is_compared_to_the_second() -> None:
    assert ahead_seconds(DATE, START + timedelta(seconds=90)) == 90.0


@given(st.text())
def test_any_date_is_read(date: str) -> None:
    ahead_seconds(date, START)
