"""What a pause holds back, and what an item that a person has written wrongly does."""

from collections.abc import Mapping
from datetime import timedelta

import pytest

from nodeheal.domain.fleet.pause import UNREADABLE, WHY_CHARACTERS, Pause, Pauses, pause_of
from tests.support.builders import NOW

UNTIL = "2026-03-01T05:00:00+00:00"


def test_a_pause_holds_until_its_end_and_not_at_it() -> None:
    pauses = Pauses({"node#mi-a": Pause(NOW, "over"), "pool#demo": Pause(NOW + timedelta(seconds=1), "new switch")})

    assert pauses.of_node("mi-a", NOW) is None
    assert pauses.of_pool("demo", NOW) == Pause(NOW + timedelta(seconds=1), "new switch")
    assert pauses.of_pool("other", NOW) is None


def test_the_nodes_own_pause_is_named_before_its_pools() -> None:
    until = NOW + timedelta(hours=2)
    pauses = Pauses({"node#mi-a": Pause(until, "new riser"), "pool#demo": Pause(until, "new switch")})

    assert pauses.why_paused("mi-a", "demo", NOW) == "mi-a is paused until 2026-03-01 05:00 UTC (new riser)"
    assert pauses.why_paused("mi-b", "demo", NOW) == "pool demo is paused until 2026-03-01 05:00 UTC (new switch)"
    assert pauses.why_paused("mi-b", "other", NOW) == ""


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"until": UNTIL},
        {"why": "new riser"},
        {"until": UNTIL, "why": 7},
        {"until": 1_772_341_200, "why": "new riser"},
        {"until": "tomorrow", "why": "new riser"},
        {"until": "2026-03-01T05:00:00", "why": "of which time zone?"},
        {"until": "0001-01-01T00:00:00+14:00", "why": "before the first year in UTC"},
        {"until": None, "why": "new riser"},
        {"until": [UNTIL], "why": {"text": "new riser"}},
    ],
)
def test_a_pause_that_cannot_be_read_has_no_end(fields: Mapping[str, object]) -> None:
    """A typing error must not let nodeheal act where a person wants it not to."""
    pauses = Pauses({"node#mi-a": pause_of(fields)})

    assert pauses.by_key["node#mi-a"] == UNREADABLE
    in_ten_years = NOW + timedelta(days=3_650)
    assert pauses.why_paused("mi-a", "demo", in_ten_years) == (
        "mi-a is paused until 9999-12-31 00:00 UTC (an unreadable pause)"
    )


@pytest.mark.parametrize("until", [UNTIL, "2026-03-01T05:00:00Z", "2026-03-01T06:00:00+01:00"])
def test_a_time_is_read_in_each_zone_and_shown_in_utc(until: str) -> None:
    pause = pause_of({"until": until, "why": "new riser", "ticket": 4711})

    assert pause.sentence("mi-a") == "mi-a is paused until 2026-03-01 05:00 UTC (new riser)"


def test_a_long_reason_is_cut_since_decisions_and_emails_carry_it() -> None:
    pause = pause_of({"until": UNTIL, "why": "word " * 50_000})

    assert len(pause.why) <= WHY_CHARACTERS
