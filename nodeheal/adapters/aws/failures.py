"""Explains why no AWS call succeeds: the Region, the profile, the credentials or the network, each with its next step.

A refusal of one service, such as a denied action or a missing resource, is not explained here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from pydantic import ValidationError

from nodeheal.adapters.aws.calls import code_of
from nodeheal.contract import names
from nodeheal.domain.complaints import complaints_of
from nodeheal.domain.errors import NodehealError

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError

_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "RequestExpired")
_UNKNOWN_KEYS = ("InvalidClientTokenId", "UnrecognizedClientException", "AuthFailure", "InvalidAccessKeyId")
_OF_THE_TABLE = ("Query", "GetItem", "PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems")
_OF_HEARTBEATS = "Scan"  # nothing else is scanned
_DEPLOYED_ELSEWHERE = (
    "look at your account (aws sts get-caller-identity) and your Region (AWS_REGION), give --table, "
    "or choose a context (nodeheal contexts list)"
)
_SIGN_IN = "sign in again (aws sso login, or new keys), then run `aws sts get-caller-identity`"


@dataclass(frozen=True)
class Failure:
    """One reason with what to do about it. `todo` is empty where the error has no explanation here."""

    subject: str
    detail: str
    todo: str = ""

    def __str__(self) -> str:
        return f"{self.subject}: {self.detail}; {self.todo}" if self.todo else self.detail


_REGION = "export AWS_REGION=eu-central-1, or your own (for the demo: paste the `export` line that it prints)"
_NAME_ONE = "set AWS_PROFILE, or sign in as for the AWS CLI (aws configure, aws sso login)"
NO_REGION = Failure("Region", "no Region is set", _REGION)


def in_words(error: Exception, table: str) -> str | None:
    """Return the line for an error that an operator is to read. None for one that is a fault of nodeheal."""
    from botocore.exceptions import BotoCoreError, ClientError

    if isinstance(error, ValidationError):  # before ValueError, which it is
        return f"not a valid {error.title}: {'; '.join(map(str, complaints_of(error)))}"
    if isinstance(error, (BotoCoreError, ClientError)):  # before ValueError, which some of the SDK's errors are
        return f"{explain(error, table)}"
    return f"{error}" if isinstance(error, (NodehealError, ValueError)) else None


def explain(error: "BotoCoreError | ClientError", table: str = names.TABLE) -> Failure:
    """Return the reason behind an error of the SDK. `table`: the state table, which DynamoDB does not name."""
    from botocore import exceptions as sdk

    if isinstance(error, sdk.ClientError):
        return _refused(error, table)
    if isinstance(error, sdk.NoRegionError):
        return (
            NO_REGION
            if _has_credentials()
            else replace(NO_REGION, todo=f"{_REGION}; no credentials either: {_NAME_ONE}")
        )
    if isinstance(error, sdk.InvalidRegionError):
        return _unknown_region(str(error), region_in_use())
    if isinstance(error, sdk.ProfileNotFound):
        return Failure("profile", str(error), "list the profiles: aws configure list-profiles; then set AWS_PROFILE")
    if isinstance(error, (sdk.NoCredentialsError, sdk.PartialCredentialsError, sdk.CredentialRetrievalError)):
        no_region = "" if region_in_use() else f"; no Region is set either: {_REGION}"
        return Failure("credentials", str(error), f"{_NAME_ONE}{no_region}")
    if isinstance(error, (sdk.SSOError, sdk.TokenRetrievalError, sdk.LoginError)):
        return Failure("credentials", str(error), _SIGN_IN)
    if isinstance(error, (sdk.HTTPClientError, sdk.ConnectionError)):
        return _unreachable(error)
    return Failure("AWS", str(error))


def _refused(error: "ClientError", table: str) -> Failure:
    code = code_of(error)
    if code == "ResourceNotFoundException" and error.operation_name in (*_OF_THE_TABLE, _OF_HEARTBEATS):
        missing = names.HEARTBEATS_TABLE if error.operation_name == _OF_HEARTBEATS else table
        return Failure("deployment", f"there is no table {missing} in {region_in_use()}", _DEPLOYED_ELSEWHERE)
    if code in _EXPIRED:
        return Failure("credentials", f"they have expired: {error}", _SIGN_IN)
    if code in _UNKNOWN_KEYS:
        is_off = f"AWS also answers so where the Region {region_in_use()} is not enabled"
        todo = f"check the access key and its profile; {is_off}"
        return Failure("credentials", f"AWS does not know these keys: {error}", todo)
    if code == "SignatureDoesNotMatch":
        todo = "check the secret key and this machine's clock (timedatectl)"
        return Failure("credentials", str(error), todo)
    return Failure("AWS", str(error))


def _unreachable(error: "BotoCoreError") -> Failure:
    """Explain an unreachable endpoint. A mistyped Region has an endpoint that does not exist, so it looks like a broken
    network.
    """
    region = region_in_use()
    if region and region not in _known_regions():
        return _unknown_region(str(error), region)
    todo = "check this machine's network, its DNS, and HTTPS_PROXY or the VPC endpoints"
    return Failure("network", str(error), todo)


def _unknown_region(detail: str, region: str) -> Failure:
    alike = get_close_matches(region.lower(), _known_regions(), n=1)
    perhaps = f"did you mean {alike[0]}? " if alike else ""
    return Failure(
        "Region", f"{region!r} is not a Region that the AWS SDK knows: {detail}", f"{perhaps}Correct AWS_REGION"
    )


def region_in_use() -> str:
    """Return the Region of the clients; empty where none is set."""
    import boto3

    return boto3.Session().region_name or ""


def _has_credentials() -> bool:
    """Return whether the SDK finds any. True where it cannot even look: then something else is wrong with them."""
    import boto3
    from botocore.exceptions import BotoCoreError

    try:
        return boto3.Session().get_credentials() is not None
    except BotoCoreError:
        return True


def _known_regions() -> Sequence[str]:
    import boto3

    session = boto3.Session()
    partitions = session.get_available_partitions()
    return [region for name in partitions for region in session.get_available_regions("ssm", partition_name=name)]
