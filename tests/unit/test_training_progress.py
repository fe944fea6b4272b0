"""How far a job has come, from the file that it touches to the line that people read."""

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.adapters.aws.heartbeats import _read
from nodeheal.agent.transport.heartbeat_client import HeartbeatContent as Beat
from nodeheal.agent.transport.heartbeat_client import request
from nodeheal.api.job_list import job_row
from nodeheal.cli.job_list import done_text, pace_text, progress_text
from nodeheal.contract.training import NodeTraining
from nodeheal.domain.fleet.liveness import Heartbeat
from nodeheal.domain.jobs.job import GangTask, Run
from nodeheal.domain.jobs.training_progress import training_progress
from tests.support.agent_fakes import PUBLIC_KEY
from tests.support.builders import NOW
from tests.support.jobs import ecs_job

JOB = ecs_job("llama", "demo", "training", "trainer:1", "trainer", 2, steps=10_000)
TASKS = tuple(GangTask(f"mi-{rank}", rank, "boot-1", f"arn-{rank}", status="RUNNING") for rank in (0, 1))
RUN = Run("llama", 2, NOW - timedelta(hours=2), "first", TASKS, resumed_step=1_000, running_since=NOW)
LATER = NOW + timedelta(seconds=2_000)


def beats(**steps: Mapping[str, int]) -> dict[str, Heartbeat]:
    """Heartbeats by node: `mi_0={"llama/2": 5}`."""
    return {
        name.replace("_", "-"): Heartbeat(f"role:{name}", "boot-1", LATER, 60.0, trainings=at(steps_of_node))
        for name, steps_of_node in steps.items()
    }


def at(steps: Mapping[str, int]) -> dict[str, NodeTraining]:
    return {run: NodeTraining(run, step) for run, step in steps.items()}


def test_the_farthest_step_of_its_nodes_tells_percentage_pace_and_time_left() -> None:
    found = training_progress(
        JOB, RUN, beats(mi_0={"llama/2": 4_990}, mi_1={"llama/2": 5_000}, mi_9={"llama/2": 9_999})
    )

    assert found is not None
    assert (found.step, found.share, found.rate, found.seconds_left) == (5_000, 0.5, 2.0, 2_500.0)
    row = job_row(JOB, found)
    assert progress_text(row) == "step 5000 of 10000 (50%), 2 steps/s, about 41 min 40 s left"
    assert done_text(row) == "50%"


def test_without_the_number_of_all_steps_only_the_step_is_told() -> None:
    job = replace(JOB, steps=None)

    row = job_row(job, training_progress(job, RUN, beats(mi_0={"llama/2": 5_000})))

    assert (done_text(row), progress_text(row), row.seconds_left) == ("step 5000", "step 5000, 2 steps/s", None)


def test_its_pace_is_shown_beside_its_usual_one_and_a_loss_that_is_a_number() -> None:
    shown: dict[str, Any] = {"step_seconds": 1.15, "usual_step_seconds": 1.0}
    trainings = [NodeTraining("llama/2", 50, loss=loss, **shown) for loss in (2.5, None)]
    nodes = {
        f"mi-{n}": Heartbeat(f"role:mi-{n}", "boot-1", LATER, 60.0, trainings={"llama/2": each})
        for n, each in enumerate(trainings)
    }

    row = job_row(replace(JOB, steps=None), training_progress(replace(JOB, steps=None), RUN, nodes))

    assert progress_text(row) == "step 50; a step takes 1.15 s, usually 1 s; loss 2.5"
    assert pace_text(row) == "87%"
    nodes["mi-0"] = replace(nodes["mi-0"], trainings={"llama/2": replace(trainings[0], loss=math.nan)})
    progress = training_progress(JOB, RUN, nodes)
    assert progress is not None
    assert progress.loss is None


@pytest.mark.parametrize("shown", [{}, {"step_seconds": 1.0}, {"usual_step_seconds": 1.0}])
def test_a_run_without_a_usual_pace_has_none_to_compare(shown: dict[str, float]) -> None:
    beat = Heartbeat("role:mi-0", "boot-1", LATER, 60.0, trainings={"llama/2": NodeTraining("llama/2", 50, **shown)})  # type: ignore[arg-type]

    assert pace_text(job_row(JOB, training_progress(JOB, RUN, {"mi-0": beat}))) == "-"


@pytest.mark.parametrize("shown", [{}, {"llama/1": 5}, {"gpt/2": 5}])
def test_another_run_or_job_says_nothing_of_this_one(shown: dict[str, int]) -> None:
    assert training_progress(JOB, RUN, beats(mi_0=shown)) is None


def test_a_run_that_has_ended_shows_no_progress() -> None:
    ended = replace(RUN, tasks=tuple(replace(task, status="STOPPED") for task in TASKS))

    assert training_progress(JOB, ended, beats(mi_0={"llama/2": 5})) is None
    assert training_progress(JOB, None, {}) is None


def test_what_a_node_sends_is_what_the_control_plane_reads() -> None:
    trainings = [NodeTraining("llama/2", 2037, slowest_rank=8, loss=2.5, pause="evaluation"), NodeTraining("eval/7", 3)]
    asked = request("role:mi-0", Beat("boot-1", NOW.timestamp(), 60.0, PUBLIC_KEY, trainings))
    stored = {name: asked["ExpressionAttributeValues"][f":{name}"] for name in ("at", "every", "boot", "steps")}  # type: ignore[index]

    read = _read({"who": {"S": "role:mi-0"}, **stored})

    assert read is not None
    assert list(read.trainings.values()) == trainings


@pytest.mark.parametrize(
    "said", [{"S": "x"}, {"S": "llama/2=-5"}, {"S": "llama/2=1e9"}, {"S": "LLAMA/2=5"}, {"N": "5"}, {"S": "=" * 10_000}]
)
def test_what_a_machine_makes_up_is_no_step_and_hides_no_heartbeat(said: dict[str, str]) -> None:
    item = {"who": {"S": "role:mi-0"}, "boot": {"S": "boot-1"}, "every": {"N": "60"}, "at": {"N": "1700000000"}}

    read = _read({**item, "steps": said})

    assert read is not None
    assert read.trainings == {}
