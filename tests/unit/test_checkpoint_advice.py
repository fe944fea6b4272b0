"""The interval that loses least: numbers worked by hand, and what must hold for any."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeheal.api.job_views import AdviceView
from nodeheal.contract.job_spec import Checkpoints
from nodeheal.domain.jobs.checkpoint_advice import advice_of, daly_seconds, loss_share, mtbf_of, young_seconds
from tests.support.builders import NOW
from tests.support.goodput_runs import THREE_RUNS, at, job, run, where

writes = st.floats(min_value=0.1, max_value=3_600)
between = st.floats(min_value=60, max_value=1e8)


def test_young_by_hand() -> None:
    assert young_seconds(50, 10_000) == 1_000  # the root of 2 x 50 x 10,000


def test_daly_by_hand() -> None:
    # 1,000 x (1 + 0.05/3 + 0.0025/9) - 50
    assert daly_seconds(50, 10_000) == pytest.approx(966.944, abs=0.001)


def test_where_writing_takes_longer_than_two_failures_apart_daly_gives_the_time_between_them() -> None:
    assert daly_seconds(200, 100) == 100


@given(writes, st.floats(min_value=1e6, max_value=1e9))
def test_daly_becomes_young_where_a_write_is_short_against_the_time_between_failures(write: float, mtbf: float) -> None:
    assert daly_seconds(write, mtbf) == pytest.approx(young_seconds(write, mtbf), rel=2 * math.sqrt(write / mtbf))


@given(writes, between, between)
def test_the_rarer_failures_are_the_rarer_checkpoints_are(write: float, one: float, other: float) -> None:
    low, high = sorted((one, other))

    assert young_seconds(write, low) <= young_seconds(write, high)
    assert daly_seconds(write, low) <= daly_seconds(write, high) * (1 + 1e-9)


@given(writes, st.floats(min_value=3_600, max_value=1e7), st.floats(min_value=0.05, max_value=20))
def test_no_other_interval_loses_noticeably_less_than_dalys(write: float, mtbf: float, factor: float) -> None:
    if write > mtbf / 10:
        return
    best = daly_seconds(write, mtbf)

    assert loss_share(best, write, mtbf) <= loss_share(best * factor, write, mtbf) + 0.002


@given(st.floats(min_value=1, max_value=1e7), writes, between, st.floats(min_value=0, max_value=1e6))
def test_a_loss_is_a_share_and_grows_with_the_restart(every: float, write: float, mtbf: float, restart: float) -> None:
    without, with_restart = loss_share(every, write, mtbf), loss_share(every, write, mtbf, restart)

    assert 0 <= without <= with_restart <= 1


def test_the_loss_by_hand() -> None:
    # 10,000 x (exp(0.1050) - 1) = 1,107.106 s of time for 1,000 s of training
    assert loss_share(1_000, 50, 10_000) == pytest.approx(1 - 1_000 / 1_107.106, abs=1e-6)


@pytest.mark.parametrize(
    ("failures", "least", "most"), [(0, 0.0, 2.9957), (1, 0.05129, 4.74386), (10, 5.42541, 16.96222)]
)
def test_the_range_of_a_rate_is_garwoods(failures: int, least: float, most: float) -> None:
    known = mtbf_of(failures, 1_000.0)

    assert known.low_seconds == pytest.approx(1_000 / most, rel=1e-4)
    assert known.high_seconds == (pytest.approx(1_000 / least, rel=1e-3) if failures else None)


@settings(deadline=None)
@given(st.integers(min_value=0, max_value=200), st.floats(min_value=1, max_value=1e8))
def test_the_mean_lies_in_its_range(failures: int, running: float) -> None:
    known = mtbf_of(failures, running)

    assert known.low_seconds <= known.careful_seconds
    assert known.high_seconds is None or known.careful_seconds <= known.high_seconds


def test_many_failures_are_counted_in_a_moment() -> None:
    known = mtbf_of(5_000, 5_000.0)

    assert known.low_seconds == pytest.approx(1, rel=0.05)


def test_before_the_first_restart_none_is_counted_and_that_is_said() -> None:
    advice = advice_of(job(checkpoints=where()), [run(1, 0, 100, None)], (), at(10_000))

    assert advice.restart_seconds is None
    assert "no restart was measured yet, and none is counted" in advice.lines[1]
    assert "a restart 0 s" not in " ".join(advice.lines)


def test_a_jobs_advice_says_what_it_rests_on() -> None:
    # 2 failures in 9,000 s: one every 4,500. Daly: 670.8 x (1 + 0.0745/3 + 0.0056/9) - 50 = 638
    advice = advice_of(job(checkpoints=where()), THREE_RUNS, (), at(10_100))

    assert advice.mtbf is not None
    assert (advice.mtbf.failures, advice.mtbf.seconds) == (2, 4_500)
    assert advice.restart_seconds == pytest.approx((300 + 100 + 100 + 100) / 2)
    assert advice.daly_seconds == pytest.approx(637.9, abs=0.1)
    assert advice.current_loss_share is not None
    assert advice.daly_loss_share is not None
    saved = (advice.current_loss_share - advice.daly_loss_share) * 8 * 24
    assert advice.saved_node_hours_a_day == pytest.approx(saved)
    assert len(advice.lines) == 3
    assert advice.lines[0].startswith("2 failures in 2 h 30 min of running: one every 1 h 15 min (")
    assert advice.lines[0].endswith("the range is wide)")
    assert "write a checkpoint every 10 min 38 s (Daly's formula; Young's gives 11 min 11 s)" in advice.lines[1]
    assert "node-hours a day" in advice.lines[2]


def test_without_a_failure_the_low_end_is_assumed() -> None:
    advice = advice_of(job(checkpoints=where()), (run(1, 0, 0, None),), (), at(29_957))

    assert advice.mtbf is not None
    assert advice.mtbf.seconds is None
    assert advice.daly_seconds == pytest.approx(daly_seconds(50, 10_000), rel=1e-3)
    assert "2 h 46 min or more between failures (90 % confidence)" in advice.lines[0]


def test_an_interval_that_is_good_is_left_alone() -> None:
    advice = advice_of(job(checkpoints=where(every_seconds=650)), THREE_RUNS, (), at(10_100))

    assert advice.lines[-1].endswith("hardly more")


@pytest.mark.parametrize("checkpoints", [None, where(write_seconds=None)])
def test_what_is_missing_is_named(checkpoints: Checkpoints | None) -> None:
    advice = advice_of(job(checkpoints=checkpoints), THREE_RUNS, (), at(10_100))

    assert advice.daly_seconds is None
    assert "checkpoints.write_seconds of job.yaml" in advice.lines[-1]


def test_a_job_that_has_not_run_gets_none() -> None:
    advice = advice_of(job(checkpoints=where()), (), (), NOW)

    assert advice.lines == ("no advice on the checkpoint interval: it has not run yet",)


def test_programs_get_the_same_numbers() -> None:
    advice = advice_of(job(checkpoints=where()), THREE_RUNS, (), at(10_100))

    told = json.loads(AdviceView.model_validate(advice, from_attributes=True).model_dump_json())

    assert told["mtbf"]["failures"] == 2
    assert told["current_seconds"] == 3_600
    assert told["account"]["ettr"] == pytest.approx(8_000 / 10_100)
    assert told["account"]["losses"]["down_seconds"] == 400
