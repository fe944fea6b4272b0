"""EC2 behind stubs."""

from typing import Any

import boto3
from botocore.stub import Stubber

TYPE = "p5.48xlarge"


def client(service: str) -> Any:
    return boto3.client(  # type: ignore[call-overload]
        service, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )


class Stubbed:
    """Clients that answer what they are told, and accept no other call."""

    def __init__(self) -> None:
        self.clients: dict[str, Any] = {}
        self.stubs: dict[str, Stubber] = {}

    def __call__(self, service: str) -> Any:
        if service not in self.clients:
            self.clients[service] = client(service)
            self.stubs[service] = Stubber(self.clients[service])
            self.stubs[service].activate()
        return self.clients[service]

    def answers(self, service: str, operation: str, answer: dict[str, Any], asked: Any = None) -> "Stubbed":
        self(service)
        self.stubs[service].add_response(operation, answer, asked)
        return self

    def refuses(self, service: str, operation: str, code: str, status: int = 400) -> "Stubbed":
        self(service)
        self.stubs[service].add_client_error(operation, code, "as it says", http_status_code=status)
        return self


def instance(*, tags: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    listed = [{"Key": key, "Value": value} for key, value in (tags or {}).items()]
    basic = {"InstanceId": "i-1", "InstanceType": TYPE, "State": {"Name": "running"}, "Tags": listed}
    return {"Reservations": [{"Instances": [{**basic, **more}]}]}


def overrides(*reasons: str, action: str = "NoAction", condition: str = "AcceleratedHardwareReady") -> dict[str, Any]:
    """Node repair that is on, with another action for these reasons."""
    fields = {"nodeMonitoringCondition": condition, "minRepairWaitTimeMins": 10, "repairAction": action}
    return {"enabled": True, "nodeRepairConfigOverrides": [{**fields, "nodeUnhealthyReason": one} for one in reasons]}
