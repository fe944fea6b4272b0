"""Sends drills by SSM documents that no function may send."""

import base64
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from nodeheal.adapters.aws.calls import code_of
from nodeheal.contract import names
from nodeheal.domain.errors import NotFound
from nodeheal.domain.faults.drill import DcgmDrill
from nodeheal.domain.fleet.node import Node
from nodeheal.ports.clock import Clock

# SSM accepts no shorter delivery timeout.
_SHORTEST_DELIVERY_SECONDS = 30
_COMMENT_CHARACTERS = 100


class SsmDrills:
    """Implements Drills. `once` sends a call a single time: SendCommand has no token, and a drill must not run
    twice.
    """

    def __init__(self, once: Callable[[], Any], clock: Clock) -> None:
        self._once = once
        self._clock = clock

    def inject(self, node: Node, line: str, why: str, seconds: int) -> str:
        encoded = base64.urlsafe_b64encode(line.encode()).decode().rstrip("=")
        return self._send(names.INJECT_DOCUMENT, node, why, seconds, {"Line": [encoded]})

    def inject_dcgm(self, node: Node, drill: DcgmDrill, why: str, seconds: int) -> str:
        what = {"Gpu": [str(drill.gpu)], "Field": [str(drill.field)], "Value": [drill.value]}
        return self._send(names.INJECT_DCGM_DOCUMENT, node, why, seconds, what)

    def _send(self, document: str, node: Node, why: str, seconds: int, what: dict[str, list[str]]) -> str:
        from botocore.exceptions import ClientError

        expires_at = self._clock() + timedelta(seconds=seconds)
        try:
            answer = self._once().send_command(
                DocumentName=document,
                InstanceIds=[node.instance_id],
                TimeoutSeconds=max(seconds, _SHORTEST_DELIVERY_SECONDS),
                Comment=f"drill, {why}"[:_COMMENT_CHARACTERS],
                Parameters={"BootId": [node.boot_id], "ExpiresAt": [str(int(expires_at.timestamp()))], **what},
            )
        except ClientError as error:
            if code_of(error) != "InvalidInstanceId":
                raise
            raise NotFound(
                f"SSM accepts no command for {node.instance_id}: not registered, or not connected"
            ) from error
        return str(answer["Command"]["CommandId"])
