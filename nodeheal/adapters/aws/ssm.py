"""NodeCommands on SSM documents.

Every command names the boot that it is meant for and when it expires; the node checks both.
"""

from datetime import datetime
from typing import TYPE_CHECKING

from nodeheal.adapters.aws.calls import code_of, throttles_named
from nodeheal.contract import names
from nodeheal.domain.node import Node
from nodeheal.ports import Clock, CommandStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from types_boto3_ssm import SSMClient

_STATES = {
    "Pending": "PENDING",
    "InProgress": "PENDING",
    "Delayed": "PENDING",
    "Cancelling": "PENDING",
    "Success": "SUCCEEDED",
}
# SSM accepts no shorter delivery timeout than this.
_SHORTEST_DELIVERY_SECONDS = 30


class SsmNodeCommands:
    """NodeCommands."""

    def __init__(self, client: "Callable[[], SSMClient]", once: "Callable[[], SSMClient]", clock: Clock) -> None:
        self._client = client
        self._once = once
        self._clock = clock

    def reboot(self, node: Node, expires_at: datetime) -> str:
        return self._send(names.REBOOT_DOCUMENT, node, expires_at, {})

    def diagnose(self, node: Node, level: int, request_id: str, expires_at: datetime) -> str:
        extra = {"Level": [str(level)], "RequestId": [request_id]}
        return self._send(names.DIAGNOSTICS_DOCUMENT, node, expires_at, extra)

    def look(self, node: Node, command_id: str) -> CommandStatus:
        from botocore.exceptions import ClientError

        try:
            with throttles_named("GetCommandInvocation"):
                seen = self._client().get_command_invocation(CommandId=command_id, InstanceId=node.instance_id)
        except ClientError as error:
            if code_of(error) == "InvocationDoesNotExist":
                return CommandStatus("UNKNOWN")
            raise
        return CommandStatus(_STATES.get(seen["Status"], "FAILED"), seen.get("StandardOutputContent", ""))

    def _send(self, document: str, node: Node, expires_at: datetime, extra: dict[str, list[str]]) -> str:
        left = int((expires_at - self._clock()).total_seconds())
        with throttles_named("SendCommand"):
            answer = self._once().send_command(
                DocumentName=document,
                InstanceIds=[node.instance_id],
                TimeoutSeconds=max(left, _SHORTEST_DELIVERY_SECONDS),
                Parameters={"BootId": [node.boot_id], "ExpiresAt": [str(int(expires_at.timestamp()))], **extra},
            )
        return answer["Command"]["CommandId"]
