"""What schedules come to is as it was recorded; `python -m tests.outcomes compare` plays all of them."""

from dataclasses import replace
from pathlib import Path

from tests.outcomes import STORIES_RECORD, play, play_stories, record, recorded

SAMPLE = range(0, 200, 2)


def test_a_sample_of_the_schedules_ends_as_recorded() -> None:
    before = {one.name: one for one in recorded()}

    # After a change that is meant: `python -m tests.outcomes record`, and a line in the changelog for each kind.
    assert [line for number in SAMPLE for line in play(number).differs_from(before[str(number)])] == []


def test_every_story_ends_as_recorded() -> None:
    before = {one.name: one for one in recorded(STORIES_RECORD)}
    now = {one.name: one for one in play_stories()}

    assert now.keys() == before.keys()
    assert [f"{name}: {told}" for name, one in now.items() for told in one.differs_from(before[name])] == []


def test_a_difference_is_named_by_what_only_one_side_has() -> None:
    now = play(7)

    [told] = replace(now, restarts="job-00001=2:COMPLETED").differs_from(replace(now, restarts="job-00001=1:COMPLETED"))

    assert told == "restarts: before ['job-00001=1:COMPLETED'], now ['job-00001=2:COMPLETED']"


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    played = [play(number) for number in (0, 7)]

    record(played, tmp_path / "record.csv.xz")

    assert recorded(tmp_path / "record.csv.xz") == played
