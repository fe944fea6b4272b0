"""Adapters of types: each is built once, when it is first used."""

from dataclasses import dataclass

from nodeheal.contract.type_adapters import adapter_of


@dataclass(frozen=True)
class Pair:
    """Something to read."""

    name: str
    count: int


def test_the_adapter_of_a_type_is_built_once() -> None:
    assert adapter_of(Pair) is adapter_of(Pair)
    assert adapter_of(Pair | None) is adapter_of(Pair | None)


def test_a_type_and_a_union_of_it_have_adapters_of_their_own() -> None:
    assert adapter_of(Pair).validate_json('{"name": "a", "count": 1}') == Pair("a", 1)
    assert adapter_of(Pair | None).validate_json("null") is None
