"""AWS behind stubs, for the ports of the world."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from tests.support.jobs import ecs_job

ARN = "arn:aws:ecs:us-east-1:111122223333:container-instance/training/0123456789abcdef"


TASK = "arn:aws:ecs:us-east-1:111122223333:task/training/0123456789abcdef"


LLAMA = ecs_job("llama", "demo", "training", "trainer:1", "trainer", 2)


class Aws:
    """One stubbed client, which answers what it is told and accepts no other call."""

    def __init__(self, service: str) -> None:
        made: Any = boto3.client(  # type: ignore[call-overload]
            service, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
        )
        self.client = made
        self.stub = Stubber(made)

    def __call__(self) -> Any:
        return self.client

    def answers(self, operation: str, answer: dict[str, Any], asked: dict[str, Any] | None = None) -> "Aws":
        self.stub.add_response(operation, answer, asked)
        return self

    def refuses(self, operation: str, code: str, **more: Any) -> "Aws":
        self.stub.add_client_error(operation, code, modeled_fields=more)
        return self


@pytest.fixture
def aws(request: pytest.FixtureRequest) -> Iterator[Aws]:
    made = Aws(request.param)
    with made.stub:
        yield made
        made.stub.assert_no_pending_responses()


on_ecs = pytest.mark.parametrize("aws", ["ecs"], indirect=True)


on_ssm = pytest.mark.parametrize("aws", ["ssm"], indirect=True)
