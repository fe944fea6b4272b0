"""Functions of run_job die at each of their side effects, in the stories of jobs that the core ones do not come to.

Whoever calls them does what AWS does. Then the ranks that nobody watches end, the sweep passes, and nothing is left.
"""

import pytest

from tests.workflows.breaking_job import JobStory, told
from tests.workflows.breaks import breaks_of
from tests.workflows.job_stories import JOB_STORIES

A_HUMANS = {"Escalated", "Job workflow failed"}


@pytest.mark.parametrize("story", JOB_STORIES, ids=str)
def test_a_job_that_nothing_breaks_ends_as_it_should(story: JobStory) -> None:
    _, seen, wrong = told(story)

    assert (seen.end, wrong) == (story.end, [])


@pytest.mark.parametrize("story", JOB_STORIES, ids=str)
def test_wherever_a_function_of_a_job_breaks_nothing_is_harmed_doubled_or_left(story: JobStory) -> None:
    whole, _, _ = told(story)

    for injected_failure in breaks_of(story, whole.fuse.made):
        it, seen, wrong = told(story, injected_failure)

        assert wrong == [], f"{injected_failure}, {whole.fuse.made[injected_failure.call - 1]}"
        assert seen.end in {story.end, *story.may_end, *A_HUMANS}, (
            f"{injected_failure}, {whole.fuse.made[injected_failure.call - 1]}"
        )
        assert it.fuse.blown == [injected_failure], f"{injected_failure}, {whole.fuse.made[injected_failure.call - 1]}"
