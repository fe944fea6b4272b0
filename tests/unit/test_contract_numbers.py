"""S9: every number that the contract takes can be written to DynamoDB."""

import importlib
import inspect
import json
import pkgutil
from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Any, cast

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from nodeheal import contract
from nodeheal.adapters.aws.items import plain, to_item
from nodeheal.contract.health_event import Measured

# What JSON can spell, and pydantic reads as a number: text, too.
POISON = [
    "1e308",
    "-1e308",
    "1e200",
    "1e-200",
    "-1e-300",
    "5e-324",
    "0.1",
    "1e12",
    "-0.0",
    "NaN",
    "Infinity",
    "-Infinity",
]
POISON += [
    str(10**38),
    str(10**126),
    str(-(10**38)),
    str(2**64),
    str(2**63 - 1),
    "9" * 4_000,
    "0",
    "1",
    "-1",
    "30",
    "2048",
]
SHAPES = ("{0}", '"{0}"', '{{"key": {0}}}', '{{"key": "{0}"}}', "[{0}]")
LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def models() -> list[type[BaseModel]]:
    modules = [
        importlib.import_module(one.name) for one in pkgutil.walk_packages(contract.__path__, "nodeheal.contract.")
    ]
    found = {
        value
        for module in modules
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, BaseModel) and value.__module__ == module.__name__
    }
    return sorted(found, key=lambda model: model.__name__)


def numbers(schema: object, inside: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Each number of a model's JSON Schema, and where it stands."""
    if isinstance(schema, dict):
        if schema.get("type") in ("integer", "number") and not schema.keys() & {"const", "enum"}:
            yield inside, schema
        for name, inner in schema.items():
            if name not in ("$defs", "default"):
                yield from numbers(inner, f"{inside}/{name}")
    elif isinstance(schema, list):
        for at, inner in enumerate(schema):
            yield from numbers(inner, f"{inside}/{at}")


EVERY_NUMBER = [(model, *found) for model in models() for found in numbers(model.model_json_schema())]
FIELDS = sorted({(model, where.split("/")[2]) for model, where, _ in EVERY_NUMBER}, key=str)


def test_the_walk_finds_the_numbers() -> None:
    named = {f"{model.__name__}.{field}" for model, field in FIELDS}

    assert {"HealthEvent.count", "NodeBooted.accelerators", "DiagnosticsFinished.measured", "Sight.inode"} <= named


@pytest.mark.parametrize(
    ("model", "where", "number"), EVERY_NUMBER, ids=lambda one: str(getattr(one, "__name__", ""))[:40]
)
def test_a_number_has_bounds_and_both_can_be_stored(model: type[BaseModel], where: str, number: dict[str, Any]) -> None:
    """S9: a count of 10^38 made ingest fail three times, and the event a dead letter."""
    bounds = [number[name] for name in LIMITS if name in number]

    assert len(bounds) == 2, f"{model.__name__}{where} has no bounds: {number}"
    assert [plain(to_item({"number": bound}))["number"] for bound in bounds] == [Decimal(repr(one)) for one in bounds]


def alone(model: type[BaseModel], name: str) -> type[BaseModel]:
    """One field alone, as its model reads it."""
    field = next(one for key, one in model.model_fields.items() if name in (key, one.alias))
    kind = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    return create(kind, ConfigDict(allow_inf_nan=model.model_config.get("allow_inf_nan", True)))


def create(kind: Any, config: ConfigDict) -> type[BaseModel]:
    """A model of this one field."""
    return cast(
        "type[BaseModel]", type("One", (BaseModel,), {"__annotations__": {"value": kind}, "model_config": config})
    )


@pytest.mark.parametrize(("model", "name"), FIELDS, ids=lambda one: getattr(one, "__name__", one))
def test_what_a_number_may_be_can_be_stored(model: type[BaseModel], name: str) -> None:
    """S9: NaN, infinities, and numbers with too large or too small an exponent were taken and could not be written."""
    field, taken = alone(model, name), 0
    for number in POISON:
        for shape in SHAPES:
            try:
                value = field.model_validate_json(f'{{"value": {shape.format(number)}}}')
            except ValidationError:
                continue
            item = to_item(json.loads(value.model_dump_json()))
            assert plain(item)
            taken += 1

    assert taken > 0


def test_a_measured_number_keeps_six_decimals_and_comes_back_as_it_was() -> None:
    one = create(Measured, ConfigDict())

    for given, kept in ((1e-200, 0.0), (-0.0, 0.0), (0.1, 0.1), (24.9371234567, 24.937123), (1e12, 1e12)):
        value = one.model_validate({"value": given}).model_dump()
        assert {name: float(number) for name, number in plain(to_item(value)).items()} == {"value": kept}
