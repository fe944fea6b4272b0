"""How every AWS call is made: bounded in time, retried by the SDK only, throttles named."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from nodeheal.domain.errors import NotAccepted

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

# The service has said "not now" and done nothing: repeating is safe, whatever the call.
_THROTTLES = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "ProvisionedThroughputExceededException",
        "TransactionInProgressException",
        "TransactionConflictException",
        "LimitExceededException",
        "Throttled",  # SNS: its ThrottledException has this code
        "ExecutionLimitExceeded",  # Step Functions: a million executions are open
        "KmsThrottlingException",  # Step Functions, for the key behind it
        "KMSThrottling",  # the same of SNS
        "KmsThrottled",  # and of SQS
    }
)


@cache
def client(service: str) -> Any:
    """One client a service and process, made at first use: a function pays only for what it calls.

    The SDK repeats what failed in between, whatever the call: right for reads and for writes that are conditional.
    """
    return _client(service, attempts=3)


@cache
def client_once(service: str) -> Any:
    """For calls that act and carry no token of their own (StartTask, SendCommand): each is sent once."""
    return _client(service, attempts=1)


def _client(service: str, attempts: int) -> Any:
    import boto3
    from botocore.config import Config

    # Timeouts well under a function's own.
    config = Config(connect_timeout=2, read_timeout=10, retries={"mode": "standard", "total_max_attempts": attempts})
    if service == "s3":
        # What is signed for somebody else names the Region's own endpoint, and is not of the old kind.
        # "regional": in us-east-1 the SDK would name the global endpoint, which is on no node's allow-list.
        config = config.merge(
            Config(
                signature_version="s3v4",
                s3={"addressing_style": "virtual", "us_east_1_regional_endpoint": "regional"},
            )
        )
    return boto3.client(service, config=config)  # type: ignore[call-overload]


def code_of(error: "ClientError") -> str:
    """The service's own error code."""
    return str(error.response.get("Error", {}).get("Code", ""))


def is_throttle(error: "ClientError") -> bool:
    """Whether the service has said "not now"."""
    return code_of(error) in _THROTTLES


@contextmanager
def throttles_named(call: str) -> Iterator[None]:
    """Turn a throttle into NotAccepted; let everything else through as it is."""
    from botocore.exceptions import ClientError

    try:
        yield
    except ClientError as error:
        if is_throttle(error):
            raise NotAccepted(f"{call}: {code_of(error)}") from error
        raise
