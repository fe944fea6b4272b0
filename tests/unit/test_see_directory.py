"""Each node of a job is asked what it sees of the shared directory."""

from typing import Any

import pytest

from nodeheal.contract.health_event import Sight
from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.vocabulary import JobStep, Next, Outcome
from nodeheal.ports import Ports
from nodeheal.services.jobs import see_directory
from tests.support.builders import NOW
from tests.support.incident_steps import A
from tests.support.three_nodes import three_nodes

__all__ = ["three_nodes"]  # a fixture


SEEN = Sight(file_system="nfs4", source="fs-1:/", inode=64, device=50)


@pytest.mark.parametrize(
    ("second", "first", "told"),
    [
        (None, SEEN, SEEN),
        ("it hangs", SEEN, SEEN),
        ("it hangs", "too old", "it hangs"),
        (None, None, see_directory._SILENT),
    ],
)
def test_the_last_time_that_a_node_could_see_the_directory_counts(
    three_nodes: Ports, monkeypatch: pytest.MonkeyPatch, second: Any, first: Any, told: Any
) -> None:
    known: dict[str, Any] = {"step": JobStep.CHOOSE, "job_id": "llama", "outcome": Outcome.DONE, "finished_at": NOW}
    last = JobResult(**known, then=Next.LAUNCH, reason="so", nodes=(A,))
    request = JobRequest(job_id="llama", submission=1, round=0, searches=2, last=last)
    answers = iter([second, first])
    monkeypatch.setattr(see_directory, "_look", lambda *_: None)
    monkeypatch.setattr(see_directory, "sight_of", lambda *_: next(answers))

    assert see_directory._sights(request, three_nodes) == {A: told}
