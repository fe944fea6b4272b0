"""What a person has done with a job: what is recorded, and what is refused without a trace."""

import re
from dataclasses import replace
from typing import Any

import pytest

from nodeheal.adapters.memory.task_definitions import MemoryTaskDefinitions
from nodeheal.contract.acts import JobAct, JobRecorded, RestartJob, StopJob, SubmitJob
from nodeheal.contract.job_spec import JobSpec
from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.vocabulary import JobState
from nodeheal.domain.errors import Conflict, NotFound
from nodeheal.domain.jobs.task_definition import Container, TaskDefinition
from nodeheal.operations.steps import await_nodes
from nodeheal.services.operators.ask_to_stop import ask_to_stop
from nodeheal.services.steps import save_node
from tests.support.acts import does
from tests.support.builders import ACT, NOW, FrozenClock, behave_as, memory_ports, node, stored_job, stored_node

SPEC = {"name": "llama", "pool": "demo", "nodes": 2, "image": "llama:3"}
ROLE = "arn:aws:iam::111122223333:role/trainer"


class World:
    """Two nodes, and what the control plane leaves behind."""

    def __init__(self) -> None:
        self.ports = memory_ports(FrozenClock())
        for name in ("mi-a", "mi-b"):
            self.ports.nodes.save(node(name, accelerators=8))
        trainer = TaskDefinition("trainer:7", (Container("trainer"),))
        self.definitions = MemoryTaskDefinitions({"trainer": trainer, "trainer:7": trainer}, task_roles=(ROLE,))
        behave_as(self.ports, definitions=self.definitions)

    def asks(self, act: JobAct) -> JobRecorded:
        done = does(act, self.ports, ACT)
        assert isinstance(done, JobRecorded)
        return done

    def submits(self, *, is_idempotent: bool = False, **spec: Any) -> JobRecorded:
        asked = {name: value for name, value in {**SPEC, **spec}.items() if value is not None}
        return self.asks(SubmitJob(spec=JobSpec.model_validate(asked), is_idempotent=is_idempotent))

    @property
    def is_untouched(self) -> bool:
        started: Any = self.ports.workflows
        return not (self.definitions.registered or started.jobs_started or self.ports.jobs.get("llama"))


@pytest.fixture
def world() -> World:
    return World()


def test_a_submission_is_recorded_with_its_definition_and_started(world: World) -> None:
    answer = world.submits()

    assert (answer.job, answer.submission, answer.is_new) == ("llama", 1, True)
    assert answer.placement is not None
    assert answer.placement.nodes == ("mi-a", "mi-b")
    assert stored_job(world.ports, "llama").task_definition == "nodeheal-llama:1"
    assert world.ports.workflows.jobs_started == [("llama", 1)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("spec", "error", "text"),
    [
        ({"pool": "nowhere"}, ValueError, "pool: nowhere has no node"),
        ({"nodes": 9}, ValueError, "nodes: llama wants 9 nodes"),
        ({"owner": "nobody"}, ValueError, "nobody"),
        ({"task_role": "arn:aws:iam::111122223333:role/admin"}, ValueError, "task_role: "),
        ({"image": None, "task_definition": "other"}, NotFound, "task_definition: there is no other"),
    ],
)
def test_what_can_never_run_is_refused_by_name(world: World, spec: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        world.submits(**spec)

    assert world.is_untouched


def test_a_job_is_given_the_task_roles_of_the_settings_only(world: World) -> None:
    assert world.submits(task_role=ROLE).is_new


def test_a_name_is_taken_once_and_a_job_that_lives_is_not_started_again(world: World) -> None:
    world.submits()

    with pytest.raises(Conflict):
        world.submits()
    with pytest.raises(Conflict):
        world.asks(RestartJob(job="llama"))
    with pytest.raises(NotFound):
        world.asks(RestartJob(job="x"))
    assert len(world.definitions.registered) == 1


def test_an_idempotent_submission_says_in_what_the_recorded_job_differs(world: World) -> None:
    world.submits()

    answer = world.submits(nodes=1, is_idempotent=True)

    assert (answer.is_new, answer.differs_in) == (False, ("nodes",))
    assert stored_job(world.ports, "llama").nodes == 2


def test_a_stop_is_recorded_in_one_line_with_its_reason(world: World) -> None:
    world.submits()

    world.asks(StopJob(job="llama", why="wrong\n\ndata"))

    assert stored_job(world.ports, "llama").stop_wanted == "ada: wrong data"
    with pytest.raises(NotFound):
        world.asks(StopJob(job="x", why="no"))


def test_a_stop_wakes_the_workflow_each_time(world: World) -> None:
    world.submits()
    save_node(world.ports, stored_node(world.ports, "mi-a"), claimed_by="another")
    last = {"step": "CHOOSE", "job_id": "llama", "outcome": "REFUSED", "then": "AWAIT_NODES", "reason": "so"}
    known = {
        "job_id": "llama",
        "submission": 1,
        "round": 0,
        "last": {**last, "finished_at": NOW},
        "task_token": "token",
    }
    await_nodes(JobRequest.model_validate(known), world.ports, ACT)
    ask_to_stop("llama", "ada: enough", world.ports)  # by a call that died before it woke the workflow
    resumed: dict[str, Any] = world.ports.workflows.resumed  # type: ignore[attr-defined]
    assert resumed == {}

    world.asks(StopJob(job="llama", why="enough"))

    assert set(resumed) == {"token"}


def test_a_failed_job_that_is_stopped_stays_failed(world: World) -> None:
    world.submits()
    job = stored_job(world.ports, "llama")
    world.ports.jobs.save(replace(job, state=JobState.FAILED))

    world.asks(StopJob(job="llama", why="given up"))

    assert stored_job(world.ports, "llama").state is JobState.FAILED
