"""Lists the schedulers' events about nodes: each type with its model, and the function that creates drafts."""

from collections.abc import Callable, Mapping
from typing import Any

from nodeheal.adapters.aws.translate.foreign import ForeignEvent
from nodeheal.adapters.ecs.health_event import EcsHealthEvent, from_ecs_health
from nodeheal.adapters.ecs.instance_event import EcsInstanceEvent, from_ecs_instance
from nodeheal.adapters.ecs.lost_task_event import EcsTaskLostEvent, from_ecs_task_lost
from nodeheal.contract import names
from nodeheal.ports.signals import Draft

SIGNALS: Mapping[str, tuple[type[ForeignEvent], Callable[[Any], list[Draft]]]] = {
    names.ECS_INSTANCE_HEALTH_CHANGE: (EcsHealthEvent, from_ecs_health),
    names.ECS_INSTANCE_STATE_CHANGE: (EcsInstanceEvent, from_ecs_instance),
    names.ECS_TASK_STATE_CHANGE: (EcsTaskLostEvent, from_ecs_task_lost),
}
