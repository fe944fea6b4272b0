"""What a human sees in the console: a line for each state, and nothing too large to be read."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from nodeheal.contract.health_event import EVIDENCE_BYTES
from nodeheal.contract.results import EVIDENCE_CHARACTERS, REASON_CHARACTERS, EvidenceSaved, StepResult
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Ending, Outcome, Step
from tests.support.builders import ACT, xid
from tests.support.incident_steps import Incident
from tests.support.recover_node import CLOSE, STEPS, recover
from tests.support.recovery_story import Story
from tests.support.step_functions import isolate_node
from tests.support.steps import INCIDENT, decision, result
from tests.support.walker import Error, Walk

KIB = 1024
AT_MOST = 32 * KIB
WIDE = "\N{GRINNING FACE}"  # four bytes in UTF-8
LONGEST_NODE = "i-" + "0" * 126


def size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


def largest_decision(step: Step = Step.ISOLATE) -> dict[str, Any]:
    """What the core decides when a node shows two hundred faults with the longest names there may be."""
    root = xid(79, node_id=LONGEST_NODE, evidence="x" * EVIDENCE_BYTES, component="c" * 128, pool="p" * 64)
    story = Story(root, job="j" * 255)
    for number in range(200):
        code = f"{number:03}{'x' * 125}"
        story.reports(xid(79, node_id=LONGEST_NODE, event_id=f"e{number}", code=code, pool="p" * 64))
    decided = story.next()
    assert len(decided.reason) == REASON_CHARACTERS  # it was cut
    longest = {"why": WIDE * 9_000, "fault": WIDE * 9_000, "reason": WIDE * 9_000}
    return Decision.model_validate({**decided.model_dump(), **longest, "step": step}).model_dump(mode="json")


def largest_result(step: Step) -> dict[str, Any]:
    wide = WIDE * 9_000
    shown = EvidenceSaved(link=wide, console=wide, accused=wide, confirmed_by=wide)
    at = datetime(2026, 3, 1, tzinfo=UTC)
    found = StepResult(
        step=step,
        node_id=LONGEST_NODE,
        outcome=Outcome.DONE,
        reason=WIDE * 9_000,
        finished_at=at,
        facts=shown,
        down_reported_by=wide,
    )
    return found.model_dump(mode="json")


def must_be_readable(seen: Walk) -> None:
    assert seen.outputs
    for name, arguments in seen.asked:
        assert size(arguments) <= AT_MOST, name
    for name, output in seen.outputs:
        assert size(output) <= AT_MOST, name
        assert output["summary"], name
        assert "\n" not in output["summary"], name
        assert len(output["summary"]) <= 200, name


def test_the_largest_incident_is_readable_in_every_state() -> None:
    answers = {name.replace(" ", "_"): largest_result(step) for step, name in STEPS.items()}

    must_be_readable(recover([*(largest_decision(step) for step in STEPS), CLOSE], **answers))


def test_a_reason_of_several_lines_is_one_line_in_the_console() -> None:
    torn = {**result(Step.ISOLATE), "reason": "drained,\nand its gang\nhas stopped"}

    seen = recover([decision(Step.ISOLATE), decision(Step.WAIT), {**CLOSE, "reason": "all\nwell"}], Isolate_node=torn)

    told = dict(seen.outputs)
    assert told["Isolate node"]["summary"] == "ISOLATE DONE: drained, and its gang has stopped"
    assert told["Recovered"] == {"summary": "all well", "incident_id": INCIDENT, "ending": Ending.RECOVERED}
    must_be_readable(seen)


def test_a_recovery_that_breaks_says_so_in_a_line_too() -> None:
    seen = recover([{"step": "DANCE", "reason": "why not"}])

    assert seen.end == "Recovery failed"
    must_be_readable(seen)


@pytest.mark.parametrize("cause", ["", WIDE * 9_000], ids=["without a cause", "with a long one"])
def test_an_error_that_is_caught_is_told_in_a_line_however_long_its_cause(cause: str) -> None:
    late, broken = Error("States.Timeout", cause), Error("States.TaskFailed", cause)

    seen = recover([decision(Step.ISOLATE), decision(Step.REBOOT), CLOSE], Isolate_node=late, Reboot_node=broken)

    told = dict(seen.outputs)
    assert told["Isolate node"]["summary"] == "Isolate node: States.Timeout; its outcome is observed next"
    assert told["Reboot node"]["summary"] == "Reboot node: States.TaskFailed; its outcome is observed next"
    must_be_readable(seen)


def test_a_full_budget_of_many_holders_is_told_shortly() -> None:
    it = Incident()
    for number in range(40):
        it.ports.pools.claim("demo", f"i-{number:0126}", 40)

    isolate_node(it.request(), it.ports, ACT)

    assert len(it.resumed().reason) <= EVIDENCE_CHARACTERS
    assert it.resumed().reason.endswith(", ...)")
