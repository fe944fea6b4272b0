"""Unmanaged tasks on ECS, as the adapter asks for them; the twin in memory answers the same questions."""

import json
from typing import Any

import pytest

from nodeheal.adapters.ecs.scheduler import EcsScheduler
from nodeheal.adapters.memory.world import MemoryScheduler
from nodeheal.contract import names
from nodeheal.domain.errors import PlacementRefused
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.fleet.unmanaged_tasks import stopped_tasks
from nodeheal.domain.recovery.timeline import TaskToStop, TimelineEntry
from nodeheal.ports.scheduler import NodePlacement
from tests.support.aws_world import ARN, TASK, Aws, aws, on_ecs
from tests.support.builders import NOW, node

__all__ = ["aws"]  # a fixture

PLACEMENT = NodePlacement(ARN, is_schedulable=True)
OVERRIDES = {"containerOverrides": [{"name": "main", "command": ["--shard", "7"]}]}
DEFINITION = "arn:aws:ecs:task-definition/eval:3"
TAGS = [{"key": key, "value": value} for key, value in ((names.MANAGED_TAG, names.MANAGED_TAG_VALUE), ("team", "eval"))]
ASKED_FOR = {"taskDefinition": DEFINITION, "overrides": OVERRIDES, "tags": TAGS, "group": "nightly"}
UNMANAGED = UnmanagedTask(TASK, "eval:3", "cron", True, json.dumps(ASKED_FOR, sort_keys=True))


def described(**changes: Any) -> dict[str, Any]:
    task = {
        "taskArn": TASK,
        "taskDefinitionArn": DEFINITION,
        "startedBy": "cron",
        "group": "nightly",
        "launchType": "EXTERNAL",
        "overrides": OVERRIDES,
        "tags": TAGS[::-1],
    }
    return {**task, **changes}


@on_ecs
def test_a_task_is_who_belongs_to_no_service_and_is_none_of_our_ranks(aws: Aws) -> None:
    others = [
        described(startedBy="ecs-svc/0123456789"),
        described(group="service:node-exporter"),
        described(startedBy=names.started_by("llama", 2)),
    ]
    aws.answers("list_tasks", {"taskArns": [TASK]}, {"cluster": "training", "containerInstance": ARN})
    asked = {"cluster": "training", "tasks": [TASK], "include": ["TAGS"]}
    aws.answers("describe_tasks", {"tasks": [described(), *others]}, asked)

    assert EcsScheduler(aws, aws).unmanaged_tasks(node(), PLACEMENT) == [UNMANAGED]


@on_ecs
def test_a_successor_of_a_task_is_an_unmanaged_task(aws: Aws) -> None:
    aws.answers("list_tasks", {"taskArns": [TASK]})
    aws.answers("describe_tasks", {"tasks": [described(startedBy=UNMANAGED.mark)]})

    assert len(EcsScheduler(aws, aws).unmanaged_tasks(node(), PLACEMENT)) == 1


@on_ecs
def test_a_stop_tells_whether_it_was_ours_and_is_sent_once(aws: Aws) -> None:
    where = {"cluster": "training", "tasks": [TASK]}
    ours, own_end = (
        {"stoppedReason": "nodeheal: recovery inc-1"},
        {"stoppedReason": "Essential container in task exited"},
    )
    aws.answers("describe_tasks", {"tasks": [{"desiredStatus": "RUNNING"}]}, where)
    asked = {"cluster": "training", "task": TASK, "reason": "nodeheal: recovery inc-1"}
    aws.answers("stop_task", {"task": ours}, asked)
    for already in (ours, own_end):
        aws.answers("describe_tasks", {"tasks": [{"desiredStatus": "STOPPED", **already}]}, where)
    aws.answers("describe_tasks", {"tasks": []}, where)

    scheduler = EcsScheduler(aws, aws)
    told = [scheduler.stop_unmanaged_task(node(), UNMANAGED, "nodeheal: recovery inc-1") for _ in range(4)]

    assert told == [True, True, False, False]


@on_ecs
def test_a_successor_is_started_as_the_task_was_and_marked(aws: Aws) -> None:
    # By its mark alone: ECS refuses a second filter beside it.
    aws.answers("list_container_instances", {"containerInstanceArns": [ARN]})
    aws.answers("list_tasks", {"taskArns": []}, {"cluster": "training", "startedBy": UNMANAGED.mark})
    ended = {"cluster": "training", "containerInstance": ARN, "desiredStatus": "STOPPED"}
    aws.answers("list_tasks", {"taskArns": [TASK]}, ended)
    aws.answers("describe_tasks", {"tasks": [described()]})  # another one, which has ended
    started = {"cluster": "training", "taskDefinition": DEFINITION, "containerInstances": [ARN]}
    more = {"startedBy": UNMANAGED.mark, "overrides": OVERRIDES, "group": "nightly", "tags": TAGS}
    aws.answers("start_task", {"tasks": [{"taskArn": "new"}], "failures": []}, {**started, **more})

    assert EcsScheduler(aws, aws).restart_unmanaged_task(node(), UNMANAGED) == "new"


@on_ecs
def test_a_successor_that_has_ended_already_is_not_started_again(aws: Aws) -> None:
    aws.answers("list_container_instances", {"containerInstanceArns": [ARN]})
    aws.answers("list_tasks", {"taskArns": []}).answers("list_tasks", {"taskArns": ["new"]})
    aws.answers("describe_tasks", {"tasks": [described(taskArn="new", startedBy=UNMANAGED.mark)]})

    assert EcsScheduler(aws, aws).restart_unmanaged_task(node(), UNMANAGED) == "new"


@on_ecs
def test_a_refused_start_is_told_in_the_words_of_ecs(aws: Aws) -> None:
    aws.answers("list_container_instances", {"containerInstanceArns": [ARN]})
    aws.answers("list_tasks", {"taskArns": []}).answers("list_tasks", {"taskArns": []})
    aws.answers("start_task", {"tasks": [], "failures": [{"reason": "RESOURCE:GPU"}]})

    with pytest.raises(PlacementRefused, match="RESOURCE:GPU"):
        EcsScheduler(aws, aws).restart_unmanaged_task(node(), UNMANAGED)


def test_the_twin_stops_and_starts_once_as_well() -> None:
    scheduler = MemoryScheduler(unmanaged={TASK: (node().node_id, UNMANAGED)})

    assert scheduler.unmanaged_tasks(node(), PLACEMENT) == [UNMANAGED]
    assert [scheduler.stop_unmanaged_task(node(), UNMANAGED, "ours") for _ in range(2)] == [True, True]
    assert len({scheduler.restart_unmanaged_task(node(), UNMANAGED) for _ in range(2)}) == 1
    assert len(scheduler.unmanaged_started) == 1


def test_a_task_is_read_from_the_record_as_it_was_written() -> None:
    entry = TimelineEntry(NOW, "task-1", "is stopped", TaskToStop(UNMANAGED))

    (known,) = stopped_tasks([entry])

    assert known.task == UNMANAGED
    assert (known.by_us, known.is_owed) == (None, False)
