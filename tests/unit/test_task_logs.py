"""The simulated nodes' awslogs driver sends what a container writes, whole lines as they come."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sandbox.ecs_state import ContainerInstance, Task, TaskDefinition
from sandbox.task_logs import TaskLogs

OPTIONS = {"awslogs-group": "/nodeheal/jobs", "awslogs-stream-prefix": "llama"}
WAIT_SECONDS = 10.0


def task(**container: Any) -> Task:
    body = {"containerDefinitions": [{"name": "trainer", "image": "x", **container}]}
    instance = ContainerInstance("arn:i", "training", "mi-1", 0, {})
    return Task("arn:task/training/abc", "arn:c", instance, TaskDefinition("f", 1, body), {}, "g", "", {})


def until_quiet(sent: list[tuple[str, str, list[str]]], texts: int) -> list[str]:
    """What has arrived, once there is so much of it."""
    deadline = time.monotonic() + WAIT_SECONDS
    while sum(len(lines) for _, _, lines in sent) < texts and time.monotonic() < deadline:
        time.sleep(0.05)
    return [line for _, _, lines in sent for line in lines]


def test_every_line_arrives_once_and_the_last_one_without_its_end(tmp_path: Path) -> None:
    sent: list[tuple[str, str, list[str]]] = []
    logs = TaskLogs(lambda group, stream, events: sent.append((group, stream, [e["message"] for e in events])))
    it, file = task(logConfiguration={"logDriver": "awslogs", "options": OPTIONS}), tmp_path / "log"
    program = "import time; print('one', flush=True); time.sleep(0.8); print('two'); print(); print('three', end='')"
    with file.open("wb") as output:
        it.process = subprocess.Popen([sys.executable, "-c", program], stdout=output, cwd=os.sep)

    logs.follow(it, file)

    assert until_quiet(sent, 3) == ["one", "two", "three"]
    assert {(group, stream) for group, stream, _ in sent} == {("/nodeheal/jobs", "llama/trainer/abc")}
    assert len(sent) > 1, "lines come as they are written, and not at the end"


def test_a_container_with_another_driver_sends_nothing(tmp_path: Path) -> None:
    sent: list[Any] = []
    logs = TaskLogs(lambda *what: sent.append(what))

    logs.open(task())
    logs.open(task(logConfiguration={"logDriver": "json-file"}))

    assert sent == []


def test_a_group_that_is_not_there_keeps_the_container_from_starting() -> None:
    def refuse(group: str, stream: str, events: list[Any]) -> None:
        raise OSError("failed to initialize logging driver: no such group")

    with pytest.raises(OSError, match="logging driver"):
        TaskLogs(refuse).open(task(logConfiguration={"logDriver": "awslogs", "options": OPTIONS}))
