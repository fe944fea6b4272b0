"""The simulation behind the figures of slow jobs: it finds what is slow, and only that."""

import pytest

from bench.slow_jobs import Slowdown, announcements
from nodeheal.contract.vocabulary import JobFindingKind


def test_a_job_that_trains_well_is_told_nothing() -> None:
    assert list(announcements(7, 3.0, 0.03)) == []


@pytest.mark.parametrize(
    ("slowdown", "kind"),
    [
        (Slowdown(60, 1.15), JobFindingKind.SLOWER),
        (Slowdown(60, 1.5, of_one_rank=True), JobFindingKind.SLOW_RANK),
    ],
)
def test_a_slow_job_is_found_after_it_has_become_slow_and_within_a_quarter_of_an_hour(
    slowdown: Slowdown, kind: JobFindingKind
) -> None:
    [(minute, noted)] = announcements(7, 2.0, 0.03, slowdown)

    assert noted.finding.kind is kind
    assert slowdown.minute < minute <= slowdown.minute + 15
    assert [suspect.node_id for suspect in noted.finding.suspects] == (["node-0"] if slowdown.of_one_rank else [])
