"""The words of the demo, and their order."""

from collections import defaultdict
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from sandbox.stories import STORIES
from sandbox.story import HELD_SECONDS, Story, lost_steps

if TYPE_CHECKING:
    from sandbox.client import Sandbox


@pytest.mark.parametrize(
    ("behind", "words"), [(12, "12 steps lost"), (1, "1 step lost"), (0, "no steps lost"), (-12, "no steps lost")]
)
def test_what_is_lost_is_never_less_than_nothing(behind: int, words: str) -> None:
    assert lost_steps(behind) == words


def test_a_line_that_comes_late_is_told_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looks = 100.0, [[(100.0, "decision", "second")], [], [(99.7, "event", "first")], []]
    heard: list[str] = []
    nothing = SimpleNamespace(outputs=defaultdict(str), client=lambda _: None, mails=list, owner_mails=list)
    story = Story(cast("Sandbox", nothing), STORIES["fixed-by-reboot"].script, lambda _, text: heard.append(text))

    def is_over() -> bool:
        nonlocal now
        for line in looks.pop(0):
            story._line(*line)
        now += HELD_SECONDS / 4
        return not looks

    monkeypatch.setattr(story, "_is_over", is_over)
    monkeypatch.setattr("sandbox.story.time.time", lambda: now)
    story._watch()

    assert [text for text in heard if text] == ["first", "second"]
