"""Operations whose answers were observed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from nodeheal.contract.vocabulary import (
    EndCause,
)
from nodeheal.domain.jobs.job import Run
from nodeheal.ports import Ports
from tests.support.builders import (
    FrozenClock,
    memory_ports,
    node,
)
from tests.support.incident_steps import A, B


@pytest.fixture
def ports() -> Ports:
    made = memory_ports(FrozenClock())
    for name in (A, B):
        made.nodes.save(node(name))
    return made


def unwanted(*given: Any) -> Any:
    """A call that nobody should make."""
    pytest.fail(f"{given}")


def saved(ports: Ports, run: Run) -> Run:
    """The run as it is now, over what is stored."""
    stored = ports.jobs.get_run(run.job_id, run.number)
    assert stored is not None and ports.jobs.save_run(replace(run, version=stored.version))
    return run


def ended(run: Run, exit_code: int = 1, cause: Sequence[EndCause] = (), reason: str = "") -> Run:
    """The same run, whose ranks have all stopped."""
    tasks = tuple(
        replace(task, status="STOPPED", exit_code=exit_code, end_causes=tuple(cause), stop_reason=reason)
        for task in run.tasks
    )
    return replace(run, tasks=tasks)
