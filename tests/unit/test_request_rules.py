"""What AWS would refuse is refused here: by botocore's models, and by the table of documented limits."""

import json
from typing import Any

import boto3
import pytest
from botocore.exceptions import ParamValidationError

from nodeheal.contract import names
from nodeheal.simulation.asl import Ask
from sandbox.request_rules import complaints, documented_limits, service_model
from tests import strict_asks

TASK_ID = "0123456789abcdef0123456789abcdef"
START: dict[str, Any] = {"taskDefinition": "llama:1", "containerInstances": ["one"]}


def policy_of(statements: int) -> str:
    """A queue policy of so many statements."""
    return json.dumps({"Statement": [{"Effect": "Allow"}] * statements})


def test_a_queue_policy_of_twenty_statements_is_taken() -> None:
    assert complaints("sqs", "SetQueueAttributes", {"QueueUrl": "q", "Attributes": {"Policy": policy_of(20)}}) == []


def test_the_mark_of_the_longest_job_in_its_last_run_is_taken() -> None:
    mark = names.started_by("a" * 63, 9_999_999)

    assert complaints("ecs", "StartTask", {**START, "startedBy": mark}) == []
    assert complaints("ecs", "ListTasks", {"startedBy": mark}) == []


def test_the_mark_of_a_task_that_takes_anothers_place_is_taken_and_is_no_ranks() -> None:
    mark = names.successor_of(f"arn:aws:ecs:us-east-1:111122223333:task/training/{TASK_ID}")

    assert complaints("ecs", "StartTask", {**START, "startedBy": mark}) == []
    assert not names.is_rank(mark)
    assert mark != names.successor_of(f"{TASK_ID[:-12]}ffffffffffff"[::-1])


def test_a_mark_of_37_characters_is_refused_with_its_source() -> None:
    [why] = complaints("ecs", "StartTask", {**START, "startedBy": "a" * 37})

    assert "startedBy" in why
    assert "convox/rack" in why


@pytest.mark.parametrize(
    ("service", "operation", "parameters", "named"),
    [
        ("ssm", "SendCommand", {"DocumentName": "d", "Comment": "x" * 101}, "Comment: 101 characters, at most 100"),
        ("ssm", "SendCommand", {"DocumentName": "a space"}, "DocumentName: 'a space' does not match"),
        ("ssm", "SendCommand", {"DocumentName": "doc", "InstanceIds": ["i-1"] * 51}, "InstanceIds: 51 items"),
        ("ecs", "UpdateContainerInstancesState", {"containerInstances": ["a"], "status": "UP"}, "'UP' is none of"),
        ("stepfunctions", "StartExecution", {"stateMachineArn": "a", "name": "x" * 81}, "81 characters, at most 80"),
        ("sns", "Publish", {"Message": "m", "Subject": "ü"}, "Subject: 'ü' does not match"),
        ("sns", "Publish", {"Message": "m", "Subject": "s" * 100}, "Subject"),
        ("events", "PutEvents", {"Entries": [{"Source": "aws.ecs"}]}, "Entries.[].Source"),
        ("events", "PutEvents", {"Entries": [{"Detail": "[]"}]}, "is no JSON object"),
        ("ecs", "StartTask", {"containerInstances": ["a"]}, 'Missing required parameter in input: "taskDefinition"'),
        ("ecs", "StartTask", {**START, "overrides": {"containerOverrides": [{"name": "x" * 9_000}]}}, "8192"),
        ("sqs", "SetQueueAttributes", {"QueueUrl": "q", "Attributes": {"Policy": policy_of(21)}}, "21 statements"),
        ("sqs", "CreateQueue", {"QueueName": "q", "Attributes": {"Policy": policy_of(21)}}, "21 statements"),
        ("sqs", "SetQueueAttributes", {"QueueUrl": "q", "Attributes": {"Policy": "x" * 8_193}}, "8193 bytes"),
        ("ecs", "ListTasks", {"startedBy": "a", "family": "b"}, "cannot be given with family"),
    ],
)
def test_what_aws_refuses_is_named(service: str, operation: str, parameters: dict[str, Any], named: str) -> None:
    assert named in "\n".join(complaints(service, operation, parameters))


def test_a_service_is_known_by_the_name_that_requests_are_signed_with() -> None:
    assert service_model("states").service_name == "stepfunctions"
    assert service_model("monitoring").service_name == "cloudwatch"


def _part_of(shape: Any, part: str) -> Any:
    if part == "[]":
        return shape.member
    return shape.value if shape.type_name == "map" else shape.members[part]


@pytest.mark.parametrize("row", documented_limits(), ids=lambda row: f"{row.operation}-{row.member[-1]}-{row.kind}")
def test_every_row_names_a_member_that_the_model_has_and_a_source(row: Any) -> None:
    shape: Any = service_model(row.service).operation_model(row.operation).input_shape
    for part in row.member:
        shape = _part_of(shape, part)
    assert len(row.source) > 10


def test_a_client_in_a_test_is_held_to_it() -> None:
    ecs = boto3.client("ecs", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")

    with pytest.raises(ParamValidationError, match="startedBy"):
        ecs.list_tasks(startedBy="x" * 37)


def test_a_state_machine_is_held_to_it() -> None:
    ask = Ask("Page a human", "arn:aws:states:::sns:publish", {"Message": "m", "Subject": "s" * 100}, 60, "token")

    with pytest.raises(AssertionError, match=r"Page a human.*Subject"):
        strict_asks.check(ask)
