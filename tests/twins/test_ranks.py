"""How ranks are, as the scheduler says: one specification for ECS and for its twin in memory."""

from collections.abc import Iterator
from typing import Any

import pytest

from nodeheal.adapters.ecs.scheduler import EcsScheduler
from nodeheal.adapters.memory.world import MemoryScheduler
from nodeheal.contract import names
from nodeheal.contract.vocabulary import EndCause
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.jobs.job import GangTask
from nodeheal.ports.scheduler import GangLauncher, RankStatus
from tests.support.aws_world import ARN, TASK, Aws, aws, on_ecs
from tests.support.builders import NOW
from tests.support.jobs import TRAINING

__all__ = ["aws"]  # a fixture

RANKS = [GangTask("a", rank, "boot-1", f"{ARN}-{rank}", f"{TASK}-{rank}") for rank in range(5)]
ENDED, RUNS, DARK, FORGOTTEN, LOST = RANKS
KNOWN = (
    RankStatus(
        ENDED.task_id,
        "STOPPED",
        True,
        1,
        "EssentialContainerExited: it has exited: OutOfMemoryError",
        NOW,
        end_causes=(EndCause.OUT_OF_MEMORY,),
    ),
    RankStatus(RUNS.task_id, "RUNNING", True, started_at=NOW),
    RankStatus(DARK.task_id, "RUNNING", False),
    RankStatus(FORGOTTEN.task_id, "MISSING", True),
    RankStatus(LOST.task_id, "MISSING", False),
)
DESCRIBED = [
    {
        "taskArn": ENDED.task_id,
        "lastStatus": "STOPPED",
        "stopCode": "EssentialContainerExited",
        "stoppedReason": "it has exited",
        "stoppedAt": NOW,
        "connectivity": "CONNECTED",
        "containers": [{"exitCode": 0}, {"exitCode": 1, "reason": "OutOfMemoryError"}],
    },
    {
        "taskArn": RUNS.task_id,
        "lastStatus": "STOPPING",
        "startedAt": NOW,
        "connectivity": "CONNECTED",
        "containers": [{}],
    },
    {"taskArn": DARK.task_id, "lastStatus": "RUNNING", "connectivity": "DISCONNECTED", "containers": [{}]},
]
MISSING = [{"arn": task.task_id, "reason": "MISSING"} for task in (FORGOTTEN, LOST)]
MACHINES = [
    {"containerInstanceArn": FORGOTTEN.placement, "agentConnected": True},
    {"containerInstanceArn": LOST.placement, "agentConnected": False},
]


def on_aws() -> Aws:
    asked = {"cluster": "training", "tasks": [task.task_id for task in RANKS]}
    of_missing = {"cluster": "training", "containerInstances": [FORGOTTEN.placement, LOST.placement]}
    made = Aws("ecs").answers("describe_tasks", {"tasks": DESCRIBED, "failures": MISSING}, asked)
    return made.answers("describe_container_instances", {"containerInstances": MACHINES, "failures": []}, of_missing)


@pytest.fixture(params=["memory", "ecs"])
def scheduler(request: pytest.FixtureRequest) -> Iterator[GangLauncher]:
    if request.param == "memory":
        unheard = {DARK.placement, LOST.placement}
        yield MemoryScheduler(statuses={one.task_id: one for one in KNOWN}, disconnected=unheard)
        return
    made = on_aws()
    with made.stub:
        yield EcsScheduler(made, made)
        made.stub.assert_no_pending_responses()


def test_each_rank_is_told_as_the_scheduler_has_it_and_whether_its_machine_is_heard(scheduler: GangLauncher) -> None:
    assert list(scheduler.rank_statuses(TRAINING, RANKS)) == list(KNOWN)


@on_ecs
def test_a_gang_of_more_than_a_hundred_is_asked_after_in_several_calls(aws: Aws) -> None:
    gang = [GangTask("a", rank, "boot-1", ARN, f"{TASK}-{rank}") for rank in range(101)]
    for some in (gang[:100], gang[100:]):
        runs: list[dict[str, Any]] = [{"taskArn": task.task_id, "lastStatus": "RUNNING"} for task in some]
        asked = {"cluster": "training", "tasks": [task.task_id for task in some]}
        aws.answers("describe_tasks", {"tasks": runs, "failures": []}, asked)

    seen = EcsScheduler(aws, aws).rank_statuses(TRAINING, gang)

    assert [one.status for one in seen] == ["RUNNING"] * 101


@on_ecs
def test_a_cluster_that_is_gone_says_nothing_and_a_throttle_is_named(aws: Aws) -> None:
    aws.refuses("describe_tasks", "ClusterNotFoundException").refuses("describe_tasks", "ThrottlingException")
    scheduler = EcsScheduler(aws, aws)

    assert list(scheduler.rank_statuses(TRAINING, RANKS)) == []
    with pytest.raises(NotAccepted, match="DescribeTasks: ThrottlingException"):
        scheduler.rank_statuses(TRAINING, RANKS)


def described_rank(number: int, status: str, **more: str) -> dict[str, Any]:
    """As DescribeTasks has a rank of run 2 of llama."""
    variables = [{"name": names.JOB_VARIABLE, "value": "llama"}, {"name": names.RUN_VARIABLE, "value": "2"}]
    return {
        "taskArn": f"{TASK}-{number}",
        "containerInstanceArn": f"{ARN}-{number}",
        "lastStatus": status,
        "startedBy": names.started_by("llama", 2),
        "overrides": {"containerOverrides": [{"name": "trainer", "environment": variables}]},
        **more,
    }


@on_ecs
def test_ranks_that_have_not_ended_are_found_without_their_records(aws: Aws) -> None:
    """One that is to end counts until it has, but on a machine that ECS does not reach. Others' tasks never count."""
    running = [described_rank(0, "RUNNING"), {"taskArn": f"{TASK}-9", "lastStatus": "RUNNING", "startedBy": "eve"}]
    stopping = [
        described_rank(1, "STOPPING", desiredStatus="STOPPED", connectivity="CONNECTED"),
        described_rank(2, "STOPPED", desiredStatus="STOPPED"),
        described_rank(3, "RUNNING", desiredStatus="STOPPED", connectivity="DISCONNECTED"),
    ]
    for desired, tasks in (("RUNNING", running), ("STOPPED", stopping)):
        arns = [task["taskArn"] for task in tasks]
        aws.answers("list_tasks", {"taskArns": arns}, {"cluster": "training", "desiredStatus": desired})
        asked = {"cluster": "training", "tasks": arns, "include": ["TAGS"]}
        aws.answers("describe_tasks", {"tasks": tasks, "failures": []}, asked)

    live = EcsScheduler(aws, aws).live_ranks(TRAINING)

    assert [(rank.job_id, rank.run, rank.task_id, rank.placement) for rank in live] == [
        ("llama", 2, f"{TASK}-0", f"{ARN}-0"),
        ("llama", 2, f"{TASK}-1", f"{ARN}-1"),
    ]
