"""The command `nodeheal jobs` over a world in memory."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nodeheal.adapters.memory.task_definitions import MemoryJobLogs, MemoryTaskDefinitions
from nodeheal.cli import connect, job_log, job_wait
from nodeheal.cli.main import app
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.jobs.job_log import LogLocation
from nodeheal.domain.jobs.owner import Owner
from nodeheal.domain.jobs.task_definition import Container, TaskDefinition
from nodeheal.ports import Ports
from tests.support.acts import MemoryControlPlane
from tests.support.builders import ACT, FrozenClock, behave_as, memory_ports, node, stored_job

RUN = CliRunner()


TRAINER = TaskDefinition(
    "trainer:7", (Container("trainer", 8, LogLocation("/nodeheal/jobs", "llama")), Container("proxy"))
)


FILE = "name: llama\npool: demo\nnodes: 2\ntask_definition: trainer\ncheckpoints: {directory: /fsx/llama}\n"


class Owners:
    """The subscriptions of job owners."""

    def __init__(self) -> None:
        self.confirmed: set[Owner] = set()

    def is_confirmed(self, owner: Owner) -> bool:
        """Whether this one has said yes."""
        return owner in self.confirmed


class World:
    """Three nodes of 8 accelerators, a task definition, and nobody who works."""

    def __init__(self, ports: Ports, clock: FrozenClock) -> None:
        self.ports, self.clock = ports, clock
        self.definitions = MemoryTaskDefinitions({"trainer": TRAINER, "trainer:7": TRAINER})
        self.logs, self.owners = MemoryJobLogs(self.definitions), Owners()
        self.happenings: list[Any] = []  # what happens while a command sleeps, one at a time

    @property
    def job(self) -> Job:
        """llama, as recorded."""
        return stored_job(self.ports, "llama")

    @property
    def started(self) -> list[tuple[str, int]]:
        """The executions of run_job that were started."""
        return list(self.ports.workflows.jobs_started)  # type: ignore[attr-defined]

    def becomes(self, **changes: Any) -> None:
        """The job's record changes."""
        assert self.ports.jobs.save(replace(self.job, **changes))

    def sleep(self, seconds: float) -> None:
        """Time that a command waits."""
        assert self.happenings, "it would wait for ever"
        self.happenings.pop(0)()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    clock = FrozenClock()
    it = World(memory_ports(clock), clock)
    for name in ("mi-a", "mi-b", "mi-c"):
        it.ports.nodes.save(node(name, accelerators=8))
    put_in_place(it, monkeypatch)
    yield it


def put_in_place(it: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "ports", lambda table: it.ports)
    monkeypatch.setattr(connect, "policy", lambda: ACT)
    monkeypatch.setattr(connect, "policy_copy", lambda table: ACT)
    behave_as(it.ports, definitions=it.definitions, job_logs=it.logs)
    monkeypatch.setattr(connect, "owners", lambda: it.owners)
    monkeypatch.setattr(connect, "control_plane", lambda: MemoryControlPlane(it.ports, ACT))
    monkeypatch.setattr(connect, "execution_url", lambda incident: f"https://console.example/{incident}")
    monkeypatch.setattr(connect, "job_execution_url", lambda job, number: f"https://console.example/{job}-{number}")
    monkeypatch.setattr(job_wait.follow, "__defaults__", (it.sleep, lambda: it.clock().timestamp()))
    monkeypatch.setattr(job_log.tail, "__defaults__", (it.sleep,))


def run(*words: str) -> Any:
    answer = RUN.invoke(app, ["jobs", *words])
    assert answer.exception is None or isinstance(answer.exception, SystemExit), answer.exception
    return answer


def submit(tmp_path: Path, text: str, *words: str) -> Any:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    return run("submit", str(file), *words)
