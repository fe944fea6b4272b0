"""Configures AWS clients: bounded timeouts, retries by the SDK only, named throttles."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import update_wrapper
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

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
Made = TypeVar("Made")


class Caller:
    """Whose credentials calls are made with, and the clients that were made with them. `session`: None, the process's
    own.
    """

    def __init__(self, session: "boto3.Session | None" = None) -> None:
        self.session = session
        self.made: dict[tuple[object, ...], Any] = {}


_PROCESS = Caller()
_CALLER = ContextVar("caller", default=_PROCESS)


@contextmanager
def calling_as(caller: Caller) -> Iterator[None]:
    """Make every call in this context with the caller's credentials. Threads that carry the context call as it does."""
    token = _CALLER.set(caller)
    try:
        yield
    finally:
        _CALLER.reset(token)


def session() -> "boto3.Session":
    """Return the caller's session; a new one where the process itself calls."""
    import boto3

    return _CALLER.get().session or boto3.Session()


class OncePerCaller(Generic[Made]):
    """Remembers for each caller what a function has made: one person's clients go with them, and serve nobody else."""

    def __init__(self, make: Callable[..., Made]) -> None:
        self._make = make
        update_wrapper(self, make)

    def __call__(self, *given: str) -> Made:
        """Return what was made for the caller, or make it."""
        made, key = _CALLER.get().made, (self._make, *given)
        if key not in made:
            made[key] = self._make(*given)
        kept: Made = made[key]
        return kept

    def cache_clear(self) -> None:
        """Forget what was made for the process itself."""
        for key in [key for key in _PROCESS.made if key[0] is self._make]:
            del _PROCESS.made[key]


@OncePerCaller
def client(service: str) -> Any:
    """Return a cached client, created at its first use, so that a function pays only for what it calls.

    The SDK retries every call, which suits reads and conditional writes.
    """
    return _client(service, attempts=3)


@OncePerCaller
def client_in(service: str, region: str) -> Any:
    """Return a cached client of another Region than the one that the caller's configuration names."""
    return _client(service, attempts=3, region=region)


@OncePerCaller
def client_once(service: str) -> Any:
    """Return a client that sends each call once: for calls that act and have no idempotency token (StartTask,
    SendCommand).
    """
    return _client(service, attempts=1)


@OncePerCaller
def own_role_arn(name: str) -> str:
    """Return the ARN of a role of the stack's, in the account and Region that the caller's credentials are for."""
    sts = client("sts")
    _, partition, _, _, account, *_ = sts.get_caller_identity()["Arn"].split(":")
    return f"arn:{partition}:iam::{account}:role/{name.format(region=sts.meta.region_name)}"


@OncePerCaller
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

    as_role = get_session()
    # The SDK itself assumes roles only for profiles in a file.
    as_role._credentials = RefreshableCredentials.create_from_metadata(  # type: ignore[attr-defined]
        assume(), assume, "sts-assume-role"
    )
    return _client(service, attempts=1, session=boto3.Session(botocore_session=as_role))


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
        return (session or _CALLER.get().session or boto3).client(service, region_name=region, config=config)  # type: ignore[call-overload]


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
