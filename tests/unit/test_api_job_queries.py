"""The queries of nodeheal.api about jobs."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.api import job_queries
from nodeheal.api.job_views import JobView
from nodeheal.contract.vocabulary import ActKind, IncidentState, JobState, Trouble
from nodeheal.domain.jobs.job import Run
from nodeheal.domain.recovery.incident import Incident
from nodeheal.ports import Ports
from tests.support.builders import ACT, NOW, FrozenClock, memory_ports, node, xid
from tests.support.jobs import ecs_job


@pytest.fixture
def ports() -> Ports:
    """A pool with a job that was submitted two hours ago."""
    clock = FrozenClock()
    ports = memory_ports(clock)
    ports.nodes.save(node("mi-a"))
    ports.jobs.save(replace(ecs_job("llama", "demo", "training", "trainer:1", "trainer", 2), submitted_at=NOW))
    clock.advance(7_200)
    return ports


def shown(ports: Ports) -> JobView:
    return job_queries.job("llama", ports, lambda: ACT)


def test_a_job_is_shown_with_its_own_incidents_and_the_one_that_is_at_work(ports: Ports) -> None:
    heads: Any = ports.incidents
    for number, (job_id, state) in enumerate(
        [("llama", IncidentState.WAITING), ("llama", IncidentState.CLOSED), ("another", IncidentState.OPEN)]
    ):
        opened = NOW + timedelta(seconds=number)
        heads.incidents[f"inc-{number}"] = Incident(
            f"inc-{number}", "mi-a", "demo", xid(), opened, "policy", state=state, job_id=job_id
        )

    view = shown(ports)

    assert [row.incident for row in view.incidents] == ["inc-1", "inc-0"]
    assert view.waits_for == "incident inc-0 on mi-a: waiting"


def test_restarts_of_an_earlier_submission_are_not_counted(ports: Ports) -> None:
    for number, minutes in ((1, -60), (2, 60)):
        ports.jobs.save_run(Run("llama", number, NOW + timedelta(minutes=minutes), f"inc-{number}/3", ()))

    assert shown(ports).restarts.total == 1


@pytest.mark.parametrize(
    ("changes", "acts"),
    [
        ({"trouble": Trouble.PROGRAM_FAILS}, (ActKind.RESTART_JOB, ActKind.STOP_JOB)),
        ({"trouble": Trouble.CANNOT_START}, (ActKind.STOP_JOB,)),
        ({"stop_wanted": "ada: no"}, ()),
    ],
)
def test_a_job_that_is_down_says_what_answers_that(
    ports: Ports, changes: dict[str, Any], acts: tuple[ActKind, ...]
) -> None:
    stored = ports.jobs.get("llama")
    assert stored is not None
    ports.jobs.save(replace(stored, state=JobState.FAILED, **changes))

    view = shown(ports)

    assert view.acts == acts
    assert bool(view.need) is bool(acts)
