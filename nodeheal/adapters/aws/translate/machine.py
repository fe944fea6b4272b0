"""Translates events of EC2 and EC2 Auto Scaling into changes of a machine."""

from datetime import UTC, datetime

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from nodeheal.domain.fleet.machine import Launch


class GroupLaunchDetail(BaseModel):
    """EC2 Instance Launch Successful and Unsuccessful: the part of the detail that is read."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)
    group: str = Field(alias="AutoScalingGroupName")
    machine_id: str = Field(default="", alias="EC2InstanceId")  # an unsuccessful launch has none
    started_at: AwareDatetime = Field(alias="StartTime")
    status_code: str = Field(default="", alias="StatusCode")
    status_message: str = Field(default="", alias="StatusMessage")


class MachineStateDetail(BaseModel):
    """EC2 Instance State-change Notification: the part of the detail that is read."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)
    machine_id: str = Field(alias="instance-id")
    state: str

    @property
    def is_gone(self) -> bool:
        """Whether its place, and its share of a reservation, is free now."""
        return self.state == "terminated"

    @property
    def has_stopped(self) -> bool:
        """Whether it is stopped, and can be started again."""
        return self.state == "stopped"


def group_launch(detail: GroupLaunchDetail, has_failed: bool) -> Launch:
    """Return the group's launch result. A failure always has a reason."""
    why = detail.status_message or detail.status_code or "no reason given"
    at: datetime = detail.started_at.astimezone(UTC)
    return Launch(detail.group, at, detail.machine_id, why if has_failed else "")
