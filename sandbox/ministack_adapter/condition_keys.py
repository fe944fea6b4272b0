"""Adds to MiniStack's IAM the condition keys and resources that nodeheal's policies use."""

import json
import re
from typing import Any

from ministack import app
from ministack.core import iam_actions, iam_evaluator
from ministack.services import dynamodb

from sandbox.aws_json import Json
from sandbox.ministack_adapter.private_names import attribute

# The policy variables that nodeheal's policies use: who asks, and the tags of the session.
_VARIABLE = re.compile(r"\$\{(aws:userid|aws:PrincipalTag/[\w.-]+)\}")
_EQUALS = re.compile(r"([#\w]+)\s*=\s*(:\w+)")


def install() -> None:
    """Add all of them."""
    know_leading_keys()
    know_who_asks()
    know_event_sources()
    know_log_streams()
    take_loopback_for_tls()


def know_leading_keys() -> None:
    """Add the condition key dynamodb:LeadingKeys: the partition keys in a request."""
    original = attribute(iam_actions, "dynamodb_service_context")
    tables = attribute(dynamodb, "_tables")

    def context(body: bytes) -> Json:
        conditions: Json = original(body)
        keys = _leading_keys(json.loads(body or b"{}"), tables)
        return {**conditions, "dynamodb:LeadingKeys": keys} if keys else conditions

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


def know_event_sources() -> None:
    """Add the condition keys of PutEvents (events:source, events:detail-type), Subscribe and PutMetricData."""
    original = attribute(iam_actions, "request_tag_context")

    def context(service: str, action: str, body: bytes, parameters: Json) -> Json:
        conditions: Json = original(service, action, body, parameters)
        if action == "sns:Subscribe":
            protocol = parameters.get("Protocol", "")
            return {**conditions, "sns:Protocol": protocol[0] if isinstance(protocol, list) else protocol}
        if action == "cloudwatch:PutMetricData":  # as JSON, as agents send it
            return {**conditions, "cloudwatch:namespace": str(json.loads(body).get("Namespace"))}
        if action != "events:PutEvents":
            return conditions
        entries = json.loads(body or b"{}").get("Entries", [])
        for key, field in (("events:source", "Source"), ("events:detail-type", "DetailType")):
            values = {str(entry.get(field)) for entry in entries}
            # AWS checks each entry; here all entries of a call are checked at once, and mixed ones match nothing.
            conditions[key] = values.pop() if len(values) == 1 else "several"
        return conditions

    iam_actions.request_tag_context = context


def know_log_streams() -> None:
    """Authorize actions on a log stream on the stream, as in the Service Authorization Reference; the emulator uses the
    group.
    """
    original = attribute(iam_actions, "extract_resource_arn")

    def resource(
        service: str, method: str, path: str, headers: dict[str, str], body: bytes, *more: Any, **named: Any
    ) -> str:
        arn: str = original(service, method, path, headers, body, *more, **named)
        stream = json.loads(body or b"{}").get("logStreamName") if service == "logs" else None
        return f"{arn}:log-stream:{stream}" if stream else arn

    iam_actions.extract_resource_arn = resource


def take_loopback_for_tls() -> None:
    """Treat every request as sent over TLS (aws:SecureTransport): policies that require it are deployed as they are."""
    original = attribute(app, "pin_request_origin")
    app.pin_request_origin = lambda source_ip, is_secure: original(source_ip, True)
