"""What keeps the sandbox quick, each against the emulator's own functions."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jsonata import Jsonata
from jsonata.jexception import JException
from ministack.core import iam_evaluator, lambda_runtime
from ministack.services import dynamodb, lambda_svc

from sandbox.behaviour import Behaviour
from sandbox.ministack_adapter.functions import parse_once, share_environments

FUNCTION = {
    "Runtime": "python3.13",
    "FunctionName": "f",
    "FunctionArn": "arn:aws:lambda:us-east-1:000000000000:function:f",
}
POLICY = '{"Statement": [{"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "*"}]}'


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The emulator is put back as it was."""
    for module, names in (
        (lambda_svc, ("acquire_worker", "release_worker")),
        (
            dynamodb,
            (
                "_tokenize",
                "_condition_syntax_error",
                "_check_redundant_parens",
                "_check_reserved_keyword_usage",
                "_project_item",
            ),
        ),
        (iam_evaluator, ("parse_policy_document",)),
    ):
        for name in names:
            monkeypatch.setattr(module, name, getattr(module, name))
    yield
    lambda_runtime._workers.clear()


def acquire() -> Any:
    return lambda_svc.acquire_worker("f", FUNCTION, b"")[0]


def test_an_invocation_waits_for_an_environment_where_all_are_at_work() -> None:
    share_environments(Behaviour(), a_function=2)
    first, second = acquire(), acquire()
    came: list[Any] = []
    third = threading.Thread(target=lambda: came.append(acquire()))
    third.start()
    third.join(0.2)
    waited = list(came)

    lambda_svc.release_worker(second)
    third.join(5)

    assert waited == []
    assert came == [second]
    assert first is not second


def test_an_environment_that_broke_makes_room_for_who_waits() -> None:
    share_environments(Behaviour(), a_function=1)
    broken = acquire()
    came: list[Any] = []
    waiting = threading.Thread(target=lambda: came.append(acquire()))
    waiting.start()
    waiting.join(0.1)

    lambda_runtime._workers.clear()  # as the emulator drops one that broke, and then releases nothing
    lambda_svc.release_worker(None)
    waiting.join(5)

    assert len(came) == 1
    assert came[0] is not broken


def test_only_so_many_run_at_once_whatever_their_functions_are() -> None:
    share_environments(Behaviour(), a_function=2, at_once=1)
    held = acquire()
    came: list[Any] = []
    other = {**FUNCTION, "FunctionName": "g"}
    waiting = threading.Thread(target=lambda: came.append(lambda_svc.acquire_worker("g", other, b"")))
    waiting.start()
    waiting.join(0.1)
    waited = list(came)

    lambda_svc.release_worker(held)
    waiting.join(5)

    assert (waited, len(came)) == ([], 1)


def test_who_came_first_goes_first() -> None:
    share_environments(Behaviour(), a_function=1)
    held, order = acquire(), list[int]()

    def come(number: int) -> None:
        worker = acquire()
        order.append(number)
        lambda_svc.release_worker(worker)

    waiting = [threading.Thread(target=come, args=(number,)) for number in range(8)]
    for thread in waiting:
        thread.start()
        time.sleep(0.02)  # so that they stand in line as they are numbered
    lambda_svc.release_worker(held)
    for thread in waiting:
        thread.join(5)

    assert order == list(range(8))


def test_a_function_starts_cold_once_for_each_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    share_environments(Behaviour(cold_start_seconds=0.7), a_function=1)
    slept: list[float] = []
    monkeypatch.setattr("sandbox.ministack_adapter.functions.time.sleep", slept.append)

    lambda_svc.release_worker(acquire())
    lambda_svc.release_worker(acquire())

    assert slept == [0.7]


def test_each_function_has_environments_of_its_own() -> None:
    share_environments(Behaviour(), a_function=1)
    mine = acquire()

    other, _ = lambda_svc.acquire_worker("g", {**FUNCTION, "FunctionName": "g"}, b"")

    assert other is not mine


def test_a_parsed_expression_means_what_it_meant() -> None:
    parse_once()
    items = [{"n": {"N": str(number)}} for number in range(3)]

    held = [dynamodb._evaluate_condition("n >= :low", item, {":low": {"N": "1"}}, {}) for item in items]

    assert held == [False, True, True]
    assert dynamodb._tokenize("n >= :low") is dynamodb._tokenize("n >= :low")


@pytest.mark.parametrize(
    ("evaluate", "error", "why"),
    [
        (lambda: dynamodb._evaluate_condition("n >= >=", {}, {}, {}), ValueError, "Syntax error"),
        (lambda: dynamodb._project_item({}, "#a, #b", {"#a": "x", "#b": "x"}), ValueError, "overlap"),
        (lambda: Jsonata("(n"), JException, "end"),
    ],
)
def test_what_is_wrong_with_an_expression_is_said_each_time(
    evaluate: Callable[[], object], error: type[Exception], why: str
) -> None:
    parse_once()

    for _ in range(2):
        with pytest.raises(error, match=why):
            evaluate()


def test_an_update_that_names_paths_is_applied() -> None:
    parse_once()

    changed = dynamodb._apply_update_expression({"n": {"N": "1"}}, "SET n = :n", {":n": {"N": "2"}}, {})

    assert "2" in str(changed)


@pytest.mark.parametrize("expression", ["#a, #b", "#a", "#a.c, #b", "#a[0]"])
def test_a_projection_gives_what_it_gave(expression: str) -> None:
    item = {"x": {"M": {"c": {"S": "in"}}}, "y": {"S": "why"}, "z": {"S": "not asked for"}}
    aliases = {"#a": "x", "#b": "y"}
    before = dynamodb._project_item(item, expression, aliases)
    parse_once()

    assert [dynamodb._project_item(item, expression, aliases) for _ in range(2)] == [before, before]


def test_a_projection_means_its_own_aliases() -> None:
    parse_once()
    item = {"x": {"S": "1"}, "y": {"S": "2"}}

    told = [dynamodb._project_item(item, "#a", {"#a": name}) for name in ("x", "y", "x")]

    assert told == [{"x": {"S": "1"}}, {"y": {"S": "2"}}, {"x": {"S": "1"}}]


def test_a_state_machine_s_expression_means_what_it_meant_for_every_input() -> None:
    parse_once()

    told = [Jsonata("$sum(n) > 1 ? m : [n]").evaluate({"n": [n], "m": {"n": n}}) for n in (1, 2, 1)]

    assert told == [[1], {"n": 2}, [1]]
    assert Jsonata("n + 1").ast is Jsonata("n + 1").ast


def test_a_policy_is_parsed_once_and_one_that_is_no_text_as_before() -> None:
    parse_once()

    first, again = iam_evaluator.parse_policy_document(POLICY), iam_evaluator.parse_policy_document(POLICY)

    assert first is again
    assert iam_evaluator.parse_policy_document({"Statement": []}) == []
