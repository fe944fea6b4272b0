"""Translates ECS Task State Change into the change of one rank of one run."""

from nodeheal.adapters.ecs.task import EcsTaskDetail
from nodeheal.ports.scheduler import TaskChange


def task_change(detail: EcsTaskDetail) -> TaskChange | None:
    """Return the change, or None for a task that nodeheal did not start."""
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
        end_causes=detail.end_causes,
    )
