"""Every branch of every state machine is walked: each way out of each state, choices, catches and defaults."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from nodeheal.contract.vocabulary import Awaited, Ending, Outcome, Step
from stacks.workflows import PARENT
from tests.support.steps import INCIDENT, NODE, decision, result
from tests.support.walker import TIMEOUT, Error, Sequence, Walk, load, walk

Edge = tuple[str, str]
ENDINGS = [decision(Step.CLOSE, ending) for ending in (*Ending, None)]
WAITS = [decision(Step.WAIT) | {"awaits": awaited.value} for awaited in Awaited]
ACTS = [decision(step) for step in Step if step not in (Step.WAIT, Step.CLOSE, Step.ESCALATE)]
UNKNOWN_STEP = decision(Step.REBOOT) | {"step": "DANCE"}
BROKEN = Error("Runtime.ImportModuleError")
DONE, REFUSED = result(Step.REBOOT), result(Step.REBOOT, Outcome.REFUSED)
HAS_CHECKPOINTS = DONE | {"facts": {"kind": "CHECKPOINT_SEARCH", "directory": "/mnt/llama"}}
END = "end"  # of a task that is the last
TASKS_OF_PARENT = [name for name, state in load(PARENT)["States"].items() if state["Type"] == "Task"]


def edges_of(stem: str) -> set[Edge]:
    """Every way out of every state."""
    found: set[Edge] = set()
    for name, state in load(stem)["States"].items():
        rules = [*state.get("Choices", []), *state.get("Catch", []), state]
        found |= {(name, rule["Next"]) for rule in rules if "Next" in rule}
        found |= {(name, state["Default"])} if "Default" in state else set()
        found |= {(name, END)} if "End" in state else set()
    return found


def walked(walks: Iterator[Walk]) -> set[Edge]:
    return {edge for one in walks for edge in zip(one.path, [*one.path[1:], END], strict=True)}


def walks_of_parent() -> Iterator[Walk]:
    """Each decision, answered in each way; then each ending; and each task broken."""
    ends = decision(Step.CLOSE, Ending.RECOVERED)
    well: dict[str, Any] = dict.fromkeys(TASKS_OF_PARENT, DONE)
    given = {"incident_id": INCIDENT, "node_id": NODE}
    for first, answer in product([*ACTS, *WAITS, UNKNOWN_STEP], [DONE, TIMEOUT, BROKEN]):
        acting = {name: answer for name in TASKS_OF_PARENT if name in ACTING}
        yield walk(PARENT, given, {**well, **acting, "Decide next step": Sequence([first, ends])})
    restarts = [decision(Step.RESTART_WORKLOAD), ends]
    for stopped, found, launched in product([REFUSED, HAS_CHECKPOINTS], [DONE, REFUSED, BROKEN], [DONE, BROKEN]):
        gang = {"Stop gang": stopped, "Find checkpoint": found, "Launch gang": launched}
        yield walk(PARENT, given, {**well, **gang, "Decide next step": Sequence(restarts)})
    for ending in ENDINGS:
        yield walk(PARENT, given, {**well, "Decide next step": Sequence([ending])})
    for broken in TASKS_OF_PARENT:
        also = {"Open incident": BROKEN} if broken in ("Page operators", "Mark escalated") else {}
        yield walk(PARENT, given, {**well, "Decide next step": Sequence([ends]), **also, broken: BROKEN})


ACTING = {
    "Isolate node",
    "Freeze evidence",
    "Wait for approval",
    "Wait for condition",
    "Reboot node",
    "Run diagnostics",
    "Replace node",
    "Return to service",
    "Stop gang",
    "Find checkpoint",
    "Launch gang",
}


def test_every_branch_of_the_parent_is_walked() -> None:
    assert edges_of(PARENT) - walked(walks_of_parent()) == set()
