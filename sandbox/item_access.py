"""Adds to the emulator's IAM what a node's heartbeats need of DynamoDB and of policies.

Each change is small, gives its reason, and fails at the start if its target is gone, like those of sandbox/patches.py.
"""

import json
import re
from typing import Any

from ministack.core import iam_actions, iam_evaluator
from ministack.services import dynamodb

from sandbox.aws_json import Json
from sandbox.patches import attribute

# The policy variables that nodeheal's policies use: who asks, and the tags of the session.
_VARIABLE = re.compile(r"\$\{(aws:userid|aws:PrincipalTag/[\w.-]+)\}")
_EQUALS = re.compile(r"([#\w]+)\s*=\s*(:\w+)")


def know_leading_keys() -> None:
    """Add the condition key dynamodb:LeadingKeys: the partition keys in a request."""
    original = attribute(iam_actions, "dynamodb_service_context")
    tables = attribute(dynamodb, "_tables")

    def context(body: bytes) -> Json:
        found: Json = original(body)
        keys = _leading_keys(json.loads(body or b"{}"), tables)
        return {**found, "dynamodb:LeadingKeys": keys} if keys else found

    iam_actions.dynamodb_service_context = context


def _leading_keys(asked: Json, tables: Any) -> list[str]:
    """Return the keys of calls on one item, of queries of a table or an index, and of a transaction's writes."""
    writes = [write for one in asked.get("TransactItems", []) for write in one.values()]
    if writes:
        return [key for write in writes for key in _leading_keys(write, tables)]
    table = tables.get(str(asked.get("TableName"))) or {}
    indexes = table.get("GlobalSecondaryIndexes") or []
    schema = next((one for one in indexes if one["IndexName"] == asked.get("IndexName")), table).get("KeySchema", [])
    names = [key["AttributeName"] for key in schema if key["KeyType"] == "HASH"]
    item = asked.get("Key") or asked.get("Item") or _compared(asked)
    return [str(next(iter(item[name].values()))) for name in names if name in item]


def _compared(asked: Json) -> Json:
    """Return the attributes that the key condition of a query compares with one value each."""
    aliases, values = asked.get("ExpressionAttributeNames") or {}, asked.get("ExpressionAttributeValues") or {}
    pairs = _EQUALS.findall(str(asked.get("KeyConditionExpression") or ""))
    return {aliases.get(name, name): values[value] for name, value in pairs if value in values}


def know_who_asks() -> None:
    """Add policy variables in the values of conditions. One whose key the caller lacks matches nothing."""
    original = attribute(iam_evaluator, "_conditions_met")

    def met(conditions: Json, context: Any) -> bool:
        filled = {
            operator: {key: _filled(expected, context.principal_keys) for key, expected in pairs.items()}
            for operator, pairs in (conditions or {}).items()
        }
        return bool(original(filled, context))

    iam_evaluator._conditions_met = met


def _filled(expected: Any, keys: Json) -> Any:
    if isinstance(expected, str):
        # The evaluator keeps names of tags in lower case, as IAM compares them.
        return _VARIABLE.sub(lambda match: str(keys.get(_key(match[1]), match[0])), expected)
    return [_filled(each, keys) for each in expected] if isinstance(expected, list) else expected


def _key(name: str) -> str:
    return name if name == "aws:userid" else name.lower()
