"""The children: reserve, act, look. Their output is a StepResult; if not, they fail, and the parent pages."""

from typing import Any

import pytest

from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Outcome, Step
from tests.workflows.steps import DEADLINE_SECONDS, request, result
from tests.workflows.walker import TASK_TOKEN, TIMEOUT, Error, Sequence, Walk, walk

FILES = {
    "reboot_node": Step.REBOOT,
    "run_diagnostics": Step.DIAGNOSE,
    "replace_node": Step.REPLACE,
    "restart_workload": Step.RESTART_WORKLOAD,
}
# The tasks that change something in the world, with what is walked when all goes well.
ACTING = [
    ("reboot_node", "Reboot node"),
    ("run_diagnostics", "Run diagnostics"),
    ("replace_node", "Replace node"),
    ("restart_workload", "Stop gang"),
    ("restart_workload", "Launch gang"),
]
WAITING = ACTING
RESERVING = ["reboot_node", "replace_node", "restart_workload"]


def run(stem: str, **changed: Any) -> Walk:
    """Walk a child; every task does as it should, unless `changed` says otherwise."""
    step = FILES[stem]
    answers: dict[str, Any] = {name: result(step) for _, name in ACTING}
    answers |= {"Reserve attempt": result(step), "Look once": result(step, Outcome.TIMED_OUT, "nothing happened")}
    return walk(stem, request(step), {**answers, **{name.replace("_", " "): a for name, a in changed.items()}})


@pytest.mark.parametrize(
    ("stem", "path"),
    [
        ("reboot_node", ["Reserve attempt", "Attempt granted?", "Reboot node"]),
        ("run_diagnostics", ["Run diagnostics"]),
        (
            "replace_node",
            ["Reserve attempt", "Attempt granted?", "Replace node", "Launch now?", "Replacement finished"],
        ),
        (
            "restart_workload",
            [
                "Stop gang",
                "Did the gang stop?",
                "Reserve attempt",
                "Attempt granted?",
                "Launch gang",
            ],
        ),
    ],
)
def test_when_all_goes_well_the_result_of_the_last_task_comes_out(stem: str, path: list[str]) -> None:
    seen = run(stem)

    assert seen.path == path
    assert StepResult.model_validate(seen.output).outcome is Outcome.DONE


@pytest.mark.parametrize("stem", RESERVING)
def test_a_refused_attempt_touches_nothing(stem: str) -> None:
    seen = run(stem, Reserve_attempt=result(FILES[stem], Outcome.REFUSED, "1 of 1 attempts are spent"))

    assert seen.end == "Attempt refused"
    assert StepResult.model_validate(seen.output).reason == "1 of 1 attempts are spent"
    assert not {"Reboot node", "Replace node", "Launch gang"} & set(seen.path)


@pytest.mark.parametrize("stem", RESERVING)
def test_an_attempt_is_reserved_before_the_destructive_call(stem: str) -> None:
    seen = run(stem)

    destructive = {"reboot_node": "Reboot node", "replace_node": "Replace node", "restart_workload": "Launch gang"}
    assert seen.path.index("Reserve attempt") < seen.path.index(destructive[stem])


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.DONE])
def test_a_gang_that_did_not_stop_is_not_started_again(outcome: Outcome) -> None:
    seen = run("restart_workload", Stop_gang=result(Step.RESTART_WORKLOAD, outcome))

    assert seen.path == ["Stop gang", "Did the gang stop?", "Gang not stopped"]
    assert StepResult.model_validate(seen.output).outcome is outcome


@pytest.mark.parametrize(("stem", "name"), ACTING)
@pytest.mark.parametrize("error", [TIMEOUT, Error("Lambda.Unknown"), Error("Lambda.ServiceException")])
def test_what_may_have_acted_is_looked_at_and_never_repeated(stem: str, name: str, error: Error) -> None:
    seen = run(stem, **{name.replace(" ", "_"): error})

    assert len(seen.arguments_of(name)) == 1
    assert seen.path[seen.path.index(name) + 1] == "Look once"
    assert StepResult.model_validate(seen.output).outcome is Outcome.TIMED_OUT


@pytest.mark.parametrize(("stem", "name"), ACTING)
@pytest.mark.parametrize("error", ["Lambda.TooManyRequestsException", "NotAccepted"])
def test_what_was_provably_not_accepted_is_asked_again(stem: str, name: str, error: str) -> None:
    answers = Sequence([Error(error), result(FILES[stem])])

    seen = run(stem, **{name.replace(" ", "_"): answers})

    assert len(seen.arguments_of(name)) == 2
    assert "Look once" not in seen.path


@pytest.mark.parametrize("stem", RESERVING)
def test_a_ledger_that_does_not_answer_leads_to_a_look(stem: str) -> None:
    seen = run(stem, Reserve_attempt=Error("Boom"))

    assert "Look once" in seen.path
    assert StepResult.model_validate(seen.output)


@pytest.mark.parametrize(("stem", "name"), ACTING)
def test_when_even_looking_fails_the_child_fails(stem: str, name: str) -> None:
    seen = run(stem, **{name.replace(" ", "_"): TIMEOUT, "Look_once": Error("Boom")})

    assert seen.end == "Nobody could look"
    assert seen.error == "CouldNotLook"


@pytest.mark.parametrize(("stem", "name"), ACTING)
def test_an_acting_task_has_the_deadline_of_the_plan(stem: str, name: str) -> None:
    assert run(stem).deadlines[name] == DEADLINE_SECONDS


@pytest.mark.parametrize(("stem", "name"), WAITING)
def test_a_wait_is_asked_with_its_token(stem: str, name: str) -> None:
    [asked] = run(stem).arguments_of(name)

    assert StepRequest.model_validate(asked["Payload"]).task_token == TASK_TOKEN


@pytest.mark.parametrize("stem", FILES)
def test_a_look_is_told_what_to_look_at(stem: str) -> None:
    first = next(name for file, name in ACTING if file == stem)

    seen = run(stem, **{first.replace(" ", "_"): TIMEOUT})

    [asked] = seen.arguments_of("Look once")
    assert StepRequest.model_validate(asked["Payload"]).decision.step is FILES[stem]
