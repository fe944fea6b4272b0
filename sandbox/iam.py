"""Identifies callers, and asks IAM: the emulator's own evaluator, with the real resource of each call."""

import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass

from ministack.core import iam_evaluator
from ministack.core.iam_actions import identity_denial_message
from ministack.core.responses import request_scope
from ministack.core.router import extract_access_key_id
from ministack.services import iam as iam_store
from ministack.services import sts

from sandbox.authorization import objection
from sandbox.aws_json import AwsError, Json

logger = logging.getLogger(__name__)

ACCOUNT = "000000000000"
REGION = "us-east-1"
SESSION_SECONDS = 3600
SSM_PRINCIPAL = "ssm.amazonaws.com"


@dataclass(frozen=True)
class SignedCaller:
    """The owner of the access key that signed a request."""

    access_key: str
    service: str

    def must_be_allowed(self, action: str, resource: str, context: Mapping[str, str | list[str]] | None = None) -> None:
        """Raises AwsError unless the caller's policies allow the action on this resource."""
        wrong = objection(action, resource, context or {})
        if wrong:  # the sandbox asks IAM something that AWS would not: a bug of the sandbox, which must fail the test
            logger.error("the service authorization reference says: %s", wrong)
            raise AwsError("InternalFailure", wrong, status=500)
        denied = iam_evaluator.enforce(
            self.access_key, action, self.service, REGION, resource_arn=resource, service_context=dict(context or {})
        )
        if denied is None:
            return
        if isinstance(denied, iam_evaluator.AuthError):
            raise AwsError(denied.code, denied.message, status=403)
        why = identity_denial_message(action, denied.principal_arn, resource, denied.decision == "Deny")
        raise AwsError("AccessDeniedException", why)


def caller_of(service: str, headers: Mapping[str, str]) -> SignedCaller:
    """Return the caller of a request that the emulator has authenticated."""
    return SignedCaller(access_key=extract_access_key_id(dict(headers), {}) or "", service=service)


def resource_tags(tags: Mapping[str, str], prefix: str = "aws:ResourceTag/") -> dict[str, str | list[str]]:
    """Return tags as condition keys of their resource."""
    return {f"{prefix}{key}": value for key, value in tags.items()}


@dataclass(frozen=True)
class Credentials:
    """Temporary credentials of a role."""

    access_key: str
    secret_key: str
    session_token: str


def hybrid_node_credentials(role_arn: str, node_id: str) -> Credentials:
    """Return what Systems Manager gives a hybrid node: a session of its role, if the role trusts ssm.amazonaws.com."""
    name = role_arn.rsplit("/", 1)[-1]
    with request_scope(ACCOUNT, REGION):
        role = iam_store._roles.get(name)
    if role is None:
        raise AwsError("InvalidRole", f"there is no role {role_arn}")
    if SSM_PRINCIPAL not in str(role.get("AssumeRolePolicyDocument", "")):
        raise AwsError("InvalidRole", f"{role_arn} does not trust {SSM_PRINCIPAL}; a hybrid node could not use it")
    return begin_session(role, node_id, {})


def begin_session(role: Json, session: str, tags: Mapping[str, str]) -> Credentials:
    """Return credentials of a session of the role, of this name and with these tags."""
    begun = Credentials(f"ASIA{secrets.token_hex(8).upper()}", secrets.token_hex(20), secrets.token_hex(64))
    sts.register_session(
        begun.access_key,
        {
            "Arn": f"arn:aws:sts::{ACCOUNT}:assumed-role/{role['RoleName']}/{session}",
            "UserId": f"{role.get('RoleId', role['RoleName'])}:{session}",
            "SecretAccessKey": begun.secret_key,
            "SessionToken": begun.session_token,
            "Expiration": time.time() + SESSION_SECONDS,
            "AccountId": ACCOUNT,
            "PrincipalType": "AssumedRole",
            "SessionTags": [{"Key": key, "Value": value} for key, value in tags.items()],
        },
    )
    return begun
