"""One number for how good the fleet is, and the parts that it is made of."""

import pytest

from nodeheal.domain.fleet.pool import AcceleratorCount, RunningJobs, count_job
from nodeheal.domain.review.fleet_good import FleetGood

TRAINS = count_job(16, is_shown=True, has_findings=False)
HANGS = count_job(8, is_shown=True, has_findings=True)
SHOWS_NOTHING = count_job(8, is_shown=False, has_findings=False)
HAS_NO_FIRST_STEP = count_job(8, is_shown=False, has_findings=True)


def test_the_number_is_the_product_of_its_parts() -> None:
    good = FleetGood(AcceleratorCount(40, 32), TRAINS + HANGS + SHOWS_NOTHING)

    assert (good.in_service, good.as_usual, good.percent) == (80.0, 75.0, 60.0)


def test_a_job_without_steps_is_as_usual_and_named_unless_it_has_a_finding() -> None:
    assert (
        RunningJobs(shown=1, with_findings=1, accelerators=32, as_usual=24, not_shown=8)
        == TRAINS + SHOWS_NOTHING + HAS_NO_FIRST_STEP
    )


def test_where_no_job_runs_the_nodes_alone_decide() -> None:
    good = FleetGood(AcceleratorCount(40, 32), RunningJobs())

    assert (good.as_usual, good.percent) == (None, 80.0)


@pytest.mark.parametrize(
    "good",
    [
        FleetGood(AcceleratorCount(0, 0), TRAINS),
        FleetGood(None, TRAINS),
        FleetGood(AcceleratorCount(8, 8), None),
        FleetGood(AcceleratorCount(8, 8), TRAINS) + FleetGood(None, TRAINS),
        FleetGood(AcceleratorCount(8, 8), TRAINS) + FleetGood(AcceleratorCount(8, 8), None),
    ],
)
def test_nothing_is_said_where_a_part_is_not_known(good: FleetGood) -> None:
    assert good.percent is None


def test_pools_count_by_their_accelerators() -> None:
    good = FleetGood(AcceleratorCount(90, 90), TRAINS) + FleetGood(AcceleratorCount(10, 0), RunningJobs())

    assert (good.percent, good.jobs) == (90.0, TRAINS)


def test_it_is_never_whole_while_one_accelerator_is_out_of_service() -> None:
    assert FleetGood(AcceleratorCount(100_000, 99_999)).percent == 99.9
