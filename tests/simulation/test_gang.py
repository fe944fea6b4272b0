"""What a gang's time was spent on, where a checkpoint takes time to write."""

import pytest

from nodeheal.simulation.gang import GangProgress
from nodeheal.simulation.setting import Work

WORK = Work(checkpoint_seconds=100, write_seconds=10)


def gang(total: float = 1_000.0) -> GangProgress:
    """One that has run since 50."""
    return GangProgress("job", total, began_at=0.0, running_since=50.0, first_ran_at=50.0)


def test_a_checkpoint_counts_when_it_has_been_written() -> None:
    assert gang().progress(50 + 109, WORK) == 0
    assert gang().progress(50 + 110, WORK) == 100
    assert gang().progress(50 + 219, WORK) == 100


def test_the_last_step_needs_no_checkpoint() -> None:
    assert gang(total=200).left_seconds(WORK) == 210
    assert gang(total=250).left_seconds(WORK) == 270
    assert gang(total=250).progress(50 + 270, WORK) == 250


def test_what_no_checkpoint_holds_is_lost_when_a_rank_ends() -> None:
    it = gang()

    it.leave(50 + 230, WORK)

    assert it.account(400, WORK) == {
        "productive": 200,
        "recomputed": pytest.approx(10),
        "writing": 20,
        "waiting": 50,
        "down": 120,
    }


@pytest.mark.parametrize(("now", "training", "writing"), [(230.0, 210.0, 20.0), (325.0, 300.0, 25.0)])
def test_what_goes_on_is_not_lost_yet(now: float, training: float, writing: float) -> None:
    account = gang().so_far(50 + now, WORK)

    assert (account["productive"], account["writing"], account["recomputed"]) == (training, writing, 0)
