"""A task as ECS describes it, in an event and in DescribeTasks alike: what we read of it, and what that means."""

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from nodeheal.adapters.ecs.stop_reasons import causes_of
from nodeheal.contract.names import JOB_VARIABLE, RUN_VARIABLE, started_by
from nodeheal.contract.vocabulary import EndCause

# ECS walks PROVISIONING, PENDING, ACTIVATING, RUNNING, DEACTIVATING, STOPPING, DEPROVISIONING, STOPPED. A rank that is
# on its way down is still a process that may write: only STOPPED is an end.
_RUNNING = ("RUNNING", "DEACTIVATING", "STOPPING", "DEPROVISIONING")


class EcsContainer(BaseModel):
    """One container of the task."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)
    exit_code: int | None = Field(default=None, ge=-(2**31), lt=2**31, alias="exitCode")
    reason: str = ""  # what the container runtime says: CannotPullContainerError, OutOfMemoryError


class EcsVariable(BaseModel):
    """One environment variable that a task was started with."""

    model_config = ConfigDict(extra="ignore")
    name: str = ""
    value: str = ""


class EcsContainerOverride(BaseModel):
    """What a container was started with beside its definition."""

    model_config = ConfigDict(extra="ignore")
    environment: list[EcsVariable] = Field(default_factory=list)


class EcsOverrides(BaseModel):
    """What a task was started with beside its definition."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)
    containers: list[EcsContainerOverride] = Field(default_factory=list, alias="containerOverrides")


class EcsTaskDetail(BaseModel):
    """The part of the description that we read. ECS adds fields over time, so unknown ones are ignored here."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)
    task_arn: str = Field(alias="taskArn")
    container_instance_arn: str | None = Field(default=None, alias="containerInstanceArn")
    last_status: str = Field(alias="lastStatus")
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
        """(job, run) of a rank that nodeheal started, None for any other task.

        `startedBy` is too short for a job's name, so the name is read from the environment that the rank was started
        with. `startedBy` proves it: only the job's own mark holds the digest of that name.
        """
        given = {pair.name: pair.value for one in self.overrides.containers for pair in one.environment}
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
        """Why it ended, in ECS's words and those of the container runtime; empty while it has not."""
        said = dict.fromkeys(c.reason for c in self.containers if c.reason)  # a sidecar may say the same
        return ": ".join(filter(None, [self.stop_code, self.stopped_reason, *said]))

    @property
    def end_causes(self) -> tuple[EndCause, ...]:
        """What its stop reason means."""
        return causes_of(self.stop_reason)

    @property
    def exit_code(self) -> int | None:
        """One code for the task: a sidecar that ended well does not speak for the trainer."""
        known = [c.exit_code for c in self.containers if c.exit_code is not None]
        return next((code for code in known if code != 0), known[0] if known else None)
