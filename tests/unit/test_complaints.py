"""Documents that models refuse: each complaint names the field and says in plain words what to give."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from pydantic import BaseModel, ValidationError

from nodeheal.cli.connect import clearly
from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.job_spec import JobSpec
from nodeheal.domain.complaints import complaints_of
from nodeheal.domain.policy.policy import RecoveryPolicy
from tests.support.builders import xid

PYDANTIC = re.compile(r"Input |Value error|Extra inputs|Field required|String should|should be|valid |Unable|pydantic")
JOB = {
    "name": "llama",
    "pool": "p5",
    "nodes": 2,
    "accelerators": 8,
    "image": "trainer",
    "command": ["train"],
    "environment": {"A": "b"},
    "mounts": [{"source": "/a", "target": "/b", "read_only": True}],
    "devices": ["/dev/fuse"],
    "checkpoints": {"directory": "/fsx/a", "format": "auto", "every_seconds": 60, "write_seconds": 1.5},
    "preflight": {"level": 1, "checks": ["dcgm"], "fabric": True},
    "restarts": {"total": 3},
    "only_nodes": ["i-0123456789abcdef0", "i-0123456789abcdef1"],
}
WINDOW = {"days": ["monday"], "starts_at": "03:00", "minutes": 5, "why": "x"}
POLICY = RecoveryPolicy.model_validate(
    {
        "pools": {
            "p5": {"mode": "act", "maintenance": [{"days": ["monday"], "starts_at": "03:00", "minutes": 5, "why": "x"}]}
        },
        "opted_out": {"i-0123456789abcdef0": "mine"},
        "overrides": [{"fault": "xid/31", "ladder": ["REBOOT"], "why": "x"}],
    }
).model_dump(mode="json")
EVENT = xid(79).model_dump(mode="json")
LONG = "y" * 10_000
WRONG: tuple[object, ...] = (
    None,
    True,
    -1,
    2.5,
    1e300,
    10**40,
    "",
    "x\n",
    "y" * 10_000,
    [],
    ["x"],
    [[]],
    {},
    {"a": {}},
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of everything in a document, the document first."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield from places(below, (*path, key))


def put(value: Any, path: tuple[Any, ...], wrong: object) -> Any:
    """The document with another value at this place, and beside it a key that no model has."""
    if not path:
        return wrong
    key, *rest = path
    if isinstance(value, dict):
        return {**value, key: put(value[key], tuple(rest), wrong), "shoe size": 1}
    return [put(one, tuple(rest), wrong) if at == key else one for at, one in enumerate(value)]


def said_of(model: type[BaseModel], document: object, *, shows_values: bool = True) -> list[str]:
    try:
        model.model_validate_json(json.dumps(document), strict=model is JobSpec)
    except ValidationError as error:
        return list(map(str, complaints_of(error, model, shows_values=shows_values)))
    return []


@pytest.mark.parametrize(("model", "document"), [(JobSpec, JOB), (RecoveryPolicy, POLICY), (HealthEvent, EVENT)])
def test_no_wrong_value_is_answered_in_words_of_pydantic(model: type[BaseModel], document: Any) -> None:
    said = [line for path in places(document) for wrong in WRONG for line in said_of(model, put(document, path, wrong))]

    assert said_of(model, document) == []
    assert len(said) > 100
    assert sorted({line for line in said if PYDANTIC.search(line) or "is not valid" in line}) == []


def test_a_value_that_may_be_a_secret_is_named_and_not_shown() -> None:
    said = said_of(
        HealthEvent, {**EVENT, "family": "hunter2", "code": 9876, "node_id": "hunter\n2"}, shows_values=False
    )

    assert len(said) == 3
    assert not any("hunter" in line or "9876" in line for line in said)


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ({"pools": {"a": {"modee": "act"}}}, "pools.a.modee: there is no such field; did you mean `mode`?"),
        (
            {"pools": {"budget": {"quarantine_percent": 5}}},
            "pools.budget.quarantine_percent: there is no such field here;"
            " did you mean `pools.budget.budget.quarantine_percent`?",
        ),
        (
            {"pools": {"a": {"heartbeat_seconds": 5}}},
            "pools.a.heartbeat_seconds: there is no such field here; did you mean `silence.heartbeat_seconds`?",
        ),
        (
            {"default_pool": {"mode": "destroy"}},
            'default_pool.mode: "destroy" is not known; give observe, approve or act',
        ),
        ({"default_pool": {"mode": None}}, "default_pool.mode: is not known; give observe, approve or act"),
        ({"max_turns": "many"}, 'max_turns: "many" is not a whole number'),
        ({"max_turns": []}, "max_turns: is a list; give a whole number"),
        ({"max_turns": None}, "max_turns: is null; give a whole number"),
        ({"max_turns": 3}, "max_turns: 3 is too small; give more than 3"),
        ({"opted_out": {"x y": "z"}}, 'opted_out.x y: "x y" does not fit; give the id of a node, such as i-0123'),
        ({"opted_out": {"i-0123456789abcdef0": ""}}, "opted_out.i-0123456789abcdef0: is empty"),
        (
            {"overrides": [{"fault": "xid/31", "ladder": ["REBOOT", "OBSERVE"], "why": "x"}]},
            "overrides.0.ladder: REBOOT OBSERVE does not go up",
        ),
    ],
)
def test_a_complaint_names_the_field_and_what_to_give(document: object, complaint: str) -> None:
    [said] = said_of(RecoveryPolicy, document)

    assert said.startswith(complaint)


def test_a_stored_document_that_is_not_valid_is_told_in_plain_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), clearly():
        JobSpec.model_validate({**JOB, "name": "A B", "colour": 1})

    assert capsys.readouterr().err == (
        "not a valid JobSpec: name: does not fit; give lower-case letters, digits and '-', at most 63, no '-' at either"
        " end; colour: there is no such field\n"
    )
