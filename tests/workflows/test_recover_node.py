"""recover_node: decide, act, look; every way through, and every way out."""

from typing import Any

import pytest

from nodeheal.contract import names
from nodeheal.contract.notification import SUBJECT_CHARACTERS
from nodeheal.contract.steps import DecideRequest, StepRequest
from nodeheal.contract.vocabulary import Awaited, Ending, Outcome, Step
from tests.support.recover_node import CLOSE, STEPS, recover
from tests.support.steps import DEADLINE_SECONDS, INCIDENT, NODE, decision, result
from tests.support.walker import EXECUTION_ARN, TASK_TOKEN, TIMEOUT, Error, Sequence, walk

# What breaks here is observed when the next step is decided: it may have acted.
OBSERVED = ["Freeze evidence", "Reboot node", "Run diagnostics", "Replace node", "Stop gang", "Launch gang"]
ENDS = {
    "End incident": decision(Step.CLOSE, Ending.OBSERVED_ONLY),
}


def test_a_lost_gpu_walks_from_isolation_to_the_resumed_job() -> None:
    story = [Step.ISOLATE, Step.REBOOT, Step.DIAGNOSE, Step.RETURN, Step.RESTART_WORKLOAD]

    seen = recover([*(decision(step) for step in story), CLOSE])

    acted = [name for name in seen.path if name in STEPS.values()]
    assert acted == ["Isolate node", "Reboot node", "Run diagnostics", "Return to service", "Stop gang"]
    first = seen.path.index("Stop gang")
    assert seen.path[first : first + 3] == ["Stop gang", "Search for a checkpoint?", "Launch gang"]
    assert seen.end == "Recovered"
    assert seen.output == {"summary": "because of CLOSE", "incident_id": INCIDENT, "ending": "RECOVERED"}


def test_the_incident_is_marked_as_begun_before_anything_else() -> None:
    seen = recover([CLOSE])

    [asked] = seen.arguments_of("Open incident")
    assert seen.path[0] == "Open incident"
    assert asked["Key"] == {
        names.PARTITION_KEY: {"S": names.incident_pk(INCIDENT)},
        names.SORT_KEY: {"S": names.INCIDENT_SK},
    }
    assert asked["ExpressionAttributeValues"][":execution_arn"] == {"S": EXECUTION_ARN}


def test_every_decision_hears_how_the_last_step_went() -> None:
    seen = recover([decision(Step.ISOLATE), decision(Step.REBOOT), CLOSE])

    asked = [DecideRequest.model_validate(arguments["Payload"]) for arguments in seen.arguments_of("Decide next step")]
    assert [request.turn for request in asked] == [0, 1, 2]
    assert [request.result and request.result.step for request in asked] == [None, Step.ISOLATE, Step.REBOOT]


@pytest.mark.parametrize(("step", "name"), STEPS.items())
def test_a_step_is_asked_with_its_decision_and_its_turn(step: Step, name: str) -> None:
    seen = recover([decision(step), CLOSE])

    [asked] = seen.arguments_of(name)
    request = StepRequest.model_validate(asked["Payload"])
    assert (request.turn, request.decision.step, request.incident_id) == (1, step, INCIDENT)


@pytest.mark.parametrize("name", [*OBSERVED, "Isolate node"])
def test_an_acting_step_waits_with_its_token_until_the_deadline_of_the_plan(name: str) -> None:
    seen = recover([decision(_step_of(name)), CLOSE])

    [asked] = seen.arguments_of(name)
    assert StepRequest.model_validate(asked["Payload"]).task_token == TASK_TOKEN
    assert seen.deadlines[name] == DEADLINE_SECONDS


def _step_of(name: str) -> Step:
    return next((step for step, state in STEPS.items() if state == name), Step.RESTART_WORKLOAD)


@pytest.mark.parametrize("name", OBSERVED)
@pytest.mark.parametrize("error", [TIMEOUT, Error("Lambda.Unknown"), Error("Lambda.ServiceException")], ids=str)
def test_what_may_have_acted_is_observed_and_never_repeated(name: str, error: Error) -> None:
    seen = recover([decision(_step_of(name)), CLOSE], **{name.replace(" ", "_"): error})

    assert len(seen.arguments_of(name)) == 1
    assert seen.path[seen.path.index(name) + 1] == "Decide next step"
    assert seen.arguments_of("Decide next step")[1]["Payload"].get("result") is None


@pytest.mark.parametrize("name", OBSERVED)
@pytest.mark.parametrize("error", ["Lambda.TooManyRequestsException", "NotAccepted"])
def test_what_was_provably_not_accepted_is_asked_again(name: str, error: str) -> None:
    answers = Sequence([Error(error), result(_step_of(name))])

    seen = recover([decision(_step_of(name)), CLOSE], **{name.replace(" ", "_"): answers})

    assert len(seen.arguments_of(name)) == 2
    assert seen.end == "Recovered"


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.DONE])
def test_a_gang_that_did_not_stop_is_not_started_again(outcome: Outcome) -> None:
    seen = recover([decision(Step.RESTART_WORKLOAD), CLOSE], Stop_gang=result(Step.RESTART_WORKLOAD, outcome))

    assert "Launch gang" not in seen.path
    asked = DecideRequest.model_validate(seen.arguments_of("Decide next step")[1]["Payload"])
    assert asked.result is not None
    assert asked.result.outcome is outcome


@pytest.mark.parametrize(("found", "searches"), [(Outcome.DONE, 1), (Outcome.UNKNOWN, 3)])
def test_a_checkpoint_is_searched_on_three_nodes_at_most(found: Outcome, searches: int) -> None:
    has_checkpoints = result(Step.RESTART_WORKLOAD) | {"facts": {"kind": "CHECKPOINT_SEARCH", "directory": "/mnt"}}

    seen = recover(
        [decision(Step.RESTART_WORKLOAD), CLOSE],
        Stop_gang=has_checkpoints,
        Find_checkpoint=result(Step.RESTART_WORKLOAD, found),
    )

    asked = [arguments["Payload"]["searches"] for arguments in seen.arguments_of("Find checkpoint")]
    assert asked == list(range(searches))
    assert len(seen.arguments_of("Launch gang")) == 1


def test_isolation_waits_with_its_token_until_the_deadline_of_the_plan() -> None:
    seen = recover([decision(Step.ISOLATE), CLOSE])

    assert seen.arguments_of("Isolate node")[0]["Payload"]["task_token"] == TASK_TOKEN
    assert seen.deadlines["Isolate node"] == DEADLINE_SECONDS


def test_an_isolation_that_nobody_confirmed_is_looked_at_and_decided_on() -> None:
    seen = recover([decision(Step.ISOLATE), decision(Step.ESCALATE, Ending.HANDED_TO_A_HUMAN)], Isolate_node=TIMEOUT)

    assert seen.path[3:5] == ["Isolate node", "Decide next step"]
    assert seen.arguments_of("Decide next step")[1]["Payload"].get("result") is None
    assert seen.end == "Escalated"


@pytest.mark.parametrize(
    ("decided", "end"),
    [
        (CLOSE, "Recovered"),
        (decision(Step.CLOSE, Ending.OBSERVED_ONLY), "Observed only"),
        (decision(Step.ESCALATE, Ending.HANDED_TO_A_HUMAN), "Escalated"),
    ],
)
def test_each_ending_has_its_own_last_state(decided: dict[str, Any], end: str) -> None:
    seen = recover([decided])

    assert seen.end == end
    assert seen.output["ending"] == decided["ending"]


@pytest.mark.parametrize("broken", [TIMEOUT, Error("Runtime.ImportModuleError"), Error("NotAccepted")], ids=str)
def test_evidence_that_cannot_be_had_does_not_hold_the_recovery_up(broken: Error) -> None:
    seen = recover([decision(Step.FREEZE_EVIDENCE), decision(Step.REBOOT), CLOSE], Freeze_evidence=broken)

    assert seen.path[3:5] == ["Freeze evidence", "Decide next step"]
    assert seen.arguments_of("Decide next step")[1]["Payload"].get("result") is None
    assert seen.end == "Recovered"


def test_what_is_no_step_pages_the_operators() -> None:
    seen = recover([decision(Step.REBOOT) | {"step": "DANCE"}])

    assert seen.path[-3] == "Page operators"


def test_a_close_without_an_ending_pages() -> None:
    seen = recover([decision(Step.CLOSE)])

    assert seen.path[-4:] == ["How did it end?", "Page operators", "Mark escalated", "Recovery failed"]


@pytest.mark.parametrize("name", ["Open incident", "Decide next step", "Isolate node", "Return to service", *ENDS])
def test_any_state_that_breaks_pages_the_operators(name: str) -> None:
    step = next((step for step, state in STEPS.items() if state == name), None)
    decided = ENDS.get(name) or (decision(step) if step else CLOSE)

    seen = recover([decided], **{name.replace(" ", "_"): Error("Runtime.ImportModuleError", "x" * 10_000)})

    assert seen.path[-4:] == [name, "Page operators", "Mark escalated", "Recovery failed"]
    assert seen.error == names.ERROR_ALREADY_PAGED


@pytest.mark.parametrize("name", ["Return to service", *ENDS])
def test_a_state_that_never_answers_pages_the_operators(name: str) -> None:
    step = next((step for step, state in STEPS.items() if state == name), None)

    seen = recover([ENDS.get(name) or decision(step or Step.CLOSE)], **{name.replace(" ", "_"): TIMEOUT})

    assert seen.end == "Recovery failed"


@pytest.mark.parametrize(
    ("awaits", "name"),
    [
        (Awaited.APPROVAL, "Wait for approval"),
        *((word, "Wait for condition") for word in Awaited if word != "APPROVAL"),
    ],
)
def test_each_wait_has_its_state_and_its_end_is_looked_at(awaits: Awaited, name: str) -> None:
    waits = decision(Step.WAIT) | {"awaits": awaits.value}

    seen = recover([waits, CLOSE], **{name.replace(" ", "_"): TIMEOUT})

    assert seen.path[3:5] == [name, "Decide next step"]
    assert seen.arguments_of(name)[0]["Payload"]["task_token"] == TASK_TOKEN
    assert seen.arguments_of("Decide next step")[1]["Payload"].get("result") is None


def test_the_page_says_what_broke_and_fits_into_an_email() -> None:
    seen = recover([CLOSE], Decide_next_step=Error("Runtime.ImportModuleError", "x" * 100_000))

    [asked] = seen.arguments_of("Page operators")
    told = {name: value["StringValue"] for name, value in asked["MessageAttributes"].items()}
    assert told == {"severity": "PAGE", "escalation": "RECOVERY_BROKE", "phase": "ENDED", "node": NODE}
    assert len(asked["Subject"]) <= SUBJECT_CHARACTERS
    assert NODE in asked["Subject"]
    assert "Runtime.ImportModuleError" in asked["Message"]
    assert INCIDENT in asked["Message"]
    assert EXECUTION_ARN in asked["Message"]
    assert len(asked["Message"]) < 4_000


def test_a_page_goes_out_although_the_execution_was_started_with_nothing() -> None:
    seen = walk("recover_node", {}, {"Open incident": Error("Boom"), "Page operators": {}, "Mark escalated": {}})

    [asked] = seen.arguments_of("Page operators")
    assert all(value["StringValue"] for value in asked["MessageAttributes"].values())


def test_the_longest_node_name_still_fits_into_a_subject() -> None:
    given = {"incident_id": INCIDENT, "node_id": "n" * 128}

    seen = walk("recover_node", given, {"Open incident": Error("Boom"), "Page operators": {}, "Mark escalated": {}})

    assert len(seen.arguments_of("Page operators")[0]["Subject"]) == SUBJECT_CHARACTERS


def test_a_page_that_could_not_be_sent_ends_so_that_the_rule_pages() -> None:
    seen = recover([CLOSE], Open_incident=Error("Boom"), Page_operators=Error("SNS.Throttled"))

    assert seen.path[-2:] == ["Mark escalated", "Recovery failed"]
    assert seen.error == "PageFailed"


@pytest.mark.parametrize("error", ["Lambda.TooManyRequestsException", "NotAccepted"])
def test_an_isolation_that_was_not_accepted_is_asked_again(error: str) -> None:
    seen = recover(
        [decision(Step.ISOLATE), CLOSE], Isolate_node=Sequence([Error(error), Error(error), result(Step.ISOLATE)])
    )

    assert len(seen.arguments_of("Isolate node")) == 3
    assert seen.end == "Recovered"


@pytest.mark.parametrize("error", ["Lambda.Unknown", "Lambda.ServiceException", "States.Timeout"])
def test_an_isolation_that_may_have_acted_is_never_repeated(error: str) -> None:
    seen = recover([decision(Step.ISOLATE), CLOSE], Isolate_node=Error(error))

    assert len(seen.arguments_of("Isolate node")) == 1


@pytest.mark.parametrize("error", ["Lambda.Unknown", "Lambda.ClientExecutionTimeoutException"])
def test_a_decision_whose_function_is_gone_is_asked_for_again(error: str) -> None:
    seen = recover([Error(error), Error(error), CLOSE])

    assert len(seen.arguments_of("Decide next step")) == 3
    assert seen.end == "Recovered"


def test_a_table_that_cannot_be_written_does_not_hide_that_a_human_was_paged() -> None:
    seen = recover([Error("TypeError")], Hand_incident_over=Error("DynamoDB.Whatever"))

    assert seen.path[-3:] == ["Page operators", "Mark escalated", "Recovery failed"]
    assert seen.error == names.ERROR_ALREADY_PAGED
