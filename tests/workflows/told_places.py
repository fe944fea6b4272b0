"""At which places the crash stories break functions: all that they come to in the functions that they are about."""

from functools import cache
from typing import Any

from tests.support.fuse import Fuse
from tests.support.places import Place, place_called
from tests.workflows.crashing_cluster import CrashingCluster, CrashingNews, CrashingSubmission
from tests.workflows.job_stories import JOB_STORIES
from tests.workflows.rare_stories import RARE_STORIES
from tests.workflows.stories import STORIES


@cache
def places_of_stories() -> frozenset[Place]:
    """Of all of them."""
    found: set[Place] = set()
    for story in (*STORIES, *RARE_STORIES):
        it = story.make(Fuse(writes_only=True))
        _listen(it.fuse, story.only, found)
        story.tell(it)
        it.faults()
    for job in (CrashingCluster(Fuse(writes_only=True)), CrashingNews(Fuse(writes_only=True))):
        _listen(job.fuse, (), found)
        job.submit()
    for of_job in JOB_STORIES:
        breaking = of_job.make(Fuse(writes_only=True))
        _listen(breaking.fuse, of_job.only, found)
        breaking.submit()
    submission = CrashingSubmission(Fuse(writes_only=True))
    _listen(submission.fuse, (), found)
    submission.submits_twice()
    return frozenset(found)


def _listen(fuse: Fuse, only: tuple[str, ...], found: set[Place]) -> None:
    watch = fuse.watch

    def heard(call: str, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        place = place_called(call)
        if place is not None and (not only or fuse.function in only):
            found.add(place)
        if watch is not None:
            watch(call, given, named)

    fuse.watch = heard
