"""ECS Task State Change -> what happened to one rank of one run."""

from dataclasses import dataclass
from datetime import datetime

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from nodeheal.contract.names import parse_started_by


class _Container(BaseModel):
    model_config = ConfigDict(extra="ignore", populate_by_name=True)
    exit_code: int | None = Field(default=None, alias="exitCode")
    reason: str = ""  # what the container runtime says: CannotPullContainerError, OutOfMemoryError


class EcsTaskDetail(BaseModel):
    """The part of the event's detail that we read. ECS adds fields over time, so unknown ones are ignored here."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)
    task_arn: str = Field(alias="taskArn")
    container_instance_arn: str | None = Field(default=None, alias="containerInstanceArn")
    last_status: str = Field(alias="lastStatus")
    started_by: str = Field(default="", alias="startedBy")
    stop_code: str = Field(default="", alias="stopCode")
    stopped_reason: str = Field(default="", alias="stoppedReason")
    stopped_at: AwareDatetime | None = Field(default=None, alias="stoppedAt")
    containers: list[_Container] = Field(default_factory=list)


@dataclass(frozen=True)
class TaskChange:
    """A rank is PENDING, RUNNING or STOPPED now."""

    job_id: str
    run: int
    task_id: str
    placement: str
    status: str
    exit_code: int | None
    stop_reason: str
    stopped_at: datetime | None = None


def task_change(detail: EcsTaskDetail) -> TaskChange | None:
    """The change, or None for a task that nodeheal did not start."""
    mark = parse_started_by(detail.started_by)
    if mark is None or detail.container_instance_arn is None:
        return None
    # ECS walks PROVISIONING, PENDING, ACTIVATING, RUNNING, DEACTIVATING, STOPPING, DEPROVISIONING, STOPPED. A rank that
    # is on its way down is still a process that may write: only STOPPED is an end.
    running = ("RUNNING", "DEACTIVATING", "STOPPING", "DEPROVISIONING")
    status = detail.last_status if detail.last_status == "STOPPED" else "RUNNING"
    if detail.last_status not in (*running, "STOPPED"):
        status = "PENDING"
    said = dict.fromkeys(c.reason for c in detail.containers if c.reason)  # a sidecar may say the same
    reason = ": ".join(filter(None, [detail.stop_code, detail.stopped_reason, *said]))
    return TaskChange(
        job_id=mark[0],
        run=mark[1],
        task_id=detail.task_arn,
        placement=detail.container_instance_arn,
        status=status,
        exit_code=_worst([c.exit_code for c in detail.containers]),
        stop_reason=reason,
        stopped_at=detail.stopped_at,
    )


def _worst(codes: list[int | None]) -> int | None:
    """One code for the task: a sidecar that ended well does not speak for the trainer."""
    known = [code for code in codes if code is not None]
    return next((code for code in known if code != 0), known[0] if known else None)
