"""Numbers and durations as people read them."""

from datetime import timedelta

import pytest

from nodeheal.domain.humanize import all_of, lasting


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0 s"),
        (0, "0 s"),
        (1.54, "1.5 s"),
        (9.99, "10 s"),
        (45.4, "45 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3_600, "1 h"),
        (18_600, "5 h 10 min"),
        (86_400 + 59, "1 d"),
        (2 * 86_400 + 3 * 3_600 + 59, "2 d 3 h"),
        (1e9, "11574 d 1 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, words: str) -> None:
    assert lasting(seconds) == words
    assert lasting(timedelta(seconds=seconds)) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-5, "0s"), (0.9, "0s"), (119, "119s"), (120, "2m"), (7_199, "119m"), (7_200, "2h"), (172_800, "2d")],
)
def test_a_short_duration_has_one_unit_of_which_there_are_two_at_least(seconds: float, words: str) -> None:
    assert lasting(seconds, is_short=True) == words


def test_all_of_two_are_both() -> None:
    assert [all_of(2), all_of(3), all_of(2, "its"), all_of(3, "its")] == ["both", "all 3", "both its", "all its 3"]
