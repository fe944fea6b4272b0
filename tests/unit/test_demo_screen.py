"""The demo's screen: framed and wrapped on a terminal, plain in a pipe. Its numbers are nodeheal's, not people's."""

import re
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from sandbox.report import Verdict
from sandbox.screen import Screen, Where, show_summary
from sandbox.stories import STORIES
from sandbox.story import Told

LINK = "s3://nodeheal-evidence/" + "incident/" * 12 + "kernel.log.gz"


@pytest.mark.parametrize(("is_terminal", "lines"), [(False, 1), (True, 2)])
def test_a_line_of_the_timeline_is_broken_on_a_terminal_alone(is_terminal: bool, lines: int) -> None:
    out = StringIO()

    Screen(Console(file=out, width=80, force_terminal=is_terminal)).stage(f"saved: {LINK}")

    assert out.getvalue().count("\n") >= lines
    assert (LINK in out.getvalue()) is not is_terminal
    assert all(line == line.rstrip() for line in out.getvalue().splitlines()) is not is_terminal


DONE, REBOOTED = ["WAIT", "DONE"], [["ISOLATE", "DONE"], ["REBOOT", "DONE"], ["WAIT", "DONE"]]


def summary(results: list[list[str]]) -> str:
    out = StringIO()
    incident = {"id": "inc-20261128T044835-mi-62504b0d0d8dcd6bf-3c8f651f93", "results": results}
    numbers = dict.fromkeys(
        ("detected_seconds", "isolated_seconds", "recovered_seconds", "control_plane_seconds"), 2.27
    )
    training = {"step_at_fault": 50, "resumed_from_step": 50, "final_step": 200}
    lists: dict[str, Any] = {"legs": [], "emails": [], "owner_emails": [], "executions": [], "attempts": {}}
    report = {"incident": incident, **numbers, **training, **lists}
    told = Told(STORIES["fixed-by-reboot"].script)
    show_summary(Console(file=out, width=80), report, Verdict(()), told, Where("build/r.json", "build/mail"))
    return out.getvalue()


@pytest.mark.parametrize(
    ("results", "has_waited"),
    [(REBOOTED, False), ([DONE, *REBOOTED], True), ([["ISOLATE", "REFUSED"], DONE, *REBOOTED], True)],
    ids=["at once", "after an answer", "in its turn"],
)
def test_a_time_with_a_wait_for_people_says_so_and_none_is_judged(results: list[list[str]], has_waited: bool) -> None:
    said = summary(results)

    assert ("2.27 s  (a wait for people included)" in said) is has_waited
    assert "missed" not in said


def test_the_end_names_the_incident_as_commands_take_it_and_where_its_emails_are() -> None:
    said = summary(REBOOTED)

    assert re.search(r"incident +3c8f651f93 *\n", said)
    assert "The emails, as files, are in build/mail\n" in said
