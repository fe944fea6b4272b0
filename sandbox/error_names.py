"""Reports a failing function under its exception's class name, as AWS does. Import it only in the emulator.

The emulator gives every failure one name, so no step would retry what was provably not accepted.
"""

import re
from typing import Any

from ministack.services import lambda_svc

from sandbox.aws_json import Json
from sandbox.patches import attribute

_FLATTENED = "Runtime.HandlerError"


def tell_errors_apart() -> None:
    """Restore the name from the last line of the worker's traceback."""
    execute = attribute(lambda_svc, "_execute_function_with_config_scope")

    def execute_by_name(*arguments: Any, **named: Any) -> Json:
        result: Json = execute(*arguments, **named)
        body = result.get("body")
        if result.get("error") and isinstance(body, dict) and body.get("errorType") == _FLATTENED:
            body["errorType"] = name_in(result.get("log", ""), body.get("errorMessage", "")) or _FLATTENED
        return result

    lambda_svc._execute_function_with_config_scope = execute_by_name


def name_in(log: str, message: str) -> str:
    """Return the class of the exception with this message, without its module; empty where the log has none."""
    said = f": {re.escape(message)}" if message else ""
    found = re.findall(rf"^(?:\w+\.)*(\w+){said}\s*$", log, re.MULTILINE)
    return str(found[-1]) if found else ""
