"""Refuses what AWS would refuse, before the request reaches the emulator, for every service and every caller.

An emulator that accepts more than AWS does hides the very faults that a first deployment shows.
"""

import json
import logging
from collections.abc import Mapping
from html import escape

from botocore.model import OperationModel

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


def refusal_response(
    service: str, method: str, path: str, headers: Mapping[str, str], body: bytes, query: Json
) -> Response | None:
    """Return the answer by which AWS would refuse the request; None: it would accept it."""
    operation, why = refusal(service, method, path, headers, body, query)
    if not why:
        return None
    logger.error("%s %s is refused as AWS would: %s", service, operation.name if operation else path, why)
    return _answer(service, why)


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
