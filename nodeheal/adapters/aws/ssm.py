"""Implements NodeCommands by SSM documents.

Every command contains its boot id and its expiry; the node checks both.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nodeheal.adapters.aws.calls import code_of, throttles_named
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Provider
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import Node
from nodeheal.ports.clock import Clock
from nodeheal.ports.commands import Command, CommandStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from types_boto3_ssm import SSMClient
    from types_boto3_ssm.type_defs import GetCommandInvocationResultTypeDef

STATES = {
    "Pending": "PENDING",
    "InProgress": "PENDING",
    "Delayed": "PENDING",
    "Cancelling": "PENDING",
    "Success": "SUCCEEDED",
}
# SSM accepts no shorter delivery timeout than this.
SHORTEST_DELIVERY_SECONDS = 30
_COMMENT_CHARACTERS = 100
_NODES_A_COMMAND = 50  # SendCommand's limit of instances


class SsmNodeCommands:
    """Implements NodeCommands."""

    def __init__(self, client: "Callable[[], SSMClient]", once: "Callable[[], SSMClient]", clock: Clock) -> None:
        self._client = client
        self._once = once
        self._clock = clock

    def send(self, node: Node, command: Command, expires_at: datetime) -> str:
        return self._send([node], command, expires_at, {"BootId": node.boot_id})

    def send_to_all(self, nodes: Sequence[Node], command: Command, expires_at: datetime) -> Sequence[str]:
        sent = []
        for first in range(0, len(nodes), _NODES_A_COMMAND):
            some = nodes[first : first + _NODES_A_COMMAND]
            sent.append(self._send(some, command, expires_at, {"BootIds": ",".join(node.boot_id for node in some)}))
        return sent

    def look(self, node: Node, command_id: str) -> CommandStatus:
        answer = invocation(self._client(), command_id, node.instance_id)
        if answer is None:
            return CommandStatus("UNKNOWN")
        state = STATES.get(answer["Status"], "FAILED")
        return CommandStatus(state, answer.get("StandardOutputContent", ""), answer.get("ResponseCode"))

    def _send(self, nodes: Sequence[Node], command: Command, expires_at: datetime, boots: Mapping[str, str]) -> str:
        from botocore.exceptions import ClientError

        if any(node.provider is Provider.hyperpod for node in nodes):
            known = ", ".join(node.instance_id for node in nodes)
            raise NotFound(f"SSM takes no command for {known}: SendCommand reaches no node of HyperPod")
        left = int((expires_at - self._clock()).total_seconds())
        parameters = {"ExpiresAt": str(int(expires_at.timestamp())), **boots, **command.parameters}
        shown: dict[str, Any] = {"Comment": command.comment[:_COMMENT_CHARACTERS]} if command.comment else {}
        try:
            with throttles_named("SendCommand"):
                answer = self._once().send_command(
                    DocumentName=names.document(command.document),
                    InstanceIds=[node.instance_id for node in nodes],
                    TimeoutSeconds=max(left, SHORTEST_DELIVERY_SECONDS),
                    Parameters={name: [value] for name, value in parameters.items()},
                    **shown,
                )
        except ClientError as error:
            if code_of(error) != "InvalidInstanceId":
                raise
            known = ", ".join(node.instance_id for node in nodes)
            raise NotFound(f"SSM accepts no command for {known}: not registered, or not connected") from error
        return answer["Command"]["CommandId"]


def invocation(client: "SSMClient", command_id: str, instance_id: str) -> "GetCommandInvocationResultTypeDef | None":
    """Return SSM's record of a command on one machine; None: there is none, or none yet."""
    from botocore.exceptions import ClientError

    try:
        with throttles_named("GetCommandInvocation"):
            return client.get_command_invocation(CommandId=command_id, InstanceId=instance_id)
    except ClientError as error:
        if code_of(error) == "InvocationDoesNotExist":
            return None
        raise
