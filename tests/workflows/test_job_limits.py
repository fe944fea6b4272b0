"""A job that is restarted too often, or to no end, is handed to a human: walked from its submission to its end."""

from dataclasses import replace

import pytest

from nodeheal.contract.vocabulary import Ending, JobState
from nodeheal.domain.jobs.job import FoundCheckpoint
from nodeheal.services.jobs.submit_job import restart_job
from tests.support.job_cluster import JobCluster, fails, finishes, is_recovered


def incidents(it: JobCluster) -> list[Ending | None]:
    return [it.ports.incidents.history(name).incident.ending for name in it.ports.workflows.started]  # type: ignore[attr-defined]


@pytest.mark.parametrize("limits", [{"in_window": 1}, {"total": 1}])
def test_restarts_beyond_the_jobs_own_limit_hand_it_over(limits: dict[str, int]) -> None:
    it = JobCluster(restarts=limits)
    it.happenings = [fails(), is_recovered, fails(), is_recovered]

    seen = it.submit()

    assert seen.end == "Escalated"
    assert f"restarts.{next(iter(limits))}" in it.job.summary
    assert (it.run.number, incidents(it)) == (2, [Ending.RECOVERED, Ending.HANDED_TO_A_HUMAN])
    assert it.is_clean


def test_submitted_again_it_begins_to_count_anew() -> None:
    it = JobCluster(restarts={"total": 1})
    it.happenings = [fails(), is_recovered, fails(), is_recovered]
    it.submit()
    it.clock.advance(60)

    again = restart_job("llama", it.ports)
    it.happenings = [fails(), is_recovered, finishes]
    seen = it.walk_job(again.submission)

    assert seen.end == "Completed"


def test_a_job_that_gets_no_further_is_handed_over() -> None:
    it = JobCluster(restarts={"without_progress": 2})

    def finds_the_same_one(cluster: JobCluster) -> None:
        cluster.ports.jobs.save(replace(cluster.job, found=FoundCheckpoint("/fsx/llama/step-5", 5, cluster.clock())))

    again = [fails(), is_recovered]
    it.happenings = [finds_the_same_one, *again, *again, *again]

    seen = it.submit()

    assert seen.end == "Escalated"
    assert "the last 2 runs have begun at /fsx/llama/step-5 (step 5)" in it.job.summary
    assert (it.run.number, it.job.state) == (3, JobState.FAILED)
    assert it.is_clean
