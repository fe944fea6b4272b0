"""Implements ECS's operations on task definitions and tasks."""

from sandbox.authorization import ANY
from sandbox.aws_json import AwsError, Caller, Json, Operation
from sandbox.ecs_access import MISSING, in_cluster, must_pass_roles
from sandbox.ecs_agent import EcsAgents
from sandbox.ecs_state import (
    ContainerInstance,
    EcsState,
    Task,
    TaskDefinition,
    arn,
    last_part,
    new_id,
    tags_from_list,
    tags_to_list,
)
from sandbox.iam import resource_tags

START_LIMIT = 10  # StartTask's limit of container instances


class TaskOperations:
    """Task definitions, and their tasks."""

    def __init__(self, state: EcsState, agents: EcsAgents) -> None:
        self._state = state
        self._agents = agents

    def operations(self) -> list[Operation]:
        """Return the served operations."""
        return [
            self.register_task_definition,
            self.describe_task_definition,
            self.start_task,
            self.stop_task,
            self.list_tasks,
            self.describe_tasks,
        ]

    def register_task_definition(self, caller: Caller, request: Json) -> Json:
        """RegisterTaskDefinition: a new revision of a family."""
        family = request["family"]
        caller.must_be_allowed("ecs:RegisterTaskDefinition", arn("task-definition", f"{family}:*"))
        must_pass_roles(caller, request)
        if len(request["containerDefinitions"]) != 1:
            raise AwsError("ClientException", "The sandbox runs tasks of exactly one container.")
        if request.get("networkMode") == "awsvpc":
            raise AwsError("ClientException", "External instances do not support the awsvpc network mode.")
        revisions = self._state.definitions.setdefault(family, [])
        body = {key: value for key, value in request.items() if key not in ("family", "tags")}
        made = TaskDefinition(family, len(revisions) + 1, body, tags_from_list(request.get("tags", [])))
        revisions.append(made)
        return {"taskDefinition": made.describe(), "tags": tags_to_list(made.tags)}

    def describe_task_definition(self, caller: Caller, request: Json) -> Json:
        """DescribeTaskDefinition."""
        caller.must_be_allowed("ecs:DescribeTaskDefinition", "*")
        found = self._state.definition(request["taskDefinition"])
        return {"taskDefinition": found.describe(), "tags": tags_to_list(found.tags)}

    def start_task(self, caller: Caller, request: Json) -> Json:
        """StartTask: a task on each of up to ten container instances. A task that cannot start is a failure in the
        answer.
        """
        cluster = self._state.cluster(request.get("cluster"))
        if not 1 <= len(request["containerInstances"]) <= START_LIMIT:
            raise AwsError("InvalidParameterException", f"1 to {START_LIMIT} container instances are needed")
        definition = self._state.definition(request["taskDefinition"])
        self._authorise_start(caller, request, cluster, definition)
        started, failures = [], []
        for wanted in request["containerInstances"]:
            instance = self._state.instance(cluster, wanted)
            why = _why_not(instance, definition, self._state.live_tasks(instance) if instance else [])
            if instance is None or why:
                missing = arn("container-instance", f"{cluster}/{last_part(wanted)}")
                failures.append({"arn": missing, "reason": why})
                continue
            started.append(self._start(request, cluster, instance, definition))
        return {"tasks": [task.describe() for task in started], "failures": failures}

    def stop_task(self, caller: Caller, request: Json) -> Json:
        """StopTask: returns at once; an event reports the end."""
        cluster = self._state.cluster(request.get("cluster"))
        task = self._state.task(cluster, request["task"])
        name = task.arn if task else arn("task", f"{cluster}/{last_part(request['task'])}")
        caller.must_be_allowed("ecs:StopTask", name, in_cluster(cluster, task.tags if task else {}))
        if task is None:
            raise AwsError("InvalidParameterException", "The referenced task was not found.")
        self._agents.stop(task, request.get("reason", "Task stopped by user"))
        return {"task": task.describe()}

    def list_tasks(self, caller: Caller, request: Json) -> Json:
        """ListTasks, by startedBy, or by containerInstance, family and desiredStatus."""
        if "startedBy" in request and request.keys() & {"containerInstance", "family", "desiredStatus", "launchType"}:
            raise AwsError("InvalidParameterException", "cannot specify startedBy with other arguments")
        cluster = self._state.cluster(request.get("cluster"))
        instance = (
            self._state.instance(cluster, request["containerInstance"]) if "containerInstance" in request else None
        )
        where = instance.arn if instance else ANY
        caller.must_be_allowed("ecs:ListTasks", where, in_cluster(cluster, instance.tags if instance else {}))
        found = [
            task.arn
            for task in self._state.tasks.values()
            if task.cluster_arn == arn("cluster", cluster)
            and task.desired_status == request.get("desiredStatus", "RUNNING")
            and request.get("startedBy") in (None, task.started_by)
            and request.get("family") in (None, task.definition.family)
            and ("containerInstance" not in request or task.instance is instance)
        ]
        return {"taskArns": found}

    def describe_tasks(self, caller: Caller, request: Json) -> Json:
        """DescribeTasks."""
        cluster = self._state.cluster(request.get("cluster"))
        found, failures = [], []
        for wanted in request["tasks"]:
            task = self._state.task(cluster, wanted)
            name = task.arn if task else arn("task", f"{cluster}/{last_part(wanted)}")
            caller.must_be_allowed("ecs:DescribeTasks", name, in_cluster(cluster, task.tags if task else {}))
            if task is None:
                failures.append({"arn": name, "reason": MISSING})
            else:
                tags = {"tags": tags_to_list(task.tags)} if "TAGS" in request.get("include", []) else {}
                found.append(task.describe() | tags)
        return {"tasks": found, "failures": failures}

    def _start(self, request: Json, cluster: str, instance: ContainerInstance, definition: TaskDefinition) -> Task:
        task = Task(
            arn=arn("task", f"{cluster}/{new_id()}"),
            cluster_arn=arn("cluster", cluster),
            instance=instance,
            definition=definition,
            overrides=request.get("overrides", {}),
            group=request.get("group", f"family:{definition.family}"),
            started_by=request.get("startedBy", ""),
            tags=tags_from_list(request.get("tags", [])),
        )
        self._state.tasks[task.arn] = task
        self._agents.launch(task)
        return task

    def _authorise_start(self, caller: Caller, request: Json, cluster: str, definition: TaskDefinition) -> None:
        added = tags_from_list(request.get("tags", []))
        asked: dict[str, str | list[str]] = {"ecs:cluster": arn("cluster", cluster)}
        asked |= resource_tags(definition.tags) | resource_tags(added, "aws:RequestTag/")
        if added:
            asked["aws:TagKeys"] = list(added)
        instances = [self._state.instance(cluster, wanted) for wanted in request["containerInstances"]]
        for instance in instances:
            where = {"ecs:container-instances": instance.arn} if instance else {}
            caller.must_be_allowed("ecs:StartTask", definition.arn, {**asked, **where})
        if added:  # AWS authorises tagging on creation as an action of its own
            tags = resource_tags(added, "aws:RequestTag/") | {"aws:TagKeys": list(added)}
            creating = {**tags, "ecs:CreateAction": "StartTask"}
            caller.must_be_allowed("ecs:TagResource", arn("task", f"{cluster}/*"), creating)
        must_pass_roles(caller, {**definition.body, **request.get("overrides", {})})


def _why_not(instance: ContainerInstance | None, definition: TaskDefinition, tasks: list[Task]) -> str:
    """Return AWS's reason for not starting a task there; empty if it may start."""
    if instance is None:
        return MISSING
    if instance.status != "ACTIVE":
        return "INACTIVE"
    if not instance.agent_connected:
        return "AGENT"
    if sum(task.definition.gpus for task in tasks) + definition.gpus > instance.gpus:
        return "RESOURCE:GPU"
    return ""
