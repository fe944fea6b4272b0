"""Refuses what AWS would refuse, before the request reaches the emulator, for every service and every caller.

An emulator that accepts more than AWS does hides the very faults that a first deployment shows.
"""

import json
import logging
from collections.abc import Mapping
from html import escape
from typing import Any

from botocore.model import OperationModel
from ministack import app

from sandbox.aws_json import Json, Response
from sandbox.request_reader import read_request
from sandbox.request_rules import complaints

logger = logging.getLogger(__name__)

# The services that nodeheal, its agent, its command or its stacks call, without two: the XML of S3 is not parsed, and
# limits of CloudFormation are checked on the templates (tests/infrastructure).
SERVICES = (
    "appconfig",
    "appconfigdata",
    "autoscaling",
    "dynamodb",
    "ec2",
    "ecs",
    "events",
    "lambda",
    "logs",
    "monitoring",
    "sagemaker",
    "secretsmanager",
    "servicequotas",
    "sns",
    "sqs",
    "ssm",
    "states",
    "sts",
)
# Each service's error code for an invalid parameter.
_CODES = {"ecs": "InvalidParameterException", "sns": "InvalidParameter", "ec2": "InvalidParameterValue"}
_CODES |= {"autoscaling": "ValidationError", "appconfig": "BadRequestException", "appconfigdata": "BadRequestException"}
_CODES |= {"lambda": "InvalidParameterValueException", "logs": "InvalidParameterException", "sts": "ValidationError"}
_CODES |= {"secretsmanager": "InvalidParameterException"}


def check_requests() -> None:
    """Add the check to each service of the emulator. Raises KeyError where the emulator has no such service."""
    for service in SERVICES:
        app.SERVICE_HANDLERS[service] = _checked(service, app.SERVICE_HANDLERS[service])


def refusal(
    service: str, method: str, path: str, headers: Mapping[str, str], body: bytes, query: Json
) -> tuple[OperationModel | None, str]:
    """Return (the operation, why AWS would refuse the request); an empty reason: it would accept it, or the protocol is
    not supported.
    """
    try:
        found = read_request(service, method, path, headers, body, query)
    except ValueError as error:
        return None, f"the body cannot be read: {error}"
    if found is None:
        logger.info("%s: a request in a protocol that is not supported: %s %s", service, method, path)
        return None, ""
    operation, parameters = found
    return operation, "\n".join(complaints(service, operation.name, parameters))


def _checked(service: str, handler: Any) -> Any:
    async def handle(method: str, path: str, headers: dict[str, str], body: bytes, query: Json) -> Response:
        operation, why = refusal(service, method, path, headers, body, query)
        if why:
            logger.error("%s %s is refused as AWS would: %s", service, operation.name if operation else path, why)
            return _answer(service, why)
        answer: Response = await handler(method, path, headers, body, query)
        return answer

    return handle


def _answer(service: str, why: str) -> Response:
    code = _CODES.get(service, "ValidationException")
    if service == "ec2":
        return 400, {"Content-Type": "text/xml"}, f"<Response><Errors>{_error(code, why)}</Errors></Response>".encode()
    if service in ("sns", "sts", "autoscaling"):
        return 400, {"Content-Type": "text/xml"}, f"<ErrorResponse>{_error(code, why)}</ErrorResponse>".encode()
    body = json.dumps({"__type": code, "message": why}).encode()
    return 400, {"Content-Type": "application/x-amz-json-1.1", "x-amzn-errortype": code}, body


def _error(code: str, why: str) -> str:
    return f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{escape(why)}</Message></Error>"
