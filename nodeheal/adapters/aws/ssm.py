"""NodeCommands and FindCheckpoint on SSM documents.

Every command names the boot that it is meant for and when it expires; the node checks both.
"""

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from nodeheal.adapters.aws.calls import code_of, throttles_named
from nodeheal.contract import names
from nodeheal.contract.fabric import FabricOrder
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import DirectoryLook
from nodeheal.domain.recovery.evidence import Diagnosis, EvidenceAsked
from nodeheal.ports.clock import Clock
from nodeheal.ports.commands import CommandStatus

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
_NODES_A_COMMAND = 50  # SendCommand names no more


class SsmNodeCommands:
    """NodeCommands."""

    def __init__(self, client: "Callable[[], SSMClient]", once: "Callable[[], SSMClient]", clock: Clock) -> None:
        self._client = client
        self._once = once
        self._clock = clock

    def reboot(self, node: Node, expires_at: datetime) -> str:
        return self._send(names.REBOOT_DOCUMENT, node, expires_at, {})

    def diagnose(self, node: Node, ask: Diagnosis, request_id: str, expires_at: datetime) -> str:
        extra = {
            "Level": [str(ask.level)],
            "RequestId": [request_id],
            "Checks": [",".join(ask.checks)],
            "First": [",".join(ask.first) or "none"],
        }
        return self._send(names.DIAGNOSTICS_DOCUMENT, node, expires_at, extra)

    def collect(self, node: Node, ask: EvidenceAsked, request_id: str, expires_at: datetime) -> str:
        accused = ask.accused.model_dump_json().encode() if ask.accused is not None else b""
        extra = {
            "RequestId": [request_id],
            "Upload": [ask.upload.ticket if ask.upload is not None else "none"],
            "MaxBytes": [str(ask.upload.max_bytes if ask.upload is not None else 0)],
            "BugReport": ["yes" if ask.bug_report else "no"],
            "Accused": [urlsafe_b64encode(accused).decode().rstrip("=") or "none"],
        }
        return self._send(names.EVIDENCE_DOCUMENT, node, expires_at, extra)

    def checkpoint(self, nodes: Sequence[Node], job_id: str, expires_at: datetime) -> Sequence[str]:
        sent = []
        for first in range(0, len(nodes), _NODES_A_COMMAND):
            some = nodes[first : first + _NODES_A_COMMAND]
            boots = {"BootIds": [",".join(node.boot_id for node in some)], "Job": [job_id]}
            sent.append(self._send_to(names.CHECKPOINT_DOCUMENT, some, expires_at, boots))
        return sent

    def find_checkpoint(self, node: Node, look: DirectoryLook, request_id: str, expires_at: datetime) -> str:
        where = look.where
        extra = {"RequestId": [request_id], "Directory": [where.directory], "Format": [where.format.value]}
        if look.sight_after is not None:
            extra["SightAfter"] = [str(look.sight_after)]
        if look.progress:
            extra["Progress"] = [look.progress]
        return self._send(names.FIND_CHECKPOINT_DOCUMENT, node, expires_at, extra)

    def try_way(self, node: Node, order: FabricOrder) -> str:
        return self._send_to(names.FABRIC_DOCUMENT, [node], order.expires_at, order.parameters())

    def look(self, node: Node, command_id: str) -> CommandStatus:
        from botocore.exceptions import ClientError

        try:
            with throttles_named("GetCommandInvocation"):
                seen = self._client().get_command_invocation(CommandId=command_id, InstanceId=node.instance_id)
        except ClientError as error:
            if code_of(error) == "InvocationDoesNotExist":
                return CommandStatus("UNKNOWN")
            raise
        state = _STATES.get(seen["Status"], "FAILED")
        return CommandStatus(state, seen.get("StandardOutputContent", ""), seen.get("ResponseCode"))

    def _send(self, document: str, node: Node, expires_at: datetime, extra: dict[str, list[str]]) -> str:
        return self._send_to(document, [node], expires_at, {"BootId": [node.boot_id], **extra})

    def _send_to(
        self, document: str, nodes: Sequence[Node], expires_at: datetime, parameters: dict[str, list[str]]
    ) -> str:
        from botocore.exceptions import ClientError

        left = int((expires_at - self._clock()).total_seconds())
        try:
            with throttles_named("SendCommand"):
                answer = self._once().send_command(
                    DocumentName=document,
                    InstanceIds=[node.instance_id for node in nodes],
                    TimeoutSeconds=max(left, _SHORTEST_DELIVERY_SECONDS),
                    Parameters={"ExpiresAt": [str(int(expires_at.timestamp()))], **parameters},
                )
        except ClientError as error:
            if code_of(error) != "InvalidInstanceId":
                raise
            known = ", ".join(node.instance_id for node in nodes)
            raise NotFound(f"SSM takes no command for {known}: not registered, or not connected") from error
        return answer["Command"]["CommandId"]
