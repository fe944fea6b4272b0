"""A task as ECS describes it, in an event and in DescribeTasks: the fields that are read, and their meaning."""

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from nodeheal.adapters.ecs.stop_reasons import causes_of
from nodeheal.contract.names import JOB_VARIABLE, RUN_VARIABLE, started_by
from nodeheal.contract.vocabulary import EndCause

# ECS walks PROVISIONING, PENDING, ACTIVATING, RUNNING, DEACTIVATING, STOPPING, DEPROVISIONING, STOPPED. A rank that is
# stopping is still a process that may write: only STOPPED is an end.
_RUNNING = ("RUNNING", "DEACTIVATING", "STOPPING", "DEPROVISIONING")


class EcsContainer(BaseModel):
    """One container of the task."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)
    exit_code: int | None = Field(default=None, ge=-(2**31), lt=2**31, alias="exitCode")
    reason: str = ""  # the container runtime's reason: CannotPullContainerError, OutOfMemoryError


class EcsVariable(BaseModel):
    """One environment variable that a task was started with."""

    model_config = ConfigDict(extra="ignore")
    name: str = ""
    value: str = ""


class EcsContainerOverride(BaseModel):
    """Overrides of a container's definition."""

    model_config = ConfigDict(extra="ignore")
    environment: list[EcsVariable] = Field(default_factory=list)


class EcsOverrides(BaseModel):
    """Overrides of a task's definition."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)
    containers: list[EcsContainerOverride] = Field(default_factory=list, alias="containerOverrides")


_ESSENTIAL_EXITED = "Essential container in task exited"


class EcsTaskDetail(BaseModel):
    """The part of the description that is read. ECS adds fields over time, so unknown ones are ignored."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)
    task_arn: str = Field(alias="taskArn")
    container_instance_arn: str | None = Field(default=None, alias="containerInstanceArn")
    last_status: str = Field(alias="lastStatus")
    desired_status: str = Field(default="", alias="desiredStatus")
    started_by: str = Field(default="", alias="startedBy")
    stop_code: str = Field(default="", alias="stopCode")
    stopped_reason: str = Field(default="", alias="stoppedReason")
    started_at: AwareDatetime | None = Field(default=None, alias="startedAt")
    stopped_at: AwareDatetime | None = Field(default=None, alias="stoppedAt")
    connectivity: str = ""  # CONNECTED or DISCONNECTED
    containers: list[EcsContainer] = Field(default_factory=list)
    overrides: EcsOverrides = Field(default_factory=EcsOverrides)

    @property
    def rank_of(self) -> tuple[str, int] | None:
        """Return (job, run) of a rank that nodeheal started, None for any other task.

        `startedBy` is too short for a job's name, so the name comes from the rank's environment. `startedBy` proves it:
        only the job's own mark contains the digest of that name.
        """
        given = {pair.name: pair.value for container in self.overrides.containers for pair in container.environment}
        job_id, run = given.get(JOB_VARIABLE, ""), given.get(RUN_VARIABLE, "")
        if not run.isdecimal() or self.started_by != started_by(job_id, int(run)):
            return None
        return job_id, int(run)

    @property
    def status(self) -> str:
        """PENDING, RUNNING or STOPPED."""
        if self.last_status == "STOPPED":
            return "STOPPED"
        return "RUNNING" if self.last_status in _RUNNING else "PENDING"

    @property
    def stop_reason(self) -> str:
        """Why it ended, in the words of ECS and the container runtime; empty before its end."""
        reasons = dict.fromkeys(c.reason for c in self.containers if c.reason)  # a sidecar may report the same
        # What the stop code says already, in other words.
        reason = "" if self.stopped_reason == _ESSENTIAL_EXITED and self.stop_code else self.stopped_reason
        return ": ".join(filter(None, [self.stop_code, reason, *reasons]))

    @property
    def end_causes(self) -> tuple[EndCause, ...]:
        """The causes in its stop reason."""
        return causes_of(self.stop_reason)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the task: that of a sidecar that ended well does not count."""
        known = [c.exit_code for c in self.containers if c.exit_code is not None]
        return next((code for code in known if code != 0), known[0] if known else None)
