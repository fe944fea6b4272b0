"""Holds the state of ECS: clusters, task definitions, container instances and tasks, and their descriptions."""

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sandbox.aws_json import AwsError
from sandbox.iam import ACCOUNT, REGION

if TYPE_CHECKING:
    import subprocess

Json = dict[str, Any]
DEFAULT_STOP_SECONDS = 30  # ECS_CONTAINER_STOP_TIMEOUT


def arn(kind: str, name: str) -> str:
    """Return the ARN of an ECS resource."""
    return f"arn:aws:ecs:{REGION}:{ACCOUNT}:{kind}/{name}"


def new_id() -> str:
    """Return an ECS id: 32 hexadecimal digits."""
    return secrets.token_hex(16)


def now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


def last_part(name_or_arn: str) -> str:
    """Return the part after the last slash: ECS accepts names and ARNs."""
    return name_or_arn.rsplit("/", 1)[-1]


def tags_from_list(tags: list[Json]) -> dict[str, str]:
    """Convert AWS's list of tags into a mapping."""
    return {tag["key"]: tag.get("value", "") for tag in tags}


def tags_to_list(tags: dict[str, str]) -> list[Json]:
    """Convert a mapping into AWS's list of tags."""
    return [{"key": key, "value": value} for key, value in tags.items()]


@dataclass
class TaskDefinition:
    """One revision of a family."""

    family: str
    revision: int
    body: Json
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def arn(self) -> str:
        """Return its ARN."""
        return arn("task-definition", f"{self.family}:{self.revision}")

    @property
    def container(self) -> Json:
        """Return the one container that the sandbox runs."""
        first: Json = self.body["containerDefinitions"][0]
        return first

    @property
    def gpus(self) -> int:
        """Return the number of GPUs of its tasks."""
        wants = self.container.get("resourceRequirements", [])
        return sum(int(want["value"]) for want in wants if want["type"] == "GPU")

    @property
    def stop_seconds(self) -> int:
        """Return the seconds between SIGTERM and SIGKILL."""
        return int(self.container.get("stopTimeout", DEFAULT_STOP_SECONDS))

    def describe(self) -> Json:
        """Describe it as DescribeTaskDefinition does."""
        return {
            **self.body,
            "taskDefinitionArn": self.arn,
            "family": self.family,
            "revision": self.revision,
            "status": "ACTIVE",
            "compatibilities": ["EXTERNAL", "EC2"],
        }


@dataclass
class ContainerInstance:
    """A node as ECS sees it."""

    arn: str
    cluster: str
    node_id: str
    gpus: int
    tags: dict[str, str]
    attributes: dict[str, str] = field(default_factory=dict)
    status: str = "ACTIVE"
    agent_connected: bool = True
    version: int = 1
    registered_at: datetime = field(default_factory=now)

    def describe(self, tasks: "list[Task]") -> Json:
        """Describe it as DescribeContainerInstances does; `tasks` are the live ones here."""
        used = sum(task.definition.gpus for task in tasks)
        return {
            "containerInstanceArn": self.arn,
            "ec2InstanceId": self.node_id,
            "version": self.version,
            "versionInfo": {"agentVersion": "1.89.0"},
            "registeredResources": [_gpus(self.gpus)],
            "remainingResources": [_gpus(self.gpus - used)],
            "status": self.status,
            "agentConnected": self.agent_connected,
            "runningTasksCount": sum(task.last_status == "RUNNING" for task in tasks),
            "pendingTasksCount": sum(task.last_status == "PENDING" for task in tasks),
            "attributes": [{"name": "ecs.os-type", "value": "linux"}],
            "registeredAt": self.registered_at,
            "attachments": [],
        }


@dataclass
class Task:
    """One task. `exit_code` is None until its container has ended, and stays None if it never ran."""

    arn: str
    cluster_arn: str
    instance: ContainerInstance
    definition: TaskDefinition
    overrides: Json
    group: str
    started_by: str
    tags: dict[str, str]
    created_at: datetime = field(default_factory=now)
    last_status: str = "PENDING"
    desired_status: str = "RUNNING"
    version: int = 1
    started_at: datetime | None = None
    stopping_at: datetime | None = None
    stopped_at: datetime | None = None
    stop_code: str = ""
    stopped_reason: str = ""
    exit_code: int | None = None
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def is_live(self) -> bool:
        """Whether ECS still counts it."""
        return self.last_status != "STOPPED"

    @property
    def environment(self) -> dict[str, str]:
        """Return the container's environment: the definition's, with the overrides."""
        pairs = list(self.definition.container.get("environment", []))
        for override in self._overrides:
            pairs += override.get("environment", [])
        return {pair["name"]: pair["value"] for pair in pairs}

    @property
    def command(self) -> list[str]:
        """Return the container's command: the definition's, or its override."""
        given = [override["command"] for override in self._overrides if override.get("command")]
        command: list[str] = (given or [self.definition.container.get("command", [])])[-1]
        return command

    @property
    def _overrides(self) -> list[Json]:
        name = self.definition.container["name"]
        return [one for one in self.overrides.get("containerOverrides", []) if one.get("name") == name]

    def describe(self) -> Json:
        """Describe it as DescribeTasks does."""
        body: Json = {
            "taskArn": self.arn,
            "clusterArn": self.cluster_arn,
            "containerInstanceArn": self.instance.arn,
            "taskDefinitionArn": self.definition.arn,
            "group": self.group,
            "launchType": "EXTERNAL",
            "lastStatus": self.last_status,
            "desiredStatus": self.desired_status,
            "version": self.version,
            "createdAt": self.created_at,
            "overrides": self.overrides,
            "attachments": [],
            "containers": [self._describe_container()],
            "connectivity": "CONNECTED" if self.instance.agent_connected else "DISCONNECTED",
        }
        optional = {
            "startedBy": self.started_by,
            "startedAt": self.started_at,
            "stoppingAt": self.stopping_at,
            "stoppedAt": self.stopped_at,
            "stopCode": self.stop_code,
            "stoppedReason": self.stopped_reason,
        }
        return {**body, **{key: value for key, value in optional.items() if value}}

    def _describe_container(self) -> Json:
        container = self.definition.container
        body: Json = {
            "containerArn": f"{self.arn.replace(':task/', ':container/')}/{container['name']}",
            "taskArn": self.arn,
            "name": container["name"],
            "image": container["image"],
            "lastStatus": self.last_status,
            "networkInterfaces": [],
        }
        if self.exit_code is not None:
            body["exitCode"] = self.exit_code
        return body


def _gpus(count: int) -> Json:
    return {"name": "GPU", "type": "STRINGSET", "stringSetValue": [f"GPU-{index}" for index in range(count)]}


class EcsState:
    """The whole state of ECS, by name or ARN. The service does the locking."""

    def __init__(self) -> None:
        self.clusters: dict[str, dict[str, str]] = {}  # name -> tags
        self.definitions: dict[str, list[TaskDefinition]] = {}  # family -> revisions
        self.instances: dict[str, ContainerInstance] = {}  # ARN ->
        self.tasks: dict[str, Task] = {}  # ARN ->

    def cluster(self, name_or_arn: str | None) -> str:
        """Return the name of an existing cluster."""
        name = last_part(name_or_arn or "default")
        if name not in self.clusters:
            raise AwsError("ClusterNotFoundException", "Cluster not found.")
        return name

    def definition(self, name: str) -> TaskDefinition:
        """Return a task definition by ARN, family:revision, or family (its newest)."""
        family, _, revision = last_part(name).partition(":")
        revisions = self.definitions.get(family, [])
        wanted = [found for found in revisions if not revision or found.revision == int(revision)]
        if not wanted:
            raise AwsError("ClientException", "Unable to describe task definition.")
        return wanted[-1]

    def instance(self, cluster: str, name: str) -> ContainerInstance | None:
        """Return a container instance of the cluster by id or ARN."""
        return self.instances.get(arn("container-instance", f"{cluster}/{last_part(name)}"))

    def task(self, cluster: str, name: str) -> Task | None:
        """Return a task of the cluster by id or ARN."""
        return self.tasks.get(arn("task", f"{cluster}/{last_part(name)}"))

    def live_tasks(self, instance: ContainerInstance) -> list[Task]:
        """Return the tasks that use resources of an instance."""
        return [task for task in self.tasks.values() if task.instance is instance and task.is_live]
