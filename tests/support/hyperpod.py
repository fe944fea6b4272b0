"""A HyperPod cluster in this process: boto3's own client, answered by the sandbox's service."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse, HeadersDict

from sandbox.aws_json import JsonService
from sandbox.behaviour import Behaviour
from sandbox.hyperpod import Cluster, HyperPod, Instance
from sandbox.strict import refusal

NODE, OTHER, SUCCESSOR_ADDRESS = "i-0a1b2c3d4e5f67890", "i-0a1b2c3d4e5f67891", "10.1.0.9"
LAUNCHED = datetime(2026, 1, 1, tzinfo=UTC)


class Hardware:
    """What was done to machines. A successor comes up when `arrive` is called."""

    def __init__(self) -> None:
        self.rebooted: list[str] = []
        self.replaced: list[str] = []
        self._arriving: list[Callable[[str], None]] = []

    def reboot(self, instance_id: str) -> None:
        self.rebooted.append(instance_id)

    def replace(self, instance_id: str, successor: str, when_up: Callable[[str], None]) -> None:
        self.replaced.append(instance_id)
        self._arriving.append(when_up)

    def arrive(self) -> None:
        """The machine that takes the last one's place is up."""
        self._arriving.pop()(SUCCESSOR_ADDRESS)


class _Anybody:
    def must_be_allowed(self, action: str, resource: str, context: Mapping[str, str | list[str]] | None = None) -> None:
        """Allow everything: IAM is the embedded cloud's."""


class Region:
    """SageMaker with one cluster of two nodes. `calls`: what was asked of it, in order."""

    def __init__(self) -> None:
        self.hardware, self.behaviour = Hardware(), Behaviour()
        self.hyperpod = HyperPod(self.hardware, self.behaviour)
        self.cluster = Cluster(
            {name: Instance(name, f"10.1.0.{at}", launched_at=LAUNCHED) for at, name in enumerate((NODE, OTHER), 1)}
        )
        self.hyperpod.clusters["training"] = self.cluster
        self.calls: list[str] = []
        self._service = JsonService("sagemaker", self.hyperpod.operations(), lambda service, headers: _Anybody())

    def client(self, service: str) -> Any:
        made = boto3.client(  # type: ignore[call-overload]
            service, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
        )
        made.meta.events.register("before-send.sagemaker", self._send)
        return made

    def _send(self, request: Any, **_: Any) -> AWSResponse:
        headers = {
            name.lower(): value.decode() if isinstance(value, bytes) else value
            for name, value in request.headers.items()
        }
        operation, why = refusal("sagemaker", "POST", "/", headers, request.body, {})
        assert not why, why
        assert operation is not None
        self.calls.append(operation.name)
        status, fields, body = self._service.answer(headers, request.body)
        return AWSResponse(request.url, status, HeadersDict(fields), _Body(body))  # type: ignore[arg-type]


class _Body:
    """What botocore reads of an answer."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self) -> list[bytes]:
        return [self._content]

    def read(self) -> bytes:
        return self._content


PLACE = "use1-az2/sagemaker/cluster/hyperpod-4f0ymp2iq1vn-"
