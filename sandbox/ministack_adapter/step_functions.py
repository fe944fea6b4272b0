"""Corrects MiniStack's Step Functions."""

import contextvars
from typing import Any

from ministack.services import stepfunctions

from sandbox.aws_json import Json
from sandbox.ministack_adapter.private_names import attribute

# The task token of the function being invoked, while a callback task is in its sending half.
_sending: contextvars.ContextVar[str | None] = contextvars.ContextVar("sending", default=None)


def install() -> None:
    """Correct all of it."""
    evaluate_timeouts()
    fail_callbacks_whose_function_fails()


def evaluate_timeouts() -> None:
    """Evaluate TimeoutSeconds and HeartbeatSeconds in JSONata; the emulator takes the expression for a number."""
    original = attribute(stepfunctions, "_execute_task")
    field = attribute(stepfunctions, "_jsonata_state_field")

    def execute(state: Json, raw_input: Any, execution: Json, context: Json) -> Any:
        evaluated = {
            name: field(state, name, "number", raw_input, context)
            for name in ("TimeoutSeconds", "HeartbeatSeconds")
            if isinstance(state.get(name), str)
        }
        return original({**state, **evaluated}, raw_input, execution, context)

    stepfunctions._execute_task = execute


def fail_callbacks_whose_function_fails() -> None:
    """Fail a task under lambda:invoke.waitForTaskToken at once when its function fails, as in AWS.

    The emulator ignores the error and waits for a callback that never comes.
    """
    invoke = attribute(stepfunctions, "_invoke_with_callback")
    call = attribute(stepfunctions, "_call_lambda")
    error_type = attribute(stepfunctions, "_ExecutionError")
    tokens = attribute(stepfunctions, "_task_tokens")

    def invoke_with_callback(resource: str, data: Any, token: str, state: Json) -> Any:
        sending = _sending.set(token)
        try:
            return invoke(resource, data, token, state)
        finally:
            _sending.reset(sending)

    def call_lambda(function: str, event: Any) -> Any:
        try:
            return call(function, event)
        except error_type as error:
            waiting = tokens.get(_sending.get())
            if waiting is not None and not waiting["event"].is_set():
                waiting["error"] = {"Error": error.error, "Cause": error.cause}
                waiting["event"].set()
            raise

    stepfunctions._invoke_with_callback = invoke_with_callback
    stepfunctions._call_lambda = call_lambda
