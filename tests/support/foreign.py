"""Foreign events as AWS sends them, from tests/golden/foreign, and the nodes that they are about."""

import json
from pathlib import Path
from typing import Any

from lambdas.take_signal import TRANSLATORS
from nodeheal.contract.vocabulary import Provider
from nodeheal.domain.fleet.node import Node
from nodeheal.ports.signals import Draft
from tests.support.builders import node

GOLDEN = Path(__file__).parents[1] / "golden" / "foreign"
MACHINE = "i-0123456789abcdef0"
EVERY = sorted(path.stem for path in GOLDEN.glob("*.json"))


def recorded(name: str, **detail: Any) -> dict[str, Any]:
    """The event of that file, with these fields of its detail changed."""
    event: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))
    return {**event, "detail": {**event["detail"], **detail}}


def drafts(event: dict[str, Any]) -> list[Draft]:
    """What its translator makes of it."""
    parse, translate = TRANSLATORS[event["detail-type"]]
    return translate(parse.model_validate(event))


def machine(**changes: Any) -> Node:
    """A healthy EC2 node."""
    return node(MACHINE, provider=Provider.ec2, **changes)
