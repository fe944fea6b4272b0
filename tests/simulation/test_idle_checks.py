"""Random schedules in pools that diagnose their free nodes every hour."""

from dataclasses import replace

import pytest

from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.simulation.runner import run_pool
from nodeheal.simulation.schedules import schedule
from nodeheal.simulation.setting import Setting


def hourly(number: int, scheduler: SchedulerKind) -> Setting:
    drawn = schedule(number, scheduler)
    pool = drawn.rules.default_pool.model_copy(update={"idle_check_hours": 1})
    return replace(drawn, policy=drawn.rules.model_copy(update={"default_pool": pool}))


@pytest.mark.parametrize(
    ("number", "scheduler"),
    [
        *((number, SchedulerKind.ECS) for number in range(8)),
        *((number, SchedulerKind.SLURM) for number in range(8)),
        *((number, SchedulerKind.KUBERNETES) for number in range(8)),
        # In these, work of others begins between the look and the drain.
        (11_000_344, SchedulerKind.SLURM),
        (11_000_077, SchedulerKind.KUBERNETES),
        (11_000_261, SchedulerKind.KUBERNETES),
    ],
)
def test_whatever_happens_meanwhile_nothing_is_broken(number: int, scheduler: SchedulerKind) -> None:
    report = run_pool(hourly(number, scheduler))

    assert report.violations == []


def test_free_nodes_are_diagnosed_in_them() -> None:
    with_checks = run_pool(hourly(11_000_077, SchedulerKind.KUBERNETES))

    without = run_pool(schedule(11_000_077, SchedulerKind.KUBERNETES))
    assert with_checks.incidents > without.incidents
