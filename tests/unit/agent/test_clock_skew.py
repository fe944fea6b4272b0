"""The clock check: by the time that the bus tells."""

import socket
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.agent.checks.check import CheckContext, NodeCheckResult
from nodeheal.agent.checks.clock_skew import CHECK, ahead_seconds, judge
from nodeheal.agent.checks.tools import run_tool
from nodeheal.agent.runtime.thresholds import CLOCK_WRONG
from tests.support.agent_fakes import CONFIG, START, FakeEventBridge

DATE = format_datetime(START, usegmt=True)


def look(url: str) -> NodeCheckResult:
    return CHECK.look(CheckContext(replace(CONFIG, endpoint_url=url), run_tool), {})


@pytest.mark.parametrize(("seconds", "is_wrong"), [(0, False), (50, False), (-50, False), (70, True), (-70, True)])
def test_a_clock_that_is_a_minute_off_is_wrong(bus: FakeEventBridge, seconds: int, is_wrong: bool) -> None:
    bus.date = format_datetime(datetime.now(UTC) - timedelta(seconds=seconds), usegmt=True)

    found = look(bus.url)

    assert [problem.finding.code for problem in found.problems] == ["clock_skew"] * is_wrong
    assert abs(found.gauges["clock_ahead_seconds"] - seconds) < 10


def test_which_way_it_is_wrong_is_said(bus: FakeEventBridge) -> None:
    bus.date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)

    assert "s behind" in look(bus.url).problems[0].evidence


@pytest.mark.parametrize("date", ["", "noon"])
def test_an_answer_without_a_date_tells_nothing(bus: FakeEventBridge, date: str) -> None:
    bus.date = date

    assert (look(bus.url).problems, bool(look(bus.url).unclear)) == ((), True)


def test_a_bus_out_of_reach_tells_nothing(bus: FakeEventBridge) -> None:
    bus.stop()

    assert "the event bus's endpoint does not answer" in look(bus.url).unclear


def test_a_date_is_compared_to_the_second() -> None:
    assert ahead_seconds(DATE, START + timedelta(seconds=90)) == 90.0


@pytest.mark.parametrize(
    ("ahead", "said", "is_wrong"),
    [(60.0, "60 s ahead", True), (-60.0, "60 s behind", True), (59.9, "60 s ahead", False), (-59.9, "behind", False)],
)
def test_from_a_minute_on_a_clock_is_wrong_whichever_way(ahead: float, said: str, is_wrong: bool) -> None:
    found = judge(ahead, CLOCK_WRONG.default)

    assert (said in found.summary, bool(found.problems)) == (True, is_wrong)


@pytest.mark.parametrize(
    ("date", "at"),
    [
        ("Sat, 21 Nov 2026 05:50:31 GMT", START),
        ("Sat, 21 Nov 2026 05:50:31 -0000", START),
        ("Sat, 21 Nov 2026 07:50:31 +0200", START),
    ],
)
def test_a_date_of_whatever_zone_is_a_moment(date: str, at: datetime) -> None:
    assert ahead_seconds(date, at) == 0.0


def test_where_the_configuration_names_no_address_the_environment_does(
    bus: FakeEventBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus.date = format_datetime(datetime.now(UTC), usegmt=True)
    monkeypatch.setenv("AWS_ENDPOINT_URL", bus.url)

    assert look("").unclear == ""


def test_an_address_that_wants_tls_is_asked_by_tls(bus: FakeEventBridge) -> None:
    bus.date = format_datetime(datetime.now(UTC), usegmt=True)

    assert "the event bus's endpoint does not answer" in look(bus.url.replace("http:", "https:")).unclear


def test_one_who_does_not_speak_http_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: server.accept()[0].sendall(b"220 mail\r\n"), daemon=True).start()
        port = server.getsockname()[1]

        assert (
            look(f"http://127.0.0.1:{port}").unclear
            == f"the event bus's endpoint does not answer: 127.0.0.1:{port}: BadStatusLine"
        )


def test_an_error_without_words_is_told_by_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_late(_: CheckContext) -> str:
        raise TimeoutError

    monkeypatch.setattr("nodeheal.agent.checks.clock_skew._date_of", is_late)

    assert look("").unclear == "the event bus's endpoint does not answer: TimeoutError"


def test_what_is_no_date_is_shown_by_its_beginning(bus: FakeEventBridge) -> None:
    bus.date = "x" * 1000

    assert len(look(bus.url).unclear) < 120


@given(st.text())
def test_any_date_is_read(date: str) -> None:
    ahead_seconds(date, START)
