"""What a person may ask of a job, as hostile input: what is refused, with which code, and that nothing is done then."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from lambdas import composition
from lambdas import request_job as function
from nodeheal.adapters.memory.task_definitions import MemoryTaskDefinitions
from nodeheal.contract.job_acts import ACT_BYTES, JOB_ANSWER, JobAnswer, JobRecorded, JobRefused, parse_job_act
from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.vocabulary import JobRefusal, JobState
from nodeheal.domain.jobs.task_definition import Container, TaskDefinition
from nodeheal.operations.steps import await_nodes
from nodeheal.services.operators.ask_to_stop import ask_to_stop
from nodeheal.services.steps import save_node
from tests.unit.builders import ACT, NOW, FrozenClock, memory_ports, node, stored_job, stored_node

SPEC = {"name": "llama", "pool": "demo", "nodes": 2, "image": "llama:3"}
ROLE = "arn:aws:iam::111122223333:role/trainer"


class World:
    """Two nodes, the deployed function, and what it leaves behind."""

    def __init__(self) -> None:
        self.ports = memory_ports(FrozenClock())
        for name in ("mi-a", "mi-b"):
            self.ports.nodes.save(node(name, accelerators=8))
        trainer = TaskDefinition("trainer:7", (Container("trainer"),))
        self.definitions = MemoryTaskDefinitions({"trainer": trainer, "trainer:7": trainer}, task_roles=(ROLE,))

    def asks(self, **event: Any) -> JobAnswer:
        return JOB_ANSWER.validate_python(function.handler(event, None))

    def submits(self, **spec: Any) -> JobAnswer:
        return self.asks(act="SUBMIT", spec={**SPEC, **spec})

    @property
    def is_untouched(self) -> bool:
        started: Any = self.ports.workflows
        return not (self.definitions.registered or started.jobs_started or self.ports.jobs.get("llama"))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    it = World()
    monkeypatch.setattr(function, "ports", lambda: it.ports)
    monkeypatch.setattr(function, "policy", lambda: ACT)
    monkeypatch.setattr(function, "task_definitions", lambda kind: it.definitions)
    yield it


def test_a_submission_is_recorded_with_its_definition_and_started(world: World) -> None:
    answer = world.submits()

    assert isinstance(answer, JobRecorded)
    assert (answer.name, answer.submission, answer.is_new) == ("llama", 1, True)
    assert answer.placement is not None
    assert answer.placement.nodes == ("mi-a", "mi-b")
    assert stored_job(world.ports, "llama").task_definition == "nodeheal-llama:1"
    assert world.ports.workflows.jobs_started == [("llama", 1)]  # type: ignore[attr-defined]


NESTED: Any = {}
for _ in range(20_000):
    NESTED = {"spec": NESTED}


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"act": "PUT_ITEM", "name": "llama"},
        {"act": "SUBMIT"},
        {"act": "SUBMIT", "spec": {**SPEC, "state": "RUNNING"}},
        {"act": "SUBMIT", "spec": {**SPEC, "current_run": 3}},
        {"act": "SUBMIT", "spec": {**SPEC, "nodes": "2"}},
        {"act": "SUBMIT", "spec": {**SPEC, "name": "llama\nNeeded: click http://x.example"}},
        {"act": "SUBMIT", "spec": SPEC, "task_token": "t"},
        {"act": "SUBMIT", "spec": {**SPEC, "environment": {"A": "x" * ACT_BYTES}}},
        {"act": "SUBMIT", **NESTED},
        {"act": "SUBMIT", "spec": {**SPEC, "command": ["\ud800"]}},
        {"act": "STOP", "name": "llama", "why": ""},
        {"act": "STOP", "name": "llama", "why": "x" * 501},
        {"act": "STOP", "name": "job#llama", "why": "x"},
        {"act": "RESTART", "name": "llama", "submission": 7},
        {"act": "RESTART", "name": "x" * 200},
    ],
    ids=lambda event: f"{event.get('act')}-{len(event)}",
)
def test_what_is_no_request_is_refused_as_invalid_and_nothing_is_done(world: World, event: Any) -> None:
    answer = world.asks(**event)

    assert isinstance(answer, JobRefused)
    assert answer.code is JobRefusal.INVALID
    assert answer.text
    assert world.is_untouched


def test_the_refusal_names_the_field(world: World) -> None:
    answer = world.submits(nodes=0)

    assert isinstance(answer, JobRefused)
    assert "nodes" in answer.text


@pytest.mark.parametrize(
    ("spec", "code", "told"),
    [
        ({"pool": "nowhere"}, JobRefusal.UNFIT, "pool: nowhere has no node"),
        ({"nodes": 9}, JobRefusal.UNFIT, "nodes: llama wants 9 nodes"),
        ({"owner": "nobody"}, JobRefusal.UNFIT, "nobody"),
        ({"task_role": "arn:aws:iam::111122223333:role/admin"}, JobRefusal.UNFIT, "task_role: "),
        ({"image": None, "task_definition": "other"}, JobRefusal.NOT_FOUND, "task_definition: there is no other"),
    ],
)
def test_what_can_never_run_is_refused_by_name(world: World, spec: Any, code: JobRefusal, told: str) -> None:
    answer = world.submits(**spec)

    assert isinstance(answer, JobRefused)
    assert (answer.code, told in answer.text) == (code, True), answer
    assert world.is_untouched


def test_a_job_is_given_the_task_roles_of_the_settings_only(world: World) -> None:
    assert isinstance(world.submits(task_role=ROLE), JobRecorded)


def test_a_name_is_taken_once_and_a_job_that_lives_is_not_started_again(world: World) -> None:
    world.submits()

    twice, again, unknown = (
        world.submits(),
        world.asks(act="RESTART", name="llama"),
        world.asks(act="RESTART", name="x"),
    )

    assert [a.code for a in (twice, again, unknown) if isinstance(a, JobRefused)] == [
        JobRefusal.CONFLICT,
        JobRefusal.CONFLICT,
        JobRefusal.NOT_FOUND,
    ]
    assert len(world.definitions.registered) == 1


def test_an_idempotent_submission_says_in_what_the_recorded_job_differs(world: World) -> None:
    world.submits()

    answer = world.asks(act="SUBMIT", spec={**SPEC, "nodes": 1}, is_idempotent=True)

    assert isinstance(answer, JobRecorded)
    assert (answer.is_new, answer.differs_in) == (False, ("nodes",))
    assert stored_job(world.ports, "llama").nodes == 2


def test_a_stop_is_recorded_in_one_line_with_its_reason(world: World) -> None:
    world.submits()

    answer = world.asks(act="STOP", name="llama", why="ada: wrong\n\ndata")

    assert isinstance(answer, JobRecorded)
    assert stored_job(world.ports, "llama").stop_wanted == "ada: wrong data"
    assert isinstance(world.asks(act="STOP", name="x", why="ada: no"), JobRefused)


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

    answer = world.asks(act="STOP", name="llama", why="ada: enough")

    assert isinstance(answer, JobRecorded)
    assert set(resumed) == {"token"}


def test_a_failure_that_is_a_fault_of_ours_is_no_refusal(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(name: str) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(world.ports.jobs, "get", breaks)

    with pytest.raises(RuntimeError):
        world.asks(act="STOP", name="llama", why="ada: no")


def test_a_ping_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composition, "ports", lambda: None)
    monkeypatch.setattr(composition, "reads_policy", lambda: False)

    assert function.handler({"keep_warm": True}, None) is None


def test_a_request_of_the_deepest_job_file_is_taken() -> None:
    spec = {**SPEC, "checkpoints": {"directory": "/fsx/llama"}, "mounts": [{"source": "/fsx", "target": "/fsx"}]}

    assert parse_job_act({"act": "SUBMIT", "spec": spec}).act == "SUBMIT"


def test_a_failed_job_that_is_stopped_stays_failed(world: World) -> None:
    world.submits()
    job = stored_job(world.ports, "llama")
    world.ports.jobs.save(replace(job, state=JobState.FAILED))

    assert isinstance(world.asks(act="STOP", name="llama", why="ada: given up"), JobRecorded)
    assert stored_job(world.ports, "llama").state is JobState.FAILED
