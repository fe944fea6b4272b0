"""Configures AWS clients: bounded timeouts, retries by the SDK only, named throttles."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any

from nodeheal.contract import names
from nodeheal.domain.errors import NotAccepted

if TYPE_CHECKING:
    import boto3
    from botocore.exceptions import ClientError

# The service has throttled the call and done nothing, so repeating it is safe.
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
        "KMSThrottling",  # the equivalent of SNS
        "KmsThrottled",  # the equivalent of SQS
    }
)
# The request itself is wrong: an item that is too large, a number with too many digits, a name that is not allowed.
_ALWAYS_REFUSED = frozenset({"ValidationException", "ValidationError", "InvalidParameter", "InvalidParameterValue"})


_MAKING = Lock()  # the SDK's default session is not for several threads


@cache
def client(service: str) -> Any:
    """Return a cached client, created at its first use, so that a function pays only for what it calls.

    The SDK retries every call, which suits reads and conditional writes.
    """
    return _client(service, attempts=3)


@cache
def client_in(service: str, region: str) -> Any:
    """Return a cached client of another Region than the one that the caller's configuration names."""
    return _client(service, attempts=3, region=region)


@cache
def client_once(service: str) -> Any:
    """Return a client that sends each call once: for calls that act and have no idempotency token (StartTask,
    SendCommand).
    """
    return _client(service, attempts=1)


@cache
def own_role_arn(name: str) -> str:
    """Return the ARN of a role of the stack's, in the account and Region that the caller's credentials are for."""
    sts = client("sts")
    _, partition, _, _, account, *_ = sts.get_caller_identity()["Arn"].split(":")
    return f"arn:{partition}:iam::{account}:role/{name.format(region=sts.meta.region_name)}"


@cache
def client_once_as(role_arn: str, service: str) -> Any:
    """Return a client that acts as a role and sends each call once; the SDK renews the role's credentials."""
    import boto3
    from botocore.credentials import RefreshableCredentials
    from botocore.session import get_session

    def assume() -> dict[str, str]:
        given = client("sts").assume_role(RoleArn=role_arn, RoleSessionName=names.STACK)["Credentials"]
        return {
            "access_key": given["AccessKeyId"],
            "secret_key": given["SecretAccessKey"],
            "token": given["SessionToken"],
            "expiry_time": given["Expiration"].isoformat(),
        }

    session = get_session()
    # The SDK itself assumes roles only for profiles in a file.
    session._credentials = RefreshableCredentials.create_from_metadata(  # type: ignore[attr-defined]
        assume(), assume, "sts-assume-role"
    )
    return _client(service, attempts=1, session=boto3.Session(botocore_session=session))


def _client(service: str, attempts: int, session: "boto3.Session | None" = None, region: str | None = None) -> Any:
    import boto3
    from botocore.config import Config

    # Timeouts well below a function's own; only who calls a function waits for all of it.
    read = 60 if service == "lambda" else 10
    config = Config(connect_timeout=2, read_timeout=read, retries={"mode": "standard", "total_max_attempts": attempts})
    if service == "s3":
        # A URL that is signed for somebody else uses the Region's endpoint, and a current form. "regional": in
        # us-east-1 the SDK would use the global endpoint, which no node's allow-list contains.
        config = config.merge(
            Config(
                signature_version="s3v4",
                s3={"addressing_style": "virtual", "us_east_1_regional_endpoint": "regional"},
            )
        )
    with _MAKING:
        return (session or boto3).client(service, region_name=region, config=config)  # type: ignore[call-overload]


def code_of(error: "ClientError") -> str:
    """Return the service's error code."""
    return str(error.response.get("Error", {}).get("Code", ""))


def is_throttle(error: "ClientError") -> bool:
    """Whether the service has throttled the call."""
    return code_of(error) in _THROTTLES


def is_temporary(error: Exception) -> bool:
    """Whether the same call may succeed later: throttled, unanswered, refused by IAM during a deployment, or failed by
    the service. False: the service will always refuse it (ValidationException), or our own code raised.
    """
    from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

    if isinstance(error, ClientError):
        return code_of(error) not in _ALWAYS_REFUSED
    return isinstance(error, (NotAccepted, BotoCoreError)) and not isinstance(error, ParamValidationError)


@contextmanager
def throttles_named(call: str) -> Iterator[None]:
    """Convert a throttle into NotAccepted; other errors pass unchanged."""
    from botocore.exceptions import ClientError

    try:
        yield
    except ClientError as error:
        if is_throttle(error):
            raise NotAccepted(f"{call}: {code_of(error)}") from error
        raise
