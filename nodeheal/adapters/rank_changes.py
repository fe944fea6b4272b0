"""Lists the schedulers' events about ranks: each type, and the function that parses its detail.

It returns None where the task is not a rank, and raises ValidationError.
"""

from collections.abc import Callable, Mapping
from typing import Any

from nodeheal.adapters.ecs.rank_change import task_change
from nodeheal.adapters.ecs.task import EcsTaskDetail
from nodeheal.contract import names
from nodeheal.ports.scheduler import TaskChange

RANK_CHANGES: Mapping[str, Callable[[Any], TaskChange | None]] = {
    names.ECS_TASK_STATE_CHANGE: lambda detail: task_change(EcsTaskDetail.model_validate(detail)),
}
