"""What the emulator's IAM does not know of DynamoDB and of policies, and a node's signs of life need.

Each change is small, says why, and fails at start if its place is gone, as those of sandbox/patches.py.
"""

import json
from typing import Any

from ministack.core import iam_actions, iam_evaluator
from ministack.services import dynamodb

from sandbox.aws_json import Json
from sandbox.patches import attribute

_VARIABLE = "${aws:userid}"


def know_leading_keys() -> None:
    """The condition key dynamodb:LeadingKeys: the partition keys that a request names."""
    original = attribute(iam_actions, "dynamodb_service_context")
    tables = attribute(dynamodb, "_tables")

    def context(body: bytes) -> Json:
        found: Json = original(body)
        keys = _leading_keys(json.loads(body or b"{}"), tables)
        return {**found, "dynamodb:LeadingKeys": keys} if keys else found

    iam_actions.dynamodb_service_context = context


def _leading_keys(asked: Json, tables: Any) -> list[str]:
    """Of the calls on one item, which is all that a policy with this condition allows."""
    item = asked.get("Key") or asked.get("Item") or {}
    table = tables.get(str(asked.get("TableName"))) or {}
    names = [key["AttributeName"] for key in table.get("KeySchema", []) if key["KeyType"] == "HASH"]
    return [str(next(iter(item[name].values()))) for name in names if name in item]


def know_who_asks() -> None:
    """The policy variable ${aws:userid}, in the values of conditions: the only one that our policies use."""
    original = attribute(iam_evaluator, "_conditions_met")

    def met(conditions: Json, context: Any) -> bool:
        user = str(context.principal_keys.get("aws:userid", ""))
        filled = {
            operator: {key: _filled(expected, user) for key, expected in pairs.items()}
            for operator, pairs in (conditions or {}).items()
        }
        return bool(original(filled, context))

    iam_evaluator._conditions_met = met


def _filled(expected: Any, user: str) -> Any:
    if isinstance(expected, str):
        return expected.replace(_VARIABLE, user)
    return [_filled(one, user) for one in expected] if isinstance(expected, list) else expected
