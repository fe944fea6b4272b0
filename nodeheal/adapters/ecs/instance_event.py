"""ECS Container Instance State Change: whether the ECS agent of a node is connected.

Disconnections are normal several times an hour. Events come more than once and out of order; the version orders them.
It counts for one registration: a node that registers again starts at the beginning.
"""

from pydantic import Field

from nodeheal.adapters.aws.translate.foreign import Foreign, ForeignEvent
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.ports.signals import Draft

TOPIC = "ecs/instance"


class _Detail(Foreign):
    instance_id: str | None = Field(default=None, alias="ec2InstanceId")  # absent on capacity that has no instance
    arn: str = Field(alias="containerInstanceArn", min_length=1)
    is_connected: bool = Field(alias="agentConnected")
    status: str = "ACTIVE"
    version: int


class EcsInstanceEvent(ForeignEvent):
    """The event."""

    detail: _Detail


def from_ecs_instance(event: EcsInstanceEvent) -> list[Draft]:
    """Return one advisory draft for any state: a reconnection makes an older disconnection history."""
    detail = event.detail
    if detail.instance_id is None:
        return []
    state = "connected" if detail.is_connected else "not connected"
    return [
        Draft(
            instance_id=detail.instance_id,
            source="aws.ecs",
            family=Family.heartbeat,
            code=names.AGENT_DISCONNECTED,
            verdict=Verdict.OK if detail.is_connected else None,
            key=f"{detail.arn}|{detail.version}",
            observed_at=event.time,
            evidence=f"ECS agent {state}, instance {detail.status}, version {detail.version}",
            is_advisory=True,
            topic=f"{TOPIC}#{detail.arn.rpartition('/')[2]}",
            version=detail.version,
        )
    ]
