"""Converts values to DynamoDB items and back, with the conditional writes that all stores share."""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from nodeheal.adapters.aws.calls import code_of, throttles_named
from nodeheal.contract import names
from nodeheal.contract.type_adapters import adapter_of
from nodeheal.domain.errors import NotAccepted

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

Item = dict[str, Any]
# Harmless reasons for a cancelled transaction: it may be repeated as it is.
_NOT_NOW = {"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}
T = TypeVar("T")


def fields_of(value: object) -> dict[str, Any]:
    """Return a value's fields as plain JSON types, without those that are None."""
    dumped = adapter_of(type(value)).dump_python(value, mode="json")
    return {name: field for name, field in dumped.items() if field is not None}


def to_item(values: Mapping[str, Any]) -> Item:
    """Convert plain values into a DynamoDB item."""
    from boto3.dynamodb.types import TypeSerializer

    serializer = TypeSerializer()
    return {name: serializer.serialize(_exact(value)) for name, value in values.items()}


def _exact(value: Any) -> Any:
    """Convert a float into the decimal of its text form, since DynamoDB's numbers are decimal."""
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, dict):
        return {name: _exact(inner) for name, inner in value.items()}
    return [_exact(inner) for inner in value] if isinstance(value, list) else value


def from_item(kind: type[T], item: Item) -> T:
    """Parse the value of an item. Keys and index attributes that are no fields are ignored."""
    known = getattr(kind, "__dataclass_fields__", {})
    fields = plain({name: item[name] for name in item.keys() & known.keys()})
    loaded: T = adapter_of(kind).validate_python(fields)
    return loaded


def plain(item: Item) -> dict[str, Any]:
    """Return an item's values as plain Python types."""
    from boto3.dynamodb.types import TypeDeserializer

    deserializer = TypeDeserializer()
    return {name: deserializer.deserialize(value) for name, value in item.items()}


def versioned(version: int) -> tuple[str, dict[str, Any]]:
    """Return the condition that the stored version is still this one."""
    if version == 0:
        return "attribute_not_exists(pk)", {}
    return "version = :version", {":version": version}


# Sorts before anything that can follow in a key, and after the key itself.
_NEXT = " "
_END = "~"


def behind(prefix: str, name: str) -> tuple[str, str]:
    """Return the bounds of the sort keys with this prefix behind that of `name`; empty: of all of them."""
    return f"{prefix}{name}{_NEXT}" if name else prefix, f"{prefix}{_END}"


def of_kind(items: Iterable[Item], kind: str) -> list[Item]:
    """Keep the items of an index partition whose own partition key has this prefix.

    IAM binds a writer to partition keys of the table. Index keys are attributes that every writer chooses, so a job's
    item could appear among the nodes.
    """
    return [item for item in items if item["pk"]["S"].startswith(kind)]


class Table:
    """The nodeheal table. Conditional writes return False instead of raising."""

    def __init__(self, client: "DynamoDBClient", name: str) -> None:
        self.client = client
        self.name = name

    def get(self, pk: str, sk: str) -> Item | None:
        """Return the item, strongly consistent."""
        with throttles_named("GetItem"):
            answer = self.client.get_item(TableName=self.name, Key=to_item({"pk": pk, "sk": sk}), ConsistentRead=True)
        return answer.get("Item")

    def put(self, item: Item, condition: str = "", values: Mapping[str, Any] | None = None) -> bool:
        """Write the item if the condition holds; whether it did."""
        return self._conditional("PutItem", self.client.put_item, Item=item, condition=condition, values=values)

    def update(self, pk: str, sk: str, expression: str, values: Mapping[str, Any], condition: str = "") -> bool:
        """Update the item if the condition holds; whether it did."""
        key = to_item({"pk": pk, "sk": sk})
        return self._conditional(
            "UpdateItem",
            self.client.update_item,
            Key=key,
            UpdateExpression=expression,
            condition=condition,
            values=values,
        )

    def count(self, pk: str, sk: str, field: str, expires_at: int) -> int:
        """Add one to a number of the item; returns the new value."""
        with throttles_named("UpdateItem"):
            answer = self.client.update_item(
                TableName=self.name,
                Key=to_item({"pk": pk, "sk": sk}),
                UpdateExpression=f"ADD {field} :one SET {names.TTL_ATTRIBUTE} = :expires",
                ExpressionAttributeValues=to_item({":one": 1, ":expires": expires_at}),
                ReturnValues="UPDATED_NEW",
            )
        return int(answer["Attributes"][field]["N"])

    def delete(self, pk: str, sk: str, condition: str, values: Mapping[str, Any]) -> Item | None:
        """Delete the item if the condition holds; returns the deleted item."""
        key = to_item({"pk": pk, "sk": sk})
        wanted = {"Key": key, "ReturnValues": "ALL_OLD"}
        answer = self._answer("DeleteItem", self.client.delete_item, condition=condition, values=values, **wanted)
        return answer.get("Attributes") if answer else None

    def query(self, pk: str, prefix: str = "") -> Iterator[Item]:
        """Return the items of a partition (with this sort key prefix), in order, strongly consistent."""
        starts_so = " AND begins_with(sk, :prefix)" if prefix else ""
        pages = self.client.get_paginator("query").paginate(
            TableName=self.name,
            KeyConditionExpression=f"pk = :pk{starts_so}",
            ExpressionAttributeValues=to_item({":pk": pk, **({":prefix": prefix} if prefix else {})}),
            ConsistentRead=True,
        )
        with throttles_named("Query"):
            for page in pages:
                yield from page["Items"]

    def query_index(self, index: str, pk: str, prefix: str, *, kind: str) -> Iterator[Item]:
        """Query the index for items of this kind only; eventually consistent."""
        pages = self.client.get_paginator("query").paginate(
            TableName=self.name,
            IndexName=index,
            KeyConditionExpression="gsi_pk = :pk AND begins_with(gsi_sk, :prefix)",
            ExpressionAttributeValues=to_item({":pk": pk, ":prefix": prefix}),
        )
        with throttles_named("Query"):
            for page in pages:
                yield from of_kind(page["Items"], kind)

    def between(
        self,
        index: str,
        pk: str,
        bounds: tuple[str, str],
        *,
        kind: str,
        page_size: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[Item]:
        """Yield the items of this kind in an index partition between two sort keys, in order.

        One request reads `page_size` items (None: as many as an answer holds), and the next one is sent when they are
        consumed.
        """
        pages = self.client.get_paginator("query").paginate(
            TableName=self.name,
            IndexName=index,
            KeyConditionExpression="gsi_pk = :pk AND gsi_sk BETWEEN :low AND :high",
            ExpressionAttributeValues=to_item({":pk": pk, ":low": bounds[0], ":high": bounds[1]}),
            ScanIndexForward=not newest_first,
            PaginationConfig={"PageSize": page_size} if page_size else {},
        )
        with throttles_named("Query"):
            for page in pages:
                yield from of_kind(page["Items"], kind)

    def page_index(
        self, index: str, pk: str, between: tuple[str, str], *, kind: str, limit: int, fields: tuple[str, ...]
    ) -> list[Item]:
        """Return the first `limit` items of this kind in an index partition between two sort keys, with these
        fields.
        """
        aliases = {"#pk": "gsi_pk", "#sk": "gsi_sk", "#of": "pk"}
        aliases |= {f"#f{number}": name for number, name in enumerate(fields)}
        bounds = {":pk": pk, ":low": between[0], ":high": between[1]}
        pages = self.client.get_paginator("query").paginate(
            TableName=self.name,
            IndexName=index,
            KeyConditionExpression="#pk = :pk AND #sk BETWEEN :low AND :high",
            ProjectionExpression=", ".join(["#of", *(f"#f{number}" for number in range(len(fields)))]),
            ExpressionAttributeNames=aliases,
            ExpressionAttributeValues=to_item(bounds),
            PaginationConfig={"PageSize": limit},
        )
        with throttles_named("Query"):
            return list(islice((item for page in pages for item in of_kind(page["Items"], kind)), limit))

    def query_from(
        self, pk: str, prefix: str, since: str, *, kind: str, limit: int, fields: tuple[str, ...], index: str = ""
    ) -> list[Item]:
        """Return the newest `limit` items of a partition (or, of this kind, of an index partition) whose sort key is
        `prefix` and `since` or later, with these fields.

        Strongly consistent in the table, eventually consistent in the index.
        """
        names = {"#pk": "gsi_pk", "#sk": "gsi_sk", "#of": "pk"} if index else {"#pk": "pk", "#sk": "sk"}
        names |= {f"#f{number}": name for number, name in enumerate(fields)}
        where: dict[str, Any] = {"IndexName": index} if index else {"ConsistentRead": True}
        bounds = {":pk": pk, ":low": f"{prefix}{since}", ":high": f"{prefix}~"}
        # Pages, since one answer has 1 MB at most, which a hundred faults with their evidence may fill.
        pages = self.client.get_paginator("query").paginate(
            TableName=self.name,
            KeyConditionExpression="#pk = :pk AND #sk BETWEEN :low AND :high",
            ProjectionExpression=", ".join(
                ["#of" if index else "#pk", *(f"#f{number}" for number in range(len(fields)))]
            ),
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=to_item(bounds),
            ScanIndexForward=False,
            PaginationConfig={"PageSize": limit},
            **where,
        )
        with throttles_named("Query"):
            return list(islice((item for page in pages for item in of_kind(page["Items"], kind)), limit))

    def transact(self, writes: list[dict[str, Any]]) -> bool:
        """Apply all writes, or none; False where a condition does not hold."""
        from botocore.exceptions import ClientError

        try:
            with throttles_named("TransactWriteItems"):
                self.client.transact_write_items(TransactItems=writes)  # type: ignore[arg-type]
        except ClientError as error:
            reasons = {str(reason.get("Code")) for reason in error.response.get("CancellationReasons", [])}
            if code_of(error) != "TransactionCanceledException":
                raise
            if "ConditionalCheckFailed" in reasons:
                return False
            if reasons & _NOT_NOW:
                raise NotAccepted(f"TransactWriteItems: {', '.join(sorted(reasons & _NOT_NOW))}") from error
            raise
        return True

    def _conditional(self, call: str, method: Any, **arguments: Any) -> bool:
        return self._answer(call, method, **arguments) is not None

    def _answer(self, call: str, method: Any, *, condition: str, values: Any, **arguments: Any) -> Item | None:
        """Return DynamoDB's answer, or None where the condition does not hold."""
        from botocore.exceptions import ClientError

        if condition:
            arguments["ConditionExpression"] = condition
        if values:
            arguments["ExpressionAttributeValues"] = to_item(values)
        try:
            with throttles_named(call):
                answer: Item = method(TableName=self.name, **arguments)
        except ClientError as error:
            if code_of(error) == "ConditionalCheckFailedException":
                return None
            raise
        return answer
