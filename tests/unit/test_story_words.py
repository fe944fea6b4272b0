"""The words of the demo."""

import pytest

from sandbox.story import lost_steps


@pytest.mark.parametrize(
    ("behind", "words"), [(12, "12 steps lost"), (1, "1 step lost"), (0, "no steps lost"), (-12, "no steps lost")]
)
def test_what_is_lost_is_never_less_than_nothing(behind: int, words: str) -> None:
    assert lost_steps(behind) == words
