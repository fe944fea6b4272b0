"""Translates EC2 Command Invocation Status-change Notification into the result of a command on one node."""

from pydantic import BaseModel, ConfigDict, Field

_FAILED = frozenset(
    {"Failed", "TimedOut", "Cancelled", "Undeliverable", "Terminated", "DeliveryTimedOut", "ExecutionTimedOut"}
)


class SsmInvocationDetail(BaseModel):
    """The part of the event's detail that is read."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)
    command_id: str = Field(alias="command-id")
    instance_id: str = Field(alias="instance-id")
    status: str

    @property
    def has_failed(self) -> bool:
        """Whether the command ended without success. Success is proven by the node's own event."""
        return self.status.replace(" ", "") in _FAILED
