"""Guests on ECS: the standalone tasks of others on a container instance."""

import json
from typing import TYPE_CHECKING, Any

from nodeheal.adapters.aws.calls import throttles_named
from nodeheal.contract import names
from nodeheal.domain.errors import PlacementRefused
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.unmanaged_tasks import UnmanagedTask
from nodeheal.ports import Seat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from types_boto3_ecs import ECSClient

DESCRIBED_AT_ONCE = 100
# How ECS spells what belongs to a service, a daemon's included: it looks after those by itself.
_SERVICE_MARKS = ("ecs-svc/", "service:")
# The group that a task has by default; ECS gives it again by itself.
_DEFAULT_GROUP = "family:"
_RESERVED_TAGS = "aws:"


class EcsGuests:
    """Guests. Clients are made when first needed; `once` sends a call that acts a single time."""

    def __init__(self, client: "Callable[[], ECSClient]", once: "Callable[[], ECSClient]") -> None:
        self._client = client
        self._once = once

    def on(self, node: Node, seat: Seat) -> "Sequence[UnmanagedTask]":
        return [_guest(task) for task in self._described(node, seat) if _is_guest(task)]

    def stop(self, node: Node, guest: UnmanagedTask, reason: str) -> bool:
        # Looked at first: a stop takes a task's tags away, and without its tag a second stop would be denied.
        with throttles_named("DescribeTasks"):
            seen = self._client().describe_tasks(cluster=node.cluster, tasks=[guest.task_id])["tasks"]
        if not seen:  # ECS forgets a stopped task after about an hour
            return False
        task = seen[0]
        if task.get("desiredStatus") != "STOPPED":
            with throttles_named("StopTask"):
                task = self._client().stop_task(cluster=node.cluster, task=guest.task_id, reason=reason)["task"]
        # A task that had ended before has its own end's reason, and a call that is repeated finds the first one's.
        return reason in task.get("stoppedReason", reason)

    def start(self, node: Node, seat: Seat, guest: UnmanagedTask) -> str:
        already = self._successor(node, seat, guest)
        if already:
            return already
        group = {} if guest.group.startswith(_DEFAULT_GROUP) or not guest.group else {"group": guest.group}
        tags = [{"key": k, "value": v} for k, v in sorted(guest.tags.items()) if not k.startswith(_RESERVED_TAGS)]
        request: dict[str, Any] = {"overrides": json.loads(guest.overrides or "{}"), "tags": tags, **group}
        with throttles_named("StartTask"):
            answer = self._once().start_task(
                cluster=node.cluster,
                taskDefinition=guest.definition,
                containerInstances=[seat.placement],
                startedBy=guest.mark,
                **request,
            )
        if answer["failures"]:
            failure = answer["failures"][0]
            raise PlacementRefused(" ".join(filter(None, [failure.get("reason"), failure.get("detail")])))
        return answer["tasks"][0]["taskArn"]

    def _successor(self, node: Node, seat: Seat, guest: UnmanagedTask) -> str:
        """What a call before has started, whether it still runs or has ended since. StartTask takes no token.

        ListTasks takes no other filter beside startedBy, and tells then only what is to run.
        """
        with throttles_named("ListTasks"):
            found = self._client().list_tasks(cluster=node.cluster, startedBy=guest.mark)["taskArns"]
        if found:
            return found[0]
        ended = self._described(node, seat, desiredStatus="STOPPED")
        return next((task["taskArn"] for task in ended if task.get("startedBy") == guest.mark), "")

    def _described(self, node: Node, seat: Seat, **only: Any) -> "Iterator[Mapping[str, Any]]":
        """The tasks on a container instance, with their tags."""
        with throttles_named("ListTasks"):
            pages = self._client().get_paginator("list_tasks")
            here = pages.paginate(cluster=node.cluster, containerInstance=seat.placement, **only)
            tasks = [arn for page in here for arn in page["taskArns"]]
        for first in range(0, len(tasks), DESCRIBED_AT_ONCE):
            with throttles_named("DescribeTasks"):
                yield from self._client().describe_tasks(
                    cluster=node.cluster, tasks=tasks[first : first + DESCRIBED_AT_ONCE], include=["TAGS"]
                )["tasks"]


def _is_guest(task: "Mapping[str, Any]") -> bool:
    started_by, group = task.get("startedBy", ""), task.get("group", "")
    is_of_service = started_by.startswith(_SERVICE_MARKS) or group.startswith(_SERVICE_MARKS)
    return not is_of_service and not names.is_rank(started_by)


def _guest(task: "Mapping[str, Any]") -> UnmanagedTask:
    return UnmanagedTask(
        task_id=task["taskArn"],
        definition=task["taskDefinitionArn"],
        started_by=task.get("startedBy", ""),
        group=task.get("group", ""),
        launch_type=task.get("launchType", ""),
        overrides=json.dumps(task.get("overrides", {}), sort_keys=True),
        tags={tag["key"]: tag["value"] for tag in task.get("tags", [])},
    )
