"""What the commands print on terminals of 80 and 120 columns: it fits, and docs/screens.md shows it."""

import pytest

from tests import screens
from tests.screens import Screen

WIDTHS = (80, 120)
SCREENS = {width: screens.screens(width) for width in WIDTHS}
EACH = pytest.mark.parametrize(
    ("width", "screen"),
    [pytest.param(width, screen, id=f"{width} {screen.command}") for width in WIDTHS for screen in SCREENS[width]],
)


@EACH
def test_a_line_fits_the_terminal(width: int, screen: Screen) -> None:
    """But for one word alone that is too long by itself, as addresses are, and for JSON."""
    wide = [line for line in screen.lines if len(line) > width and not line.startswith("{")]

    assert [line for line in wide if len(line.split()) > 1] == []


@EACH
def test_a_screen_says_something(width: int, screen: Screen) -> None:
    assert any(screen.lines)


def test_slots_that_were_given_back_are_explained() -> None:
    status, _ = [screen.lines for screen in SCREENS[80] if screen.command == "status"]

    assert any("1 of 1+1" in line for line in status)
    assert any(line.startswith("BUDGET: ") for line in status)


def test_the_page_is_what_the_commands_print_now() -> None:
    assert screens.PAGE.read_text("utf-8") == screens.render(SCREENS[screens.COLUMNS]), "make reference"
