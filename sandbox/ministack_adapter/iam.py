"""Asks MiniStack's evaluator of IAM, and begins sessions."""

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ministack.core import iam_evaluator
from ministack.core.iam_actions import identity_denial_message
from ministack.core.responses import request_scope
from ministack.services import iam as iam_store
from ministack.services import sts

from sandbox.aws_json import AwsError, Json
from sandbox.iam import ACCOUNT, REGION, SESSION_SECONDS, Credentials
from sandbox.ministack_adapter.private_names import attribute

ROOT = f"arn:aws:iam::{ACCOUNT}:root"  # as which the emulator has services ask
Keys = Mapping[str, str | list[str]]
parse_policy = iam_evaluator.parse_policy_document


def install() -> None:
    """Keep a session that has expired: the emulator searches for such while other threads add theirs, which fails, and
    refuses them whether they are kept or not.
    """
    attribute(sts, "_evict_expired_sessions")
    sts._evict_expired_sessions = lambda: None


def authorize(access_key: str, service: str, action: str, resource: str, context: Keys) -> None:
    """Raises AwsError unless the policies of the key's owner allow the action."""
    denied = iam_evaluator.enforce(
        access_key, action, service, REGION, resource_arn=resource, service_context=dict(context)
    )
    if denied is None:
        return
    if isinstance(denied, iam_evaluator.AuthError):
        raise AwsError(denied.code, denied.message, status=403)
    why = identity_denial_message(action, denied.principal_arn, resource, denied.decision == "Deny")
    raise AwsError("AccessDeniedException", why)


def allows(policies: Sequence[Any], principal_arn: str, region: str, action: str, resource: str, keys: Keys) -> bool:
    """Whether these parsed policies alone allow a session of a role what it asks for, with these condition keys."""
    context = iam_evaluator.EvalContext(
        principal_arn=principal_arn,
        principal_type="AssumedRole",
        principal_account=principal_arn.split(":")[4],
        action=action,
        resource_arn=resource,
        region=region,
        tag_keys=keys.get("aws:TagKeys"),  # without any, AWS has no such key, and the evaluator an empty one
        service_context={key.lower(): value for key, value in keys.items()},
    )
    return bool(iam_evaluator.evaluate(context, policies).decision == "Allow")


def assume_role(principal: str, role_arn: str, session: str, tags: Mapping[str, str]) -> Credentials:
    """Return credentials of a session of the role, of this name and with these tags. Raises AwsError."""
    with request_scope(ACCOUNT, REGION):
        role = iam_store._roles.get(role_arn.rpartition("/")[2])
    asked = iam_evaluator.EvalContext(
        principal_arn=ROOT,
        principal_type="Root",
        principal_account=ACCOUNT,
        action="sts:AssumeRole",
        resource_arn=role_arn,
        region=REGION,
        request_tags=dict(tags),
        service_context={"aws:sourceaccount": ACCOUNT},
    )
    trust = role["AssumeRolePolicyDocument"] if role is not None else {}
    if role is None or principal not in str(trust) or not iam_evaluator.evaluate_trust_policy(trust, ROOT, asked):
        raise AwsError("AccessDeniedException", f"{role_arn} does not trust {principal} with the tags {dict(tags)}")
    return _begin_session(role, session, tags)


def _begin_session(role: Json, session: str, tags: Mapping[str, str]) -> Credentials:
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
