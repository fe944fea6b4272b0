"""A container that cannot be made in the sandbox ends as it would on ECS: no restart mends that."""

import subprocess
from pathlib import Path

import pytest

from nodeheal.adapters.ecs.stop_reasons import causes_of
from nodeheal.domain.jobs.gang import first_failure
from nodeheal.domain.jobs.job import GangTask, Run
from sandbox.ecs_agent import NoSuchImage, why_not_started
from tests.support.builders import NOW


def no_such_program() -> OSError:
    """What starting a program that is not there raises."""
    with pytest.raises(FileNotFoundError) as raised:
        subprocess.Popen(["a-program-that-is-not-there"], cwd=Path.cwd())
    return raised.value


@pytest.mark.parametrize("error", [NoSuchImage("nothere is not a folder of examples/"), no_such_program()])
def test_a_missing_image_or_program_is_the_definitions_fault_and_not_the_programs(error: OSError) -> None:
    reason = f"TaskFailedToStart: {why_not_started(error)}"
    task = GangTask("mi-a", 0, "boot-1", "place", "task", "STOPPED", end_causes=causes_of(reason), stopped_at=NOW)

    broke = first_failure(Run("llama", 1, NOW, "submitted", (task,)))

    assert broke is not None
    assert broke.never_ran
