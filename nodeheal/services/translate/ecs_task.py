"""ECS Task State Change -> what happened to one rank of one run."""

from dataclasses import dataclass
from datetime import datetime

from nodeheal.contract.ecs_task import EcsTaskDetail


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
    started_at: datetime | None = None  # when it began to run; None: it has not, or nobody says


def task_change(detail: EcsTaskDetail) -> TaskChange | None:
    """The change, or None for a task that nodeheal did not start."""
    rank = detail.rank_of
    if rank is None or detail.container_instance_arn is None:
        return None
    return TaskChange(
        job_id=rank[0],
        run=rank[1],
        task_id=detail.task_arn,
        placement=detail.container_instance_arn,
        status=detail.status,
        exit_code=detail.exit_code,
        stop_reason=detail.stop_reason,
        stopped_at=detail.stopped_at,
        started_at=detail.started_at,
    )
