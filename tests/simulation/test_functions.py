"""The simulation calls what the functions call: nothing else stands behind the state machines' placeholders."""

import json
from pathlib import Path

from nodeheal.simulation.definition import STATE_MACHINES, STEMS
from nodeheal.simulation.functions import FIND_CHECKPOINT, FUNCTIONS, stem_of
from stacks import functions as stacks

LAMBDAS = Path(__file__).resolve().parents[2] / "lambdas"


def _named_in_files() -> set[str]:
    found: set[str] = set()
    for file in STATE_MACHINES.glob("*.asl.json"):
        for state in json.loads(file.read_text("utf-8"))["States"].values():
            name = state.get("Arguments", {}).get("FunctionName")
            found |= {stem_of(name)} if name else set()
    return found


def test_every_function_that_a_state_names_is_simulated_and_no_other() -> None:
    operations = {spec.stem for spec in stacks.FUNCTIONS if spec.handler == "operation"}
    assert {*FUNCTIONS, FIND_CHECKPOINT} | operations == _named_in_files()
    assert not operations & {*FUNCTIONS, FIND_CHECKPOINT}


def test_every_state_machine_is_read() -> None:
    assert set(STEMS) == {file.name.removesuffix(".asl.json") for file in STATE_MACHINES.glob("*.asl.json")}


def test_each_takes_what_its_handler_takes() -> None:
    shared = {spec.stem: spec.handler for spec in stacks.FUNCTIONS if spec.handler}
    for stem, (request, _) in FUNCTIONS.items():
        handler = (LAMBDAS / f"{shared.get(stem, stem)}.py").read_text("utf-8")

        assert f"step({request.__name__}" in "".join(handler.split("\n    ")).replace("(\n", "("), stem
        assert ("policy()" in handler) == _hands_policy(stem), stem


def _hands_policy(stem: str) -> bool:
    _, serve = FUNCTIONS[stem]
    return "policy" in serve.__code__.co_names
