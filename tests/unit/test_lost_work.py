"""What a restart loses is said as exactly as it is known, and no more exactly."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.job_spec import Checkpoints
from nodeheal.domain.jobs.job import Run
from nodeheal.domain.jobs.lost_work import lost_work_text, start_text, steps_lost
from tests.support.builders import NOW
from tests.support.goodput_runs import account, job, run

FIRST = run(1, 0, 100, 1_000)
AFTER = run(2, 1_200, 1_300, None, resumed_from="/c/30", resumed_step=30)


def said(first: Run, after: Run, **of_job: Any) -> str:
    return lost_work_text(job(**of_job), first, after)


def test_where_the_program_shows_its_steps_they_are_counted() -> None:
    assert steps_lost(replace(FIRST, last_step=37), AFTER) == 7
    assert said(replace(FIRST, last_step=37), AFTER) == "7 steps: it had taken step 37, and goes on from step 30"
    assert said(replace(FIRST, last_step=30), AFTER) == "0 steps: it had taken step 30, and goes on from step 30"


def test_a_checkpoint_that_is_newer_than_what_was_shown_loses_nothing() -> None:
    assert steps_lost(replace(FIRST, last_step=29), AFTER) == 0


@pytest.mark.parametrize("after", [replace(AFTER, resumed_step=None), AFTER], ids=["no step in its name", "not shown"])
def test_without_both_steps_it_is_the_time_since_the_checkpoint(after: Run) -> None:
    first = replace(FIRST, last_step=37 if after.resumed_step is None else None)

    told = said(first, replace(after, resumed_written_at=NOW + timedelta(seconds=280)))

    assert told == "what it had computed in 12 min, since that checkpoint was written"


def test_a_checkpoint_of_an_earlier_run_loses_all_of_this_one() -> None:
    before, after = run(2, 1_200, 1_300, 2_000), replace(AFTER, number=3, resumed_written_at=NOW)

    assert said(before, after) == "all that its run 2 had computed: no checkpoint of that run is whole"


def test_a_checkpoint_that_was_written_while_the_run_was_stopped_loses_little() -> None:
    asked_for = replace(AFTER, resumed_written_at=NOW + timedelta(seconds=1_001))

    assert said(FIRST, asked_for) == "probably little: that checkpoint was written while it was being stopped"


def test_a_clock_that_is_ahead_proves_nothing() -> None:
    ahead = replace(AFTER, resumed_written_at=NOW + timedelta(days=1))

    assert said(FIRST, ahead) == "what it had computed and not saved in a checkpoint"


def test_of_a_run_whose_end_nobody_has_seen_no_time_is_told() -> None:
    written = replace(AFTER, resumed_written_at=NOW + timedelta(seconds=280))

    assert said(replace(FIRST, ended_at=None), written) == "what it had computed and not saved in a checkpoint"


def test_what_the_file_promises_is_said_to_be_a_promise() -> None:
    told = said(FIRST, AFTER, checkpoints=Checkpoints(directory="/c", every_seconds=1_800))

    assert told.endswith("30 min of it at most, if it writes one as often as its file says")


def test_the_account_of_its_time_takes_the_steps_that_were_shown() -> None:
    known = account(replace(FIRST, last_step=40), AFTER, now=1_400)

    assert (known.runs[0].productive_seconds, known.runs[0].recomputed_seconds) == (675, 225)


@pytest.mark.parametrize(
    ("directory", "resumed", "words"),
    [
        ("/c", {"resumed_from": "/c/30", "resumed_step": 30}, "from checkpoint /c/30 (step 30)"),
        ("/c", {"resumed_from": "/c/last", "resumed_step": None}, "from checkpoint /c/last"),
        ("/c", {"resumed_from": "", "resumed_step": None}, "from its beginning, as no checkpoint was found"),
        (None, {"resumed_from": ""}, "from its beginning unless its program finds a checkpoint"),
    ],
)
def test_a_run_begins_at_a_checkpoint_only_where_one_was_found(
    directory: str | None, resumed: dict[str, Any], words: str
) -> None:
    where = Checkpoints(directory=directory) if directory else None

    assert start_text(replace(job(), checkpoints=where), replace(AFTER, **resumed)) == words
