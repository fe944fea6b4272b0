"""ECS Task State Change, of a task that nodeheal did not start: its machine is gone.

Exit codes of such tasks name no machine. The event has a container instance, whose machine only ECS knows.
"""

import re

from pydantic import Field

from nodeheal.adapters.aws.translate.foreign import Foreign, ForeignEvent
from nodeheal.contract.names import is_rank
from nodeheal.contract.vocabulary import Family
from nodeheal.ports.signals import Draft

_HOST_LOST = re.compile(r"Host EC2 \(instance (i-[0-9a-f]+)\) (?:terminated|stopped)")


class _Detail(Foreign):
    task_arn: str = Field(alias="taskArn", min_length=1)
    last_status: str = Field(alias="lastStatus")
    started_by: str = Field(default="", alias="startedBy")
    stop_code: str = Field(default="", alias="stopCode")
    stopped_reason: str = Field(default="", alias="stoppedReason")


class EcsTaskLostEvent(ForeignEvent):
    """The event."""

    detail: _Detail


def from_ecs_task_lost(event: EcsTaskLostEvent) -> list[Draft]:
    """Return one advisory draft where the reason names a lost machine: EC2's own event is more precise."""
    detail = event.detail
    lost = _HOST_LOST.search(detail.stopped_reason)
    if detail.last_status != "STOPPED" or lost is None or is_rank(detail.started_by):
        return []
    return [
        Draft(
            instance_id=lost[1],
            source="aws.ecs",
            family=Family.task,
            code="host_lost",
            key=f"{detail.task_arn}|host_lost",
            observed_at=event.time,
            evidence=f"{detail.stop_code}: {detail.stopped_reason}",
            is_advisory=True,
        )
    ]
