"""The sandbox's account, and the forms of IAM that its services share."""

from collections.abc import Mapping
from dataclasses import dataclass

ACCOUNT = "000000000000"
REGION = "us-east-1"
SESSION_SECONDS = 3600
SSM_PRINCIPAL = "ssm.amazonaws.com"


def resource_tags(tags: Mapping[str, str], prefix: str = "aws:ResourceTag/") -> dict[str, str | list[str]]:
    """Return tags as condition keys of their resource."""
    return {f"{prefix}{key}": value for key, value in tags.items()}


@dataclass(frozen=True)
class Credentials:
    """Temporary credentials of a role."""

    access_key: str
    secret_key: str
    session_token: str
