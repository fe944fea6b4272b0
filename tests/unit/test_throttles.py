"""Every error by which a service says "not now" is known as one, by its code in botocore's models."""

import re
from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError

from nodeheal.adapters.aws.calls import is_throttle
from sandbox.request_rules import service_model

# The services that the control plane calls.
SERVICES = ("appconfigdata", "autoscaling", "dynamodb", "ec2", "ecs", "eks", "events", "logs", "sns", "sqs", "ssm")
NOT_NOW = re.compile(r"thrott|^ExecutionLimit|^RequestLimit|^ProvisionedThroughput", re.IGNORECASE)


def throttles() -> Iterator[tuple[str, str]]:
    """(service, error code) of each throttle."""
    for service in (*SERVICES, "stepfunctions"):
        model = service_model(service)
        for name in model.shape_names:
            known = model.shape_for(name).metadata
            if NOT_NOW.search(name) and known.get("exception"):
                yield service, known.get("error", {}).get("code", name)


@pytest.mark.parametrize(("service", "code"), list(throttles()))
def test_a_throttle_of_a_service_is_not_taken_for_a_surprise(service: str, code: str) -> None:
    assert is_throttle(ClientError({"Error": {"Code": code, "Message": ""}}, "AnyCall")), service


def test_codes_that_differ_from_the_name_of_their_error_are_among_them() -> None:
    codes = {code for _, code in throttles()}

    assert codes >= {"Throttled", "KMSThrottling", "KmsThrottled", "KmsThrottlingException", "ExecutionLimitExceeded"}
