"""Scheduler on ECS: container instances are nodes, standalone tasks are ranks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nodeheal.adapters.aws.calls import code_of, throttles_named
from nodeheal.adapters.aws.container_instances import listed
from nodeheal.contract import names
from nodeheal.contract.ecs_task import EcsTaskDetail
from nodeheal.domain.errors import NotEnrolled, NotFound, PlacementRefused
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.ports import RankSeen, Seat

if TYPE_CHECKING:
    from collections.abc import Callable

    from types_boto3_ecs import ECSClient
    from types_boto3_ecs.type_defs import ContainerInstanceTypeDef, TagTypeDef

_DESCRIBED_AT_ONCE = 100  # by DescribeTasks and DescribeContainerInstances alike
_FILTERED_AT_ONCE = 50  # instances in one expression: nobody says how long one may be
_MISSING = "MISSING"  # as ECS spells it


class EcsScheduler:
    """Scheduler. Clients are made when first needed; `once` sends a call that acts a single time."""

    def __init__(self, client: "Callable[[], ECSClient]", once: "Callable[[], ECSClient]") -> None:
        self._client = client
        self._once = once

    def look(self, node: Node) -> Seat:
        # Asked by status, so that a node in service, which is nearly every one, costs one call and no description.
        for connected in (True, False):
            for status in ("ACTIVE", ""):
                found = listed(self._client(), node.cluster, node.instance_id, connected=connected, status=status)
                if found:
                    return Seat(found[0], status == "ACTIVE")
        raise NotFound(f"{node.instance_id} is not registered in ECS cluster {node.cluster}")

    def switch(self, node: Node, seat: Seat, *, is_on: bool, isolated_by: str) -> None:
        from botocore.exceptions import ClientError

        try:
            self._switch(node, seat, is_on=is_on, isolated_by=isolated_by)
        except ClientError as error:
            if code_of(error) != "AccessDeniedException":
                raise
            raise NotEnrolled(
                f"ECS denies it: the container instance {seat.placement.rsplit('/', 1)[-1]} does not bear the tag "
                f"{names.MANAGED_TAG} = {names.MANAGED_TAG_VALUE}. Set it with `nodeheal nodes enroll {node.node_id}`; "
                "docs/ec2.md says how new machines get it"
            ) from error

    def _switch(self, node: Node, seat: Seat, *, is_on: bool, isolated_by: str) -> None:
        with throttles_named("UpdateContainerInstancesState"):
            answer = self._client().update_container_instances_state(
                cluster=node.cluster,
                containerInstances=[seat.placement],
                status="ACTIVE" if is_on else "DRAINING",
            )
        if answer["failures"]:
            raise NotFound(f"{node.instance_id} in cluster {node.cluster}: {answer['failures'][0].get('reason')}")
        if is_on:
            with throttles_named("UntagResource"):
                self._client().untag_resource(resourceArn=seat.placement, tagKeys=[names.ISOLATED_TAG])
            return
        tag: TagTypeDef = {"key": names.ISOLATED_TAG, "value": isolated_by}
        with throttles_named("TagResource"):
            self._client().tag_resource(resourceArn=seat.placement, tags=[tag])

    def find_seats(self, nodes: Sequence[Node]) -> Mapping[str, Seat]:
        """As FindSeats has it."""
        found: dict[str, Seat] = {}
        for cluster in sorted({node.cluster for node in nodes}):
            names_of = {node.instance_id: node.node_id for node in nodes if node.cluster == cluster}
            # A node that was registered again is there twice: it is where its agent is connected, then where it works.
            for described in sorted(self._described(cluster, sorted(names_of)), key=_is_current):
                name = names_of.get(described["ec2InstanceId"])
                if name is not None:
                    found[name] = Seat(described["containerInstanceArn"], described["status"] == "ACTIVE")
        missing = [node.instance_id for node in nodes if node.node_id not in found]
        if missing:
            raise NotFound(f"not registered in ECS cluster {nodes[0].cluster}: {', '.join(missing)}")
        return found

    def _described(self, cluster: str, instance_ids: Sequence[str]) -> "Iterator[ContainerInstanceTypeDef]":
        for first in range(0, len(instance_ids), _FILTERED_AT_ONCE):
            wanted = ", ".join(f"'{one}'" for one in instance_ids[first : first + _FILTERED_AT_ONCE])
            with throttles_named("ListContainerInstances"):
                pages = self._client().get_paginator("list_container_instances")
                here = pages.paginate(cluster=cluster, filter=f"ec2InstanceId in [{wanted}]")
                arns = [arn for page in here for arn in page["containerInstanceArns"]]
            for at in range(0, len(arns), _DESCRIBED_AT_ONCE):
                with throttles_named("DescribeContainerInstances"):
                    yield from self._client().describe_container_instances(
                        cluster=cluster, containerInstances=arns[at : at + _DESCRIBED_AT_ONCE]
                    )["containerInstances"]

    def start(self, job: Job, run: Run, task: GangTask, environment: dict[str, str]) -> str:
        with throttles_named("StartTask"):
            answer = self._once().start_task(
                cluster=job.cluster,
                taskDefinition=job.task_definition,
                containerInstances=[task.placement],
                startedBy=names.started_by(job.job_id, run.number),
                overrides={"containerOverrides": [_override(job, environment)]},
                tags=[{"key": names.MANAGED_TAG, "value": names.MANAGED_TAG_VALUE}],
            )
        if answer["failures"]:
            failure = answer["failures"][0]
            why = " ".join(filter(None, [failure.get("reason"), failure.get("detail")]))
            raise PlacementRefused(f"ECS would not start rank {task.rank} on {task.node_id}: {why}")
        return answer["tasks"][0]["taskArn"]

    def find(self, job: Job, run: Run) -> Mapping[str, str]:
        # ListTasks takes no other filter beside this one. StartTask takes no client token: this finds what it started.
        with throttles_named("ListTasks"):
            pages = self._client().get_paginator("list_tasks")
            here = pages.paginate(cluster=job.cluster, startedBy=names.started_by(job.job_id, run.number))
            tasks = [arn for page in here for arn in page["taskArns"]]
        found: dict[str, str] = {}
        for first in range(0, len(tasks), _DESCRIBED_AT_ONCE):
            with throttles_named("DescribeTasks"):
                described = self._client().describe_tasks(
                    cluster=job.cluster, tasks=tasks[first : first + _DESCRIBED_AT_ONCE]
                )["tasks"]
            found |= {task["containerInstanceArn"]: task["taskArn"] for task in described}
        return found

    def stop(self, cluster: str, task_id: str, reason: str) -> None:
        from botocore.exceptions import ClientError

        try:
            with throttles_named("StopTask"):
                self._client().stop_task(cluster=cluster, task=task_id, reason=reason)
        except ClientError as error:
            # ECS forgets a stopped task after about an hour, and its tag before that: what IAM asks for is gone then.
            if code_of(error) == "InvalidParameterException":
                return
            if code_of(error) != "AccessDeniedException" or not self._is_stopping(cluster, task_id):
                raise

    def see_ranks(self, cluster: str, ranks: Sequence[GangTask]) -> Sequence[RankSeen]:
        """As SeeRanks has it."""
        firsts = range(0, len(ranks), _DESCRIBED_AT_ONCE)
        return [seen for i in firsts for seen in self._see_some(cluster, ranks[i : i + _DESCRIBED_AT_ONCE])]

    def _see_some(self, cluster: str, ranks: Sequence[GangTask]) -> Iterator[RankSeen]:
        from botocore.exceptions import ClientError

        try:
            with throttles_named("DescribeTasks"):
                answer = self._client().describe_tasks(cluster=cluster, tasks=[task.task_id for task in ranks])
        except ClientError as error:
            if code_of(error) != "ClusterNotFoundException":
                raise
            return
        yield from (_seen(EcsTaskDetail.model_validate(task)) for task in answer["tasks"])
        missing = {failure.get("arn") for failure in answer["failures"] if failure.get("reason") == _MISSING}
        gone = [task for task in ranks if task.task_id in missing]
        connected = self._connected(cluster, gone) if gone else set()
        yield from (RankSeen(task.task_id, _MISSING, task.placement in connected) for task in gone)

    def _connected(self, cluster: str, ranks: Sequence[GangTask]) -> set[str]:
        """Of the machines of these ranks those whose agents ECS hears."""
        with throttles_named("DescribeContainerInstances"):
            answer = self._client().describe_container_instances(
                cluster=cluster, containerInstances=sorted({task.placement for task in ranks})
            )
        return {seen["containerInstanceArn"] for seen in answer["containerInstances"] if seen["agentConnected"]}

    def _is_stopping(self, cluster: str, task_id: str) -> bool:
        with throttles_named("DescribeTasks"):
            seen = self._client().describe_tasks(cluster=cluster, tasks=[task_id])["tasks"]
        return not seen or seen[0].get("desiredStatus") == "STOPPED"


def _is_current(described: "ContainerInstanceTypeDef") -> tuple[bool, bool]:
    """Sorts a container instance that the node uses now behind those that it has left."""
    return described.get("agentConnected", False), described["status"] == "ACTIVE"


def _seen(task: EcsTaskDetail) -> RankSeen:
    is_connected = task.connectivity != "DISCONNECTED"
    ended = (task.exit_code, task.stop_reason, task.stopped_at)
    return RankSeen(task.task_arn, task.status, is_connected, *ended, started_at=task.started_at)


def _override(job: Job, environment: dict[str, str]) -> Any:
    """What this run has besides its definition."""
    command = {"command": list(job.command)} if job.command else {}
    variables = [{"name": name, "value": value} for name, value in sorted(environment.items())]
    return {"name": job.container, "environment": variables, **command}
