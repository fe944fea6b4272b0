"""Finds task definitions on ECS, or registers them from a job file."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nodeheal.adapters.aws.calls import code_of, throttles_named
from nodeheal.contract import names
from nodeheal.contract.job_spec import MOUNTS, JobSpec, Mount
from nodeheal.domain.errors import NotFound
from nodeheal.domain.jobs.job_log import LogLocation
from nodeheal.domain.jobs.task_definition import Container, TaskDefinition

if TYPE_CHECKING:
    from types_boto3_ecs import ECSClient

_REFUSED = ("ClientException", "InvalidParameterException")


class EcsTaskDefinitions:
    """Implements TaskDefinitions. `execution_role`: finds the ARN of the role by which the ECS agent pulls the image
    and writes the log. `task_roles`: the only ones that a job's program may be given.
    """

    def __init__(
        self, ecs: "Callable[[], ECSClient]", execution_role: Callable[[], str], task_roles: Sequence[str] = ()
    ) -> None:
        self._ecs, self._find_execution_role, self._task_roles = ecs, execution_role, frozenset(task_roles)

    @cached_property
    def _execution_role(self) -> str:
        return self._find_execution_role()

    def find(self, name: str) -> TaskDefinition:
        from botocore.exceptions import ClientError

        try:
            with throttles_named("DescribeTaskDefinition"):
                definition: Any = self._ecs().describe_task_definition(taskDefinition=name)["taskDefinition"]
        except ClientError as error:
            if code_of(error) not in _REFUSED:
                raise
            raise NotFound(f"task_definition: ECS has no task definition {name} in this Region") from error
        if definition.get("status", "ACTIVE") != "ACTIVE":
            raise NotFound(f"task_definition: {name} is {definition['status']}: no task can be started from it")
        if definition.get("taskRoleArn") == self._execution_role:
            raise ValueError(f"task_definition: {name} gives the program the execution role; name another task role")
        return read_definition(definition)

    def register(self, spec: JobSpec) -> TaskDefinition:
        from botocore.exceptions import ClientError

        if spec.task_role is not None and spec.task_role not in self._task_roles - {self._execution_role}:
            raise ValueError(f"task_role: {spec.task_role} is not named in the setting task_role_arns")
        body: Any = self.shown(spec)
        try:
            with throttles_named("RegisterTaskDefinition"):
                made: Any = self._ecs().register_task_definition(**body)["taskDefinition"]
        except ClientError as error:
            if code_of(error) not in _REFUSED:
                raise
            raise ValueError(f"image: ECS refuses the task definition: {error.response['Error']['Message']}") from error
        return read_definition(made)

    def shown(self, spec: JobSpec) -> dict[str, object]:
        return definition_of(spec, self._ecs().meta.region_name, self._execution_role)


def definition_of(spec: JobSpec, region: str, execution_role: str) -> dict[str, object]:
    """Build RegisterTaskDefinition's request."""
    mounts = _mounts(spec)
    body: dict[str, object] = {
        "family": f"{names.JOB_FAMILY_PREFIX}{spec.name}",
        "requiresCompatibilities": ["EXTERNAL", "EC2"],
        "networkMode": "host",
        "executionRoleArn": execution_role,
        "containerDefinitions": [_container(spec, region)],
        "volumes": [{"name": name, "host": {"sourcePath": mount.source}} for name, mount in mounts.items()],
        "tags": [{"key": names.JOB_TAG, "value": spec.name}],
    }
    return {**body, "taskRoleArn": spec.task_role} if spec.task_role else body


def _container(spec: JobSpec, region: str) -> dict[str, object]:
    mounts = [
        {"sourceVolume": name, "containerPath": mount.target, "readOnly": mount.read_only}
        for name, mount in _mounts(spec).items()
    ]
    optional: dict[str, object] = {}
    # An init process forwards SIGTERM to a program that was not written to be a container's first process.
    linux: dict[str, object] = {"initProcessEnabled": True, "sharedMemorySize": spec.shared_memory_mib}
    if spec.devices:
        linux["devices"] = [
            {"hostPath": path, "containerPath": path, "permissions": ["read", "write", "mknod"]}
            for path in spec.devices
        ]
    if spec.command:
        optional["command"] = list(spec.command)
    if spec.accelerators:
        optional["resourceRequirements"] = [{"type": "GPU", "value": str(spec.accelerators)}]
    return {
        "name": spec.container,
        "image": spec.image,
        "essential": True,
        "memoryReservation": spec.memory_mib,  # a reservation without a limit: a training job may use the whole node
        "stopTimeout": spec.stop_seconds,
        "environment": [{"name": name, "value": value} for name, value in sorted(spec.environment.items())],
        "mountPoints": mounts,
        "linuxParameters": linux,
        "ulimits": [{"name": "memlock", "softLimit": -1, "hardLimit": -1}],  # RDMA registers memory
        "logConfiguration": {"logDriver": "awslogs", "options": _log(spec, region)},
        **optional,
    }


def _log(spec: JobSpec, region: str) -> dict[str, str]:
    """Return the options of the log driver."""
    return {
        "awslogs-group": names.JOB_LOG_GROUP,
        "awslogs-region": region,
        "awslogs-stream-prefix": spec.name,
        # A program must not block because its log cannot be written.
        "mode": "non-blocking",
        "max-buffer-size": "4m",
    }


def _mounts(spec: JobSpec) -> dict[str, Mount]:
    """Return what the container sees of its node, by the name of the volume."""
    theirs = (mount for mount in spec.mounts if mount not in MOUNTS.values())
    return {**MOUNTS, **{f"mount-{number}": mount for number, mount in enumerate(theirs)}}


def read_definition(definition: dict[str, Any]) -> TaskDefinition:
    """Parse DescribeTaskDefinition's answer."""
    containers = tuple(_container_of(container) for container in definition["containerDefinitions"])
    return TaskDefinition(definition["taskDefinitionArn"], containers, definition.get("networkMode") == "host")


def _container_of(body: dict[str, Any]) -> Container:
    wants = body.get("resourceRequirements") or []
    log = body.get("logConfiguration") or {}
    options = log.get("options") or {}
    place = None
    if log.get("logDriver") == "awslogs" and "awslogs-stream-prefix" in options:
        place = LogLocation(
            options["awslogs-group"], options["awslogs-stream-prefix"], options.get("awslogs-region", "")
        )
    return Container(body["name"], sum(int(want["value"]) for want in wants if want["type"] == "GPU"), place)
