"""The interpreter: what it keeps of an expression, how it retries, and what it does not know."""

from typing import Any

import pytest

from nodeheal.simulation.asl import Ask, Delay, Done, Execution, Move, TaskFailure
from nodeheal.simulation.definition import NoStateMachines, Unknown, load, read
from nodeheal.simulation.expressions import Expression, Template

TASK: dict[str, Any] = {
    "Type": "Task",
    "Resource": "arn:aws:states:::lambda:invoke",
    "Arguments": {"Payload": "{% $states.input %}"},
    "TimeoutSeconds": "{% $states.input.seconds %}",
    "Retry": [
        {"ErrorEquals": ["Busy"], "IntervalSeconds": 2, "BackoffRate": 3, "MaxAttempts": 3, "MaxDelaySeconds": 10}
    ],
    "Catch": [{"ErrorEquals": ["States.Timeout"], "Output": "{% $states.errorOutput.Error %}", "Next": "Over"}],
    "Next": "Over",
}
MACHINE = {"StartAt": "Work", "States": {"Work": TASK, "Over": {"Type": "Succeed"}}}


def _execution(machine: dict[str, Any] = MACHINE, jitter: float = 1.0) -> Execution:
    tokens = iter(f"token-{number}" for number in range(100))
    return Execution(
        read("it", machine), "arn", {"seconds": 7}, "2026-01-01T00:00:00Z", lambda: next(tokens), lambda: jitter
    )


def _delay(move: Move) -> float:
    assert isinstance(move, Delay)
    assert move.is_retry
    return move.seconds


def test_a_task_is_asked_and_answered_in_its_own_time() -> None:
    execution = _execution()

    asked = execution.begin()
    ended = execution.answer({"is": "done"})

    assert asked == Ask("Work", TASK["Resource"], {"Payload": {"seconds": 7}}, 7.0, "token-0")
    assert ended == Done({"StatusCode": 200, "Payload": {"is": "done"}})


def test_a_retry_waits_longer_each_time_and_comes_with_a_new_token() -> None:
    execution = _execution()
    execution.begin()

    delays, tokens = [], []
    for _ in range(3):
        delays.append(_delay(execution.fail(TaskFailure("Busy"))))
        again = execution.go_on()
        assert isinstance(again, Ask)
        tokens.append(again.token)
    given_up = execution.fail(TaskFailure("Busy"))

    assert delays == [2, 6, 10]
    assert tokens == ["token-1", "token-2", "token-3"]
    assert given_up == Done(failure=TaskFailure("Busy"), is_caught=False)


def test_full_jitter_draws_a_part_of_the_delay() -> None:
    task = {**TASK, "Retry": [{**TASK["Retry"][0], "JitterStrategy": "FULL"}]}
    execution = _execution({"StartAt": "Work", "States": {"Work": task, "Over": {"Type": "Succeed"}}}, jitter=0.25)
    execution.begin()

    assert _delay(execution.fail(TaskFailure("Busy"))) == 0.5


def test_a_timeout_is_caught_by_its_name_and_not_as_a_failed_task() -> None:
    catch = [{"ErrorEquals": ["States.TaskFailed"], "Next": "Wrong"}, *TASK["Catch"]]
    states = {"Work": {**TASK, "Catch": catch}, "Over": {"Type": "Succeed"}, "Wrong": {"Type": "Fail", "Error": "no"}}
    execution = _execution({"StartAt": "Work", "States": states})
    execution.begin()

    assert execution.fail(TaskFailure("States.Timeout")) == Done("States.Timeout")


@pytest.mark.parametrize(
    "fields",
    [
        {**TASK, "ResultPath": "$"},
        {**TASK, "Retry": [{**TASK["Retry"][0], "Backoff": 2}]},
        {"Type": "Map", "Next": "Over"},
    ],
)
def test_what_is_not_known_is_refused_before_anything_is_executed(fields: dict[str, Any]) -> None:
    with pytest.raises(Unknown, match="Work"):
        read("it", {"StartAt": "Work", "States": {"Work": fields, "Over": {"Type": "Succeed"}}})


def test_it_is_said_clearly_where_the_state_machines_are_missing(tmp_path: Any) -> None:
    with pytest.raises(NoStateMachines, match="come with a checkout"):
        load("recover_node", tmp_path)


@pytest.mark.parametrize(
    ("template", "first", "second"),
    [
        ("{% $a.b = 'x' %}", {"a": {"b": "x"}}, {"a": {"b": "y"}}),
        ("{% $a + 1 %}", {"a": 1}, {"a": 2}),
        ("{% $a = 1 %}", {"a": True}, {"a": 1}),
        ("{% $exists($a.b) ? 1 : 2 %}", {"a": {"b": None}}, {"a": {}}),
        ("{% $a.b[0] = 1 %}", {"a": {"b": [1]}}, {"a": {"b": [2]}}),
        ("{% $sum($a.(b + c)) %}", {"a": {"b": 1, "c": 1}}, {"a": {"b": 1, "c": 2}}),
        (
            "{% $a.b[c = $d].e = 1 %}",
            {"a": {"b": [{"c": 1, "e": 1}]}, "d": 1},
            {"a": {"b": [{"c": 1, "e": 1}]}, "d": 2},
        ),
    ],
)
def test_an_answer_is_kept_only_for_the_very_values_that_it_follows_from(
    template: str, first: dict[str, Any], second: dict[str, Any]
) -> None:
    kept = Template(template)

    answers = [kept.evaluate(first), kept.evaluate(second), kept.evaluate(first)]

    # A fresh expression has nothing to remember.
    source = template.removeprefix("{%").removesuffix("%}")
    assert answers == [Expression(source).evaluate(given) for given in (first, second, first)]
    assert answers[0] != answers[1] or "$exists" in template


@pytest.mark.parametrize("reads", [True, False])
def test_an_output_that_nobody_reads_need_not_be_evaluated(reads: bool) -> None:
    following = {"Type": "Succeed"} if reads else {**TASK, "TimeoutSeconds": 5, "Arguments": {}, "End": True}
    states = {"Work": {**TASK, "Output": "{% $nobody() %}", "Next": "Over"}, "Over": following}
    execution = _execution({"StartAt": "Work", "States": states})
    execution.is_strict = False
    execution.begin()

    if reads:
        with pytest.raises(Exception, match="non-function"):
            execution.answer({})
    else:
        assert isinstance(execution.answer({}), Ask)


def test_what_a_caller_could_change_is_never_shared() -> None:
    template = Template("{% {'a': $b} %}")

    first = template.evaluate({"b": 1})
    first["a"] = 2

    assert template.evaluate({"b": 1}) == {"a": 1}
