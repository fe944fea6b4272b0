"""Chance stays within its bounds, and is chance."""

from nodeheal.agent.runtime.jitter import between


def test_chance_stays_within_its_bounds_and_reaches_all_of_them() -> None:
    drawn = [between(0.5, 1.0) for _ in range(2000)]

    assert all(0.5 <= one < 1.0 for one in drawn)
    assert len(set(drawn)) > 1990
    assert min(drawn) < 0.52
    assert max(drawn) > 0.98
    assert between(3.0, 3.0) == 3.0
