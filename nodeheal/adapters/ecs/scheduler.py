"""What ECS can do: container instances are nodes, standalone tasks are ranks and unmanaged tasks."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from nodeheal.adapters.aws.calls import client_in, code_of, own_role_arn, throttles_named
from nodeheal.adapters.ecs.container_instances import CONNECTED, listed
from nodeheal.adapters.ecs.job_logs import EcsJobLogs
from nodeheal.adapters.ecs.task import EcsTaskDetail
from nodeheal.adapters.ecs.task_definitions import EcsTaskDefinitions
from nodeheal.contract import names
from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.domain.errors import NotEnrolled, NotFound, PlacementRefused
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.fleet.holder import HeldByPerson
from nodeheal.domain.fleet.liveness import ProbeAnswer
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.ports.scheduler import Drained, NodePlacement, RankStatus, Scheduler, SchedulerTraits, TaskChange

if TYPE_CHECKING:
    from collections.abc import Callable

    from types_boto3_ecs import ECSClient
    from types_boto3_ecs.literals import ContainerInstanceStatusType
    from types_boto3_ecs.type_defs import ContainerInstanceTypeDef, TagTypeDef

_DESCRIBED_AT_ONCE = 100  # the limit of DescribeTasks and DescribeContainerInstances
_UPDATED_AT_ONCE = 10  # the limit of UpdateContainerInstancesState
_FILTERED_AT_ONCE = 50  # instances in one filter expression, whose maximum length is not documented
_MISSING = "MISSING"  # as ECS spells it
# ECS's prefix for tasks of a service, a daemon's included: ECS restarts those by itself.
_SERVICE_MARKS = ("ecs-svc/", "service:")
# The default prefix of a task's group; ECS sets it again by itself.
_DEFAULT_GROUP = "family:"
_RESERVED_TAGS = "aws:"
# A custom attribute of a container instance, by which a person keeps it drained: ECS records no reason for a drain.
_HELD_ATTRIBUTE = "nodeheal.held-by"
_HOLDER_CHARACTERS = 64  # of an attribute's value, which a person wrote


class EcsScheduler:
    """Implements NodeGate, NodeRegistry, Workloads, WorkloadRestarter and GangLauncher. It makes no machines.

    Clients are created when first needed; `once` sends a call that acts a single time.
    """

    def __init__(self, client: "Callable[[], ECSClient]", once: "Callable[[], ECSClient]") -> None:
        self._client = client
        self._once = once

    def placement_of(self, node: Node) -> NodePlacement:
        # Queried by status, so that a node in service, as nearly all are, costs one call and no description.
        for connected in (True, False):
            for status in ("ACTIVE", ""):
                arns = listed(self._client(), node.cluster.name, node.instance_id, connected=connected, status=status)
                if arns:
                    is_active = status == "ACTIVE"
                    return NodePlacement(
                        arns[0], is_active, None if is_active else self._holder(node.cluster.name, arns[0])
                    )
        raise NotFound(f"{node.instance_id} is not registered in ECS cluster {node.cluster.name}")

    def _holder(self, cluster: str, placement: str) -> HeldByPerson | None:
        """Return which person keeps a drained container instance, by its attribute; None: none says so."""
        with throttles_named("ListAttributes"):
            pages = (
                self._client()
                .get_paginator("list_attributes")
                .paginate(cluster=cluster, targetType="container-instance", attributeName=_HELD_ATTRIBUTE)
            )
            attributes = [attribute for page in pages for attribute in page["attributes"]]
        of_it = (
            entry
            for entry in attributes
            if entry.get("targetId", "").rpartition("/")[2] == placement.rpartition("/")[2]
        )
        values = (entry.get("value", "")[:_HOLDER_CHARACTERS] for entry in of_it)
        return next((HeldByPerson(value, f"attribute {_HELD_ATTRIBUTE}", how="held") for value in values), None)

    def names_in_service(self, nodes: Sequence[Node]) -> Sequence[str]:
        expression = f"{_one_of([node.instance_id for node in nodes])} and {CONNECTED}"
        with throttles_named("ListContainerInstances"):
            arns = self._client().list_container_instances(
                cluster=nodes[0].cluster.name, filter=expression, status="ACTIVE"
            )["containerInstanceArns"]
        # The call returns container instances without their nodes: only if the counts are equal does each node have
        # one.
        return arns if len(arns) == len(nodes) else ()

    def drain_all(self, nodes: Sequence[Node], placements: Sequence[str]) -> Mapping[str, Drained]:
        names_of = {node.instance_id: node.node_id for node in nodes}
        described: list[ContainerInstanceTypeDef] = []
        with _denials_named(nodes[0], placements[0]):
            for first in range(0, len(placements), _UPDATED_AT_ONCE):
                described += self._update(nodes[0], placements[first : first + _UPDATED_AT_ONCE], "DRAINING")
        return {
            names_of[instance["ec2InstanceId"]]: Drained(instance["containerInstanceArn"], _has_tasks(instance))
            for instance in described
            if instance["ec2InstanceId"] in names_of
        }

    def show_isolation(self, node: Node, placement: NodePlacement, incident_id: str) -> None:
        tag: TagTypeDef = {"key": names.ISOLATED_TAG, "value": incident_id}
        with _denials_named(node, placement.name), throttles_named("TagResource"):
            self._client().tag_resource(resourceArn=placement.name, tags=[tag])

    def undrain(self, node: Node, placement: NodePlacement) -> None:
        with _denials_named(node, placement.name):
            self._update(node, [placement.name], "ACTIVE")
            with throttles_named("UntagResource"):
                self._client().untag_resource(resourceArn=placement.name, tagKeys=[names.ISOLATED_TAG])

    def _update(
        self, node: Node, placements: Sequence[str], status: "ContainerInstanceStatusType"
    ) -> "Sequence[ContainerInstanceTypeDef]":
        """Return the container instances after the update to this status. Raises NotFound where none has it."""
        with throttles_named("UpdateContainerInstancesState"):
            answer = self._client().update_container_instances_state(
                cluster=node.cluster.name, containerInstances=list(placements), status=status
            )
        if len(answer["failures"]) == len(placements):
            raise NotFound(f"{node.instance_id} in cluster {node.cluster.name}: {answer['failures'][0].get('reason')}")
        return answer["containerInstances"]

    def liveness(self, node: Node) -> ProbeAnswer:
        if listed(self._client(), node.cluster.name, node.instance_id, connected=True):
            return ProbeAnswer("ECS", is_up=True, text="agent connected")
        if listed(self._client(), node.cluster.name, node.instance_id, connected=False):
            return ProbeAnswer("ECS", is_up=False, text="agent not connected")
        return ProbeAnswer("ECS", None, f"not registered in cluster {node.cluster.name}")

    def placements_of(self, nodes: Sequence[Node]) -> Mapping[str, NodePlacement]:
        placements: dict[str, NodePlacement] = {}
        for cluster in sorted({node.cluster.name for node in nodes}):
            names_of = {node.instance_id: node.node_id for node in nodes if node.cluster.name == cluster}
            # A node that was registered again is listed twice: prefer the entry whose agent is connected, then the
            # active one.
            for described in sorted(self._described(cluster, sorted(names_of)), key=_is_current):
                name = names_of.get(described["ec2InstanceId"])
                if name is not None:
                    placements[name] = NodePlacement(described["containerInstanceArn"], described["status"] == "ACTIVE")
        missing = [node.instance_id for node in nodes if node.node_id not in placements]
        if missing:
            raise NotFound(f"not registered in ECS cluster {nodes[0].cluster.name}: {', '.join(missing)}")
        return placements

    def _described(self, cluster: str, instance_ids: Sequence[str]) -> "Iterator[ContainerInstanceTypeDef]":
        for first in range(0, len(instance_ids), _FILTERED_AT_ONCE):
            wanted = _one_of(instance_ids[first : first + _FILTERED_AT_ONCE])
            with throttles_named("ListContainerInstances"):
                pages = self._client().get_paginator("list_container_instances")
                here = pages.paginate(cluster=cluster, filter=wanted)
                arns = [arn for page in here for arn in page["containerInstanceArns"]]
            for at in range(0, len(arns), _DESCRIBED_AT_ONCE):
                with throttles_named("DescribeContainerInstances"):
                    yield from self._client().describe_container_instances(
                        cluster=cluster, containerInstances=arns[at : at + _DESCRIBED_AT_ONCE]
                    )["containerInstances"]

    def start_rank(self, job: Job, run: Run, task: GangTask, environment: dict[str, str]) -> str:
        with throttles_named("StartTask"):
            answer = self._once().start_task(
                cluster=job.cluster.name,
                taskDefinition=job.task_definition,
                containerInstances=[task.placement],
                startedBy=names.started_by(job.job_id, run.number),
                overrides={"containerOverrides": [_override(job, environment)]},
                tags=[{"key": names.MANAGED_TAG, "value": names.MANAGED_TAG_VALUE}],
            )
        if answer["failures"]:
            failure = answer["failures"][0]
            why = " ".join(filter(None, [failure.get("reason"), failure.get("detail")]))
            raise PlacementRefused(f"ECS refused to start rank {task.rank} on {task.node_id}: {why}")
        return answer["tasks"][0]["taskArn"]

    def find_ranks(self, job: Job, run: Run) -> Mapping[str, str]:
        # ListTasks accepts no other filter beside this one. StartTask has no client token: this finds what it started.
        with throttles_named("ListTasks"):
            pages = self._client().get_paginator("list_tasks")
            here = pages.paginate(cluster=job.cluster.name, startedBy=names.started_by(job.job_id, run.number))
            tasks = [arn for page in here for arn in page["taskArns"]]
        by_machine: dict[str, str] = {}
        for first in range(0, len(tasks), _DESCRIBED_AT_ONCE):
            with throttles_named("DescribeTasks"):
                described = self._client().describe_tasks(
                    cluster=job.cluster.name, tasks=tasks[first : first + _DESCRIBED_AT_ONCE]
                )["tasks"]
            by_machine |= {task["containerInstanceArn"]: task["taskArn"] for task in described}
        return by_machine

    def confirm_ranks(self, job: Job, run: Run, ranks: Sequence[GangTask]) -> Sequence[GangTask]:
        mark, others = names.started_by(job.job_id, run.number), set[str]()
        for first in range(0, len(ranks), _DESCRIBED_AT_ONCE):
            asked = [task.task_id for task in ranks[first : first + _DESCRIBED_AT_ONCE]]
            with throttles_named("DescribeTasks"):
                described = self._client().describe_tasks(cluster=job.cluster.name, tasks=asked)["tasks"]
            others |= {task["taskArn"] for task in described if task.get("startedBy") != mark}
        return [task for task in ranks if task.task_id not in others]

    def stop_rank(self, cluster: Cluster, task_id: str, reason: str) -> None:
        from botocore.exceptions import ClientError

        try:
            with throttles_named("StopTask"):
                self._client().stop_task(cluster=cluster.name, task=task_id, reason=reason)
        except ClientError as error:
            # ECS deletes a stopped task after about an hour, and its tag before that, which the IAM condition needs.
            if code_of(error) == "InvalidParameterException":
                return
            if code_of(error) != "AccessDeniedException" or not self._is_stopping(cluster.name, task_id):
                raise

    def live_ranks(self, cluster: Cluster) -> Sequence[TaskChange]:
        described = [
            task for status in ("RUNNING", "STOPPED") for task in self._tasks(cluster.name, desiredStatus=status)
        ]
        return [rank for task in described for rank in _live_rank(EcsTaskDetail.model_validate(task))]

    def rank_statuses(self, cluster: Cluster, ranks: Sequence[GangTask]) -> Sequence[RankStatus]:
        firsts = range(0, len(ranks), _DESCRIBED_AT_ONCE)
        return [status for i in firsts for status in self._see_some(cluster.name, ranks[i : i + _DESCRIBED_AT_ONCE])]

    def _see_some(self, cluster: str, ranks: Sequence[GangTask]) -> Iterator[RankStatus]:
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
        yield from (RankStatus(task.task_id, _MISSING, task.placement in connected) for task in gone)

    def _connected(self, cluster: str, ranks: Sequence[GangTask]) -> set[str]:
        """Return those machines of these ranks whose ECS agents are connected."""
        with throttles_named("DescribeContainerInstances"):
            answer = self._client().describe_container_instances(
                cluster=cluster, containerInstances=sorted({task.placement for task in ranks})
            )
        return {entry["containerInstanceArn"] for entry in answer["containerInstances"] if entry["agentConnected"]}

    def _is_stopping(self, cluster: str, task_id: str) -> bool:
        with throttles_named("DescribeTasks"):
            tasks = self._client().describe_tasks(cluster=cluster, tasks=[task_id])["tasks"]
        return not tasks or tasks[0].get("desiredStatus") == "STOPPED"

    def unmanaged_tasks(self, node: Node, placement: NodePlacement) -> Sequence[UnmanagedTask]:
        return [_unmanaged_task(task) for task in self._tasks_on(node, placement) if _is_unmanaged(task)]

    def stop_unmanaged_task(self, node: Node, task: UnmanagedTask, reason: str) -> bool:
        # Checked first: a stop removes a task's tags, and without its tag a second stop would be denied.
        with throttles_named("DescribeTasks"):
            tasks = self._client().describe_tasks(cluster=node.cluster.name, tasks=[task.task_id])["tasks"]
        if not tasks:  # ECS deletes a stopped task after about an hour
            return False
        described = tasks[0]
        if described.get("desiredStatus") != "STOPPED":
            with throttles_named("StopTask"):
                answer = self._client().stop_task(cluster=node.cluster.name, task=task.task_id, reason=reason)
                described = answer["task"]
        # A task that had ended before has its own end's reason, and a repeated call finds the first one's.
        return reason in described.get("stoppedReason", reason)

    def restart_unmanaged_task(self, node: Node, task: UnmanagedTask) -> str:
        placement = self.placement_of(node)
        already = self._successor(node, placement, task)
        if already:
            return already
        with throttles_named("StartTask"):
            answer = self._once().start_task(
                cluster=node.cluster.name,
                containerInstances=[placement.name],
                startedBy=task.mark,
                **json.loads(task.scheduler_json),
            )
        if answer["failures"]:
            failure = answer["failures"][0]
            raise PlacementRefused(" ".join(filter(None, [failure.get("reason"), failure.get("detail")])))
        return answer["tasks"][0]["taskArn"]

    def _successor(self, node: Node, placement: NodePlacement, task: UnmanagedTask) -> str:
        """Return the task that an earlier call has started, whether it still runs or not. StartTask has no token.

        ListTasks accepts no other filter beside startedBy, and then returns only tasks whose desired status is RUNNING.
        """
        with throttles_named("ListTasks"):
            arns = self._client().list_tasks(cluster=node.cluster.name, startedBy=task.mark)["taskArns"]
        if arns:
            return arns[0]
        ended = self._tasks_on(node, placement, desiredStatus="STOPPED")
        return next((stopped["taskArn"] for stopped in ended if stopped.get("startedBy") == task.mark), "")

    def _tasks_on(self, node: Node, placement: NodePlacement, **only: Any) -> Iterator[Mapping[str, Any]]:
        """Return the tasks on a container instance, with their tags."""
        return self._tasks(node.cluster.name, containerInstance=placement.name, **only)

    def _tasks(self, cluster: str, **only: Any) -> Iterator[Mapping[str, Any]]:
        with throttles_named("ListTasks"):
            here = self._client().get_paginator("list_tasks").paginate(cluster=cluster, **only)
            tasks = [arn for page in here for arn in page["taskArns"]]
        for first in range(0, len(tasks), _DESCRIBED_AT_ONCE):
            with throttles_named("DescribeTasks"):
                yield from self._client().describe_tasks(
                    cluster=cluster, tasks=tasks[first : first + _DESCRIBED_AT_ONCE], include=["TAGS"]
                )["tasks"]


def ecs_with_jobs(
    make: "Callable[[str], Any]", make_once: "Callable[[str], Any]", task_roles: Sequence[str]
) -> Scheduler:
    """Return what ECS can do, task definitions and logs of jobs included; clients are created when first needed."""
    definitions = EcsTaskDefinitions(lambda: make("ecs"), partial(own_role_arn, names.JOB_EXECUTION_ROLE), task_roles)
    job_logs = EcsJobLogs(definitions, lambda region: client_in("logs", region) if region else make("logs"))
    return ecs_scheduler(lambda: make("ecs"), lambda: make_once("ecs"), definitions, job_logs)


def ecs_scheduler(
    client: "Callable[[], ECSClient]",
    once: "Callable[[], ECSClient]",
    definitions: EcsTaskDefinitions | None = None,
    job_logs: EcsJobLogs | None = None,
) -> Scheduler:
    """Return what ECS can do. It leaves to nodeheal what to start, and makes no machines."""
    ecs = EcsScheduler(client, once)
    return Scheduler(
        SchedulerKind.ECS,
        SchedulerTraits(),
        gate=ecs,
        registry=ecs,
        liveness=ecs,
        workloads=ecs,
        restarter=ecs,
        launcher=ecs,
        definitions=definitions,
        job_logs=job_logs,
    )


@contextmanager
def _denials_named(node: Node, placement: str) -> Iterator[None]:
    """Convert a denial into NotEnrolled: IAM requires the operator's mark."""
    from botocore.exceptions import ClientError

    try:
        yield
    except ClientError as error:
        if code_of(error) != "AccessDeniedException":
            raise
        raise NotEnrolled(
            f"ECS denies it: the container instance {placement.rsplit('/', 1)[-1]} lacks the tag "
            f"{names.MANAGED_TAG} = {names.MANAGED_TAG_VALUE}. Set it with `nodeheal nodes enroll {node.node_id}`; "
            "docs/ec2.md says how new machines get it"
        ) from error


def _one_of(instance_ids: Sequence[str]) -> str:
    """Return ECS's filter for these machines."""
    wanted = ", ".join(f"'{machine}'" for machine in instance_ids)
    return f"ec2InstanceId in [{wanted}]"


def _has_tasks(described: "ContainerInstanceTypeDef") -> bool:
    """Whether a task is to run there; ListTasks returns no others."""
    return described["runningTasksCount"] + described["pendingTasksCount"] > 0


def _is_current(described: "ContainerInstanceTypeDef") -> tuple[bool, bool]:
    """Sort key that places a container instance in use after those that the node has left."""
    return described.get("agentConnected", False), described["status"] == "ACTIVE"


def _seen(task: EcsTaskDetail) -> RankStatus:
    is_connected = task.connectivity != "DISCONNECTED"
    ended = (task.exit_code, task.stop_reason, task.stopped_at)
    return RankStatus(
        task.task_arn, task.status, is_connected, *ended, started_at=task.started_at, end_causes=task.end_causes
    )


def _live_rank(task: EcsTaskDetail) -> Iterator[TaskChange]:
    """Yield the rank that the task is, unless it has ended, or is to end and its machine is not there to end it."""
    is_told_in_vain = task.desired_status == "STOPPED" and task.connectivity == "DISCONNECTED"
    if task.rank_of is not None and task.status != "STOPPED" and not is_told_in_vain:
        placement = task.container_instance_arn or ""
        yield TaskChange(*task.rank_of, task.task_arn, placement, task.status, task.exit_code, task.stop_reason)


def _override(job: Job, environment: dict[str, str]) -> Any:
    """Return this run's overrides of its task definition."""
    command = {"command": list(job.command)} if job.command else {}
    variables = [{"name": name, "value": value} for name, value in sorted(environment.items())]
    return {"name": job.container, "environment": variables, **command}


def _is_unmanaged(task: Mapping[str, Any]) -> bool:
    started_by, group = task.get("startedBy", ""), task.get("group", "")
    is_of_service = started_by.startswith(_SERVICE_MARKS) or group.startswith(_SERVICE_MARKS)
    return not is_of_service and not names.is_rank(started_by)


def _unmanaged_task(task: Mapping[str, Any]) -> UnmanagedTask:
    tags, group = {tag["key"]: tag["value"] for tag in task.get("tags", [])}, task.get("group", "")
    request = {
        "taskDefinition": task["taskDefinitionArn"],
        "overrides": task.get("overrides", {}),
        "tags": [{"key": k, "value": v} for k, v in sorted(tags.items()) if not k.startswith(_RESERVED_TAGS)],
        **({} if group.startswith(_DEFAULT_GROUP) or not group else {"group": group}),
    }
    return UnmanagedTask(
        task_id=task["taskArn"],
        name=task["taskDefinitionArn"].rsplit("/", 1)[-1],
        started_by=task.get("startedBy", ""),
        may_be_stopped=tags.get(names.MANAGED_TAG) == names.MANAGED_TAG_VALUE,
        scheduler_json=json.dumps(request, sort_keys=True),
    )
