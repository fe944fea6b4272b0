"""A job's time, all of it accounted for: worked by hand, and as a law."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodeheal.contract.job_spec import Checkpoints
from nodeheal.contract.vocabulary import JobState
from nodeheal.domain.recovery.incident import Incident
from tests.support.builders import NOW, xid
from tests.support.goodput_runs import THREE_RUNS, account, at, job, run


def test_every_second_has_its_cause() -> None:
    known = account(*THREE_RUNS)

    assert known.wall_seconds == 10_100
    assert known.productive_seconds == 8_000
    losses = known.losses
    assert (losses.waiting_seconds, losses.preflight_seconds, losses.restart_seconds) == (100, 300, 300)
    assert (losses.recomputed_seconds, losses.down_seconds) == (1_000, 400)
    assert known.ettr == pytest.approx(8_000 / 10_100)
    assert known.goodput == pytest.approx(8_000 / 10_000)


def test_people_read_the_ratio_and_the_losses_the_largest_first() -> None:
    assert account(*THREE_RUNS).words == (
        "effective training time (ETTR) 79%: it trained 2 h 13 min of the 2 h 48 min since submission;"
        " lost: 16 min 40 s computing steps again, 6 min 40 s down, 5 min starting its ranks,"
        " 5 min in checks before the start, 1 min 40 s waiting for nodes"
    )
    assert account(now=0).words == ""


def test_each_run_has_its_own_account() -> None:
    first, second, third = account(*THREE_RUNS).runs

    assert (first.productive_seconds, first.recomputed_seconds, first.down_seconds) == (3_000, 1_000, 300)
    assert (second.productive_seconds, second.recomputed_seconds, second.down_seconds) == (3_000, 0, 100)
    assert (third.productive_seconds, third.down_seconds, third.has_failed) == (2_000, 0, False)


def test_failures_are_counted_over_the_time_in_which_all_ranks_ran() -> None:
    known = account(*THREE_RUNS)

    assert known.failures == 2
    assert known.mtbf_seconds == (4_000 + 3_000 + 2_000) / 2


def test_a_job_that_was_given_up_was_down_until_then_and_one_that_ended_otherwise_was_not() -> None:
    last = run(1, 0, 0, 500)
    given_up = Incident("inc-1", "mi-1", "demo", xid(), at(500), "policy-1", closed_at=at(900))
    failed = job(state=JobState.FAILED, left_down_by="inc-1")

    known = account(last, of=failed, incidents=(given_up,), now=5_000)
    other = account(last, of=replace(failed, left_down_by=None), incidents=(given_up,), now=5_000)

    assert (known.wall_seconds, known.losses.down_seconds) == (900, 400)
    assert other.losses.down_seconds == 0


def test_a_run_whose_successor_begins_where_it_began_was_for_nothing() -> None:
    known = account(run(1, 0, 0, 500), run(2, 600, 600, None, resumed_step=0, resumed_from="/c/0"), now=700)

    assert (known.runs[0].productive_seconds, known.runs[0].recomputed_seconds) == (0, 500)


def test_where_no_step_is_known_half_an_interval_is_reckoned() -> None:
    where = Checkpoints(directory="/c", every_seconds=1_000)

    known = account(run(1, 0, 0, 5_000), run(2, 5_100, 5_100, None), now=6_000, of=job(checkpoints=where))

    assert known.losses.recomputed_seconds == 500


def test_a_job_that_still_waits_has_lost_all_of_it_to_waiting() -> None:
    known = account(now=60)

    assert (known.losses.waiting_seconds, known.ettr, known.goodput) == (60, 0, None)


def test_a_job_that_is_down_goes_on_losing() -> None:
    known = account(run(1, 0, 0, 500), now=800, of=job(state=JobState.STOPPED))

    assert (known.losses.down_seconds, known.failures) == (300, 1)


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.CANCELLED])
def test_the_account_ends_with_the_job(state: JobState) -> None:
    known = account(run(1, 0, 0, 500), now=90_000, of=job(state=state))

    assert (known.wall_seconds, known.losses.down_seconds, known.failures) == (500, 0, 0)


def test_a_run_that_never_ran_is_all_restart() -> None:
    known = account(run(1, 0, None, 400), run(2, 500, 520, None), now=600)

    assert (known.runs[0].restart_seconds, known.runs[0].running_seconds) == (400, 0)


def test_runs_of_an_earlier_submission_do_not_count() -> None:
    known = account(*THREE_RUNS, of=job(submitted_at=at(7_950), chosen_at=at(7_960)))

    assert [one.number for one in known.runs] == [3]


def test_the_fault_that_ended_a_run_is_named() -> None:
    incident = Incident("inc-1", "mi-1", "demo", xid(79), NOW, "p")

    assert account(*THREE_RUNS, incidents=(incident,)).runs[0].fault == "xid 79"


times = st.floats(min_value=0, max_value=10_000, allow_nan=False)


@given(
    st.lists(st.tuples(times, st.none() | times, times, st.none() | st.integers(0, 50)), max_size=5),
    st.floats(min_value=0, max_value=60_000),
    st.sampled_from(list(JobState)),
    st.none() | st.integers(1, 5_000),
)
@example(spans=[(0.0, 0.0, 1.0, None), (0.0, 0.0, 1.08984375, None)], now=0.0, state=JobState.SUBMITTED, every=None)
def test_what_is_accounted_for_is_all_of_the_time_whatever_the_runs(
    spans: list[tuple[float, float | None, float, int | None]], now: float, state: JobState, every: int | None
) -> None:
    runs, clock = [], 0.0
    for number, (gap, starting, running, step) in enumerate(spans, 1):
        started = clock + gap
        since = None if starting is None else started + starting
        clock = (since if since is not None else started) + running
        runs.append(run(number, started, since, clock, resumed_step=step, resumed_from="/c" if step else ""))

    where = Checkpoints(directory="/c", every_seconds=every)
    known = account(*runs, now=max(now, clock), of=job(state=state, checkpoints=where))

    assert known.productive_seconds + known.losses.total_seconds == pytest.approx(known.wall_seconds, abs=0.01)
    assert known.ettr is None or 0 <= known.ettr <= 1
    assert known.goodput is None or (known.ettr or 0) - 1e-9 <= known.goodput <= 1
    parts = [known.productive_seconds, *known.losses.__dict__.values()]
    assert all(part >= 0 for part in parts)
