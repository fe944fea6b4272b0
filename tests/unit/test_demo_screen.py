"""The demo's screen: framed and wrapped on a terminal, plain in a pipe."""

from io import StringIO

import pytest
from rich.console import Console

from sandbox.screen import Screen

LINK = "s3://nodeheal-evidence/" + "incident/" * 12 + "kernel.log.gz"


@pytest.mark.parametrize(("is_terminal", "lines"), [(False, 1), (True, 2)])
def test_a_line_of_the_timeline_is_broken_on_a_terminal_alone(is_terminal: bool, lines: int) -> None:
    out = StringIO()

    Screen(Console(file=out, width=80, force_terminal=is_terminal)).stage(f"saved: {LINK}")

    assert out.getvalue().count("\n") >= lines
    assert (LINK in out.getvalue()) is not is_terminal
    assert all(line == line.rstrip() for line in out.getvalue().splitlines()) is not is_terminal
