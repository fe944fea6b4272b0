"""House rules that every ASL file keeps."""

import json
import re
from typing import Any

import pytest

from nodeheal.contract.vocabulary import Step
from stacks.functions import FUNCTIONS
from stacks.workflows import DEFINITIONS, JOB, PARENT, Workflow

FILES = sorted(path.name.removesuffix(".asl.json") for path in DEFINITIONS.glob("*.asl.json"))
STATES_AT_MOST = 24  # one screen of the console
QUICK_SECONDS = 60  # a call that waits for nothing; above every function's own timeout
INTEGRATIONS = {
    "lambda:invoke",
    "lambda:invoke.waitForTaskToken",
    "dynamodb:updateItem",
    "sns:publish",
}
# Errors after which the call was provably not accepted.
NOT_ACCEPTED = {
    "Lambda.TooManyRequestsException",
    "NotAccepted",
}
# Errors after which it may have been: only for tasks that may happen twice.
MAY_HAVE_ACTED = {
    "DynamoDB.AmazonDynamoDBException",  # the integration's name for what it gives no other
    "DynamoDB.InternalServerErrorException",
    "DynamoDB.ProvisionedThroughputExceededException",
    "DynamoDB.RequestLimitExceeded",
    "DynamoDB.ThrottlingException",
    "Lambda.AWSLambdaException",
    "Lambda.ClientExecutionTimeoutException",
    "Lambda.SdkClientException",
    "Lambda.ServiceException",
    "Lambda.Unknown",  # out of memory, killed at its timeout, or gone
}
HARMLESS_TWICE = {
    "Open incident",
    "Mark escalated",
    "Decide next step",
    "Return to service",
    "End incident",
    "Choose nodes",
    "Evaluate diagnostics",
    "Attribute failure",
    "End job",
    "Mark job escalated",
}
PAGE = "Page operators"
COMMANDS = {
    "Attribute",
    "Check",
    "Choose",
    "Decide",
    "End",
    "Evaluate",
    "Find",
    "Freeze",
    "Isolate",
    "Launch",
    "Mark",
    "Open",
    "Page",
    "Reboot",
    "Replace",
    "Return",
    "Run",
    "Stop",
    "Wait",
    "Watch",
}

State = dict[str, Any]


def states_of(stem: str) -> dict[str, State]:
    """The states of one file."""
    states: dict[str, State] = json.loads((DEFINITIONS / f"{stem}.asl.json").read_text("utf-8"))["States"]
    return states


def tasks() -> list[tuple[str, str, State]]:
    """Every Task of every file."""
    return [(stem, name, s) for stem in FILES for name, s in states_of(stem).items() if s["Type"] == "Task"]


def exits(state: State) -> set[str]:
    """Every state that may come next."""
    rules = [*state.get("Choices", []), *state.get("Catch", []), state]
    return {rule["Next"] for rule in rules if "Next" in rule} | ({state["Default"]} if "Default" in state else set())


def resource(state: State) -> str:
    """The integration that a Task calls."""
    return str(state["Resource"]).removeprefix("arn:${Partition}:states:::")


# A function keeps its name, because an execution that is in flight during an upgrade still calls it.
STEM_OF = {
    "Wait for condition": "wait_for_news",
    "Wait for nodes": "await_nodes",
    "Evaluate diagnostics": "judge_checks",
}
TASKS = [pytest.param(name, state, id=f"{stem}:{name}") for stem, name, state in tasks()]


def test_every_workflow_is_deployed_and_every_deployed_one_has_a_file() -> None:
    assert sorted((PARENT, JOB)) == FILES


@pytest.mark.parametrize("stem", FILES)
def test_a_graph_fits_on_one_screen(stem: str) -> None:
    assert len(states_of(stem)) <= STATES_AT_MOST


@pytest.mark.parametrize("stem", FILES)
def test_every_state_is_reached_and_every_path_leads_somewhere(stem: str) -> None:
    definition = json.loads((DEFINITIONS / f"{stem}.asl.json").read_text("utf-8"))
    states = definition["States"]
    reached, todo = set(), {definition["StartAt"]}

    while todo:
        reached.add(name := todo.pop())
        todo |= exits(states[name]) - reached

    assert reached == set(states)


@pytest.mark.parametrize("stem", FILES)
def test_choices_ask_and_only_choices_ask(stem: str) -> None:
    for name, state in states_of(stem).items():
        assert name.endswith("?") == (state["Type"] == "Choice"), name


@pytest.mark.parametrize("stem", FILES)
def test_every_choice_says_what_happens_otherwise(stem: str) -> None:
    for name, state in states_of(stem).items():
        assert state["Type"] != "Choice" or "Default" in state, name


@pytest.mark.parametrize("stem", FILES)
def test_files_are_jsonata_and_say_what_they_are_for(stem: str) -> None:
    definition = json.loads((DEFINITIONS / f"{stem}.asl.json").read_text("utf-8"))

    assert definition["QueryLanguage"] == "JSONata"
    assert "Input: " in definition["Comment"]


@pytest.mark.parametrize(("name", "state"), TASKS)
def test_a_task_commands(name: str, state: State) -> None:
    assert name.split()[0] in COMMANDS


@pytest.mark.parametrize(("name", "state"), TASKS)
def test_a_task_calls_only_what_the_house_allows(name: str, state: State) -> None:
    assert resource(state) in INTEGRATIONS


@pytest.mark.parametrize(("name", "state"), TASKS)
def test_a_task_has_a_deadline_from_the_plan_or_the_quick_one(name: str, state: State) -> None:
    deadline = state["TimeoutSeconds"]
    assert deadline == QUICK_SECONDS or "deadline_seconds" in deadline


@pytest.mark.parametrize(("name", "state"), TASKS)
def test_a_task_catches_everything(name: str, state: State) -> None:
    assert state["Catch"][-1]["ErrorEquals"] == ["States.ALL"]
    assert all("'summary'" in catcher["Output"] for catcher in state["Catch"])


@pytest.mark.parametrize(("name", "state"), TASKS)
def test_a_task_repeats_only_what_was_provably_not_accepted(name: str, state: State) -> None:
    if name == PAGE:  # a second page is better than none
        return
    allowed = NOT_ACCEPTED | (MAY_HAVE_ACTED if name in HARMLESS_TWICE else set())

    repeated = {error for retrier in state["Retry"] for error in retrier["ErrorEquals"]}

    assert repeated
    assert repeated <= allowed


# Errors that must be retried under each of their names, because sources disagree on the one that AWS sends.
SPELLINGS = {
    "dynamodb:updateItem": {"DynamoDB.AmazonDynamoDBException", "DynamoDB.InternalServerErrorException"},
}


@pytest.mark.parametrize(
    ("name", "state"), [(name, state) for _, name, state in tasks() if resource(state) in SPELLINGS]
)
def test_an_error_whose_name_is_in_doubt_is_retried_under_each_name(name: str, state: State) -> None:
    retried = {error for retrier in state["Retry"] for error in retrier["ErrorEquals"]}

    assert SPELLINGS[resource(state)] - retried == set()


@pytest.mark.parametrize(("name", "state"), TASKS)
def test_a_task_that_waits_for_an_event_hands_out_its_token(name: str, state: State) -> None:
    assert resource(state).endswith(".waitForTaskToken") == ("Task.Token" in json.dumps(state["Arguments"]))


def test_functions_end_before_the_workflow_gives_them_up() -> None:
    assert max(spec.timeout_seconds for spec in FUNCTIONS) < QUICK_SECONDS


# jsonata.org, Function Library: a variable of such a name hides the function from every expression behind it.
# fmt: off
BUILT_IN = {
    "string", "length", "substring", "substringBefore", "substringAfter", "uppercase", "lowercase", "trim", "pad",
    "contains", "split", "join", "match", "replace", "eval", "base64encode", "base64decode", "encodeUrlComponent",
    "encodeUrl", "decodeUrlComponent", "decodeUrl", "number", "abs", "floor", "ceil", "round", "power", "sqrt",
    "random", "formatNumber", "formatBase", "formatInteger", "parseInteger", "sum", "max", "min", "average",
    "boolean", "not", "exists", "count", "append", "sort", "reverse", "shuffle", "distinct", "zip", "keys", "lookup",
    "spread", "merge", "sift", "each", "error", "assert", "type", "now", "millis", "fromMillis", "toMillis", "map",
    "filter", "single", "reduce", "parse", "partition", "range", "hash", "uuid", "states",
}
# fmt: on


@pytest.mark.parametrize("stem", FILES)
def test_no_variable_hides_a_function_of_jsonata(stem: str) -> None:
    text = (DEFINITIONS / f"{stem}.asl.json").read_text("utf-8")

    def assigned(value: object) -> set[str]:
        if isinstance(value, dict):
            own = set(value.get("Assign", {})) if isinstance(value.get("Assign"), dict) else set()
            return own.union(*(assigned(each) for each in value.values()))
        return set().union(*(assigned(each) for each in value)) if isinstance(value, list) else set()

    assert assigned(json.loads(text)) & BUILT_IN == set()


@pytest.mark.parametrize("stem", FILES)
def test_a_file_leaves_only_names_open(stem: str) -> None:
    functions = {f"{spec.class_name}Function" for spec in FUNCTIONS}

    text = (DEFINITIONS / f"{stem}.asl.json").read_text("utf-8")

    assert Workflow(stem).placeholders() <= functions | {"Partition", "Table", "Topic"}
    assert not re.search(r"arn:aws|\d{12}|https?:", text)


@pytest.mark.parametrize(("name", "state"), TASKS)
def test_a_step_has_one_stem_from_the_state_to_the_service(name: str, state: State) -> None:
    called = re.findall(r"\$\{(\w+?)Function\}", json.dumps(state["Arguments"]))

    expected = STEM_OF.get(name, name.lower().replace(" ", "_"))

    assert [re.sub(r"(?<!^)([A-Z])", r"_\1", word).lower() for word in called] in ([expected], [])
    assert called or resource(state) in {"dynamodb:updateItem", "sns:publish"}


def test_the_parent_knows_each_step_by_a_word_of_the_vocabulary() -> None:
    undecided, *rules = states_of(PARENT)["Which step?"]["Choices"]
    asked = [rule["Condition"].split("'")[1] for rule in rules]

    assert undecided["Next"] == "Decide next step"
    assert [word for word in asked if asked.count(word) > 1] == ["WAIT", "WAIT"]  # the first is for approval
    assert {Step(word) for word in asked} == set(Step)


def test_the_page_of_the_costs_names_every_state_that_waits_by_the_clock() -> None:
    waiting = [(stem, name) for stem in FILES for name, state in states_of(stem).items() if state["Type"] == "Wait"]
    text = (DEFINITIONS.parent / "docs" / "cost.md").read_text("utf-8")

    assert [f"`{name}` of `{stem}`" in text for stem, name in waiting] == [True]
