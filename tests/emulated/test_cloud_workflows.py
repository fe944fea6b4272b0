"""Step Functions in the embedded cloud does what AWS does where the emulator alone would not."""

import io
import json
import time
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.client import Sandbox

pytestmark = pytest.mark.emulated

ROLE = "arn:aws:iam::000000000000:role/anything"
FUNCTION = """
def silent(event, context):
    return {}


def failing(event, context):
    raise ValueError("no node")


class NotAccepted(Exception):
    pass


def refusing(event, context):
    raise NotAccepted("StartTask: ThrottlingException")
"""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("cloud")) as sandbox:
        trust = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
        sandbox.client("iam").create_role(
            RoleName="anything",
            AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]}),
        )
        for name in ("silent", "failing", "refusing"):
            sandbox.client("lambda").create_function(
                FunctionName=name, Runtime="python3.13", Role=ROLE, Handler=f"code.{name}", Code={"ZipFile": zipped()}
            )
        yield sandbox


def test_a_deadline_may_be_an_expression(cloud: Sandbox) -> None:
    seconds, ended = execute(cloud, callback("silent", "{% $states.input.deadline_seconds %}"), {"deadline_seconds": 1})

    assert ended["output"] == '"timed out"'
    assert 1 <= seconds < 10


def test_a_deadline_that_is_no_number_fails_the_execution(cloud: Sandbox) -> None:
    _, ended = execute(cloud, callback("silent", "{% $states.input.deadline_seconds %}"), {"deadline_seconds": "soon"})

    assert (ended["status"], ended["error"]) == ("FAILED", "States.QueryEvaluationError")


def test_a_function_that_fails_under_a_callback_fails_the_task_at_once(cloud: Sandbox) -> None:
    seconds, ended = execute(cloud, callback("failing", "{% 60 %}"), {})

    assert "no node" in ended["output"]
    assert seconds < 30


def test_a_function_fails_under_its_exceptions_name_and_is_called_again_where_a_retry_says_so(cloud: Sandbox) -> None:
    machine = callback("refusing", "{% 60 %}")
    machine["States"]["Wait"]["Retry"] = [{"ErrorEquals": ["NotAccepted"], "IntervalSeconds": 2, "MaxAttempts": 1}]

    seconds, ended = execute(cloud, machine, {})

    assert json.loads(json.loads(ended["output"]))["errorType"] == "NotAccepted"
    assert 2 <= seconds < 30


def callback(function: str, timeout: str) -> dict[str, Any]:
    """A machine that waits for a callback which never comes, and says how the wait ended."""
    wait = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke.waitForTaskToken",
        "Arguments": {"FunctionName": function, "Payload": {"token": "{% $states.context.Task.Token %}"}},
        "TimeoutSeconds": timeout,
        "Catch": [
            {"ErrorEquals": ["States.Timeout"], "Output": "timed out", "Next": "Ended"},
            {"ErrorEquals": ["States.TaskFailed"], "Output": "{% $states.errorOutput.Cause %}", "Next": "Ended"},
        ],
        "End": True,
    }
    return {"QueryLanguage": "JSONata", "StartAt": "Wait", "States": {"Wait": wait, "Ended": {"Type": "Succeed"}}}


def execute(cloud: Sandbox, definition: dict[str, Any], given: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """Seconds and description of one execution."""
    states = cloud.client("stepfunctions")
    name = f"machine-{time.monotonic_ns()}"
    machine = states.create_state_machine(name=name, definition=json.dumps(definition), roleArn=ROLE)
    started = time.monotonic()
    execution = states.start_execution(stateMachineArn=machine["stateMachineArn"], input=json.dumps(given))
    while True:
        found: dict[str, Any] = states.describe_execution(executionArn=execution["executionArn"])
        if found["status"] != "RUNNING":
            return time.monotonic() - started, found
        assert time.monotonic() - started < 50, "it did not end"
        time.sleep(0.1)


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("code.py", FUNCTION)
    return buffer.getvalue()
