"""Implements the AWS JSON 1.1 protocol for the sandbox's own operations.

Responses are checked against botocore's service models, so that a caller sees neither more nor less than the real API
has. `strict` has checked the request before.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Protocol

from botocore.validate import ParamValidator

from sandbox.request_rules import service_model

Json = dict[str, Any]
Response = tuple[int, dict[str, str], bytes]
ConditionKeys = Mapping[str, str | list[str]]

logger = logging.getLogger(__name__)


class AwsError(Exception):
    """A refusal that the caller receives as the service's own error."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


class Caller(Protocol):
    """The caller of an operation."""

    def must_be_allowed(self, action: str, resource: str, context: ConditionKeys | None = None) -> None:
        """Check with IAM that the action is allowed on this resource. Raises AwsError (AccessDeniedException)."""


Operation = Callable[[Caller, Json], Json]
CallerOf = Callable[[str, Mapping[str, str]], Caller]  # of a service's request, by its headers


def operation_name(headers: Mapping[str, str]) -> str:
    """Return the operation that a request names in X-Amz-Target."""
    return headers.get("x-amz-target", "").rpartition(".")[2]


class JsonService:
    """Serves a set of operations of one AWS service."""

    def __init__(self, name: str, operations: Mapping[str, Operation], caller_of: CallerOf) -> None:
        self.name = name  # its signing name
        self._model = service_model(name)
        self._operations = operations
        self._caller_of = caller_of

    def serves(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether the requested operation is the sandbox's."""
        return operation_name(headers) in self._operations

    async def handle(self, method: str, path: str, headers: dict[str, str], body: bytes, query: Json) -> Response:
        """Answer one request. Runs in a thread: operations wait for locks and write files."""
        return await asyncio.to_thread(self.answer, headers, body)

    def answer(self, headers: Mapping[str, str], body: bytes) -> Response:
        """Answer one request."""
        name = operation_name(headers)
        try:
            result = self._call(name, headers, body)
        except AwsError as error:
            return _response(error.status, {"__type": error.code, "message": error.message})
        return _response(200, result)

    def _call(self, name: str, headers: Mapping[str, str], body: bytes) -> Json:
        operation = self._operations.get(name)
        if operation is None:
            raise AwsError("UnknownOperationException", f"The sandbox does not serve {name}")
        try:
            parameters = json.loads(body or b"{}")
        except ValueError as error:
            raise AwsError("SerializationException", "The request body is not JSON") from error
        model = self._model.operation_model(name)
        result = operation(self._caller_of(self.name, headers), parameters)
        report = ParamValidator().validate(result, model.output_shape) if model.output_shape else None
        if report is not None and report.has_errors():
            logger.error("the sandbox's answer to %s violates the model: %s", name, report.generate_report())
            raise AwsError("ServerException", f"{name}: {report.generate_report()}", status=500)
        return result


def _response(status: int, content: Json) -> Response:
    body = json.dumps(content, default=_epoch_seconds).encode()
    return status, {"Content-Type": "application/x-amz-json-1.1"}, body


def _epoch_seconds(value: object) -> float:
    if isinstance(value, datetime):
        return value.timestamp()
    raise TypeError(f"{type(value).__name__} is not possible in an AWS JSON answer")
