"""Implements the AWS query protocols (EC2's and the older one) for the sandbox's own operations.

As in aws_json, answers are formatted and checked by botocore's service models; requests are checked before.
"""

import asyncio
import logging
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from xml.sax.saxutils import escape

from botocore.model import ListShape, Shape, StructureShape
from botocore.validate import ParamValidator

from sandbox.aws_json import AwsError, CallerOf, Json, Operation, Response
from sandbox.request_reader import Flat, flat_of, read_query
from sandbox.request_rules import service_model

logger = logging.getLogger(__name__)


class QueryService:
    """Serves a set of operations of one AWS service, and decides whether a request is for one of them."""

    def __init__(self, name: str, operations: Mapping[str, Operation], caller_of: CallerOf, denied: str) -> None:
        self.name = name
        self._model = service_model(name)
        self._operations = operations
        self._caller_of = caller_of
        self._denied = denied  # this service's error code for a denial by IAM
        self._is_ec2 = self._model.metadata["protocol"] == "ec2"

    def serves(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether the requested operation is the sandbox's."""
        return flat_of(body).get("Action") in self._operations

    async def handle(self, method: str, path: str, headers: dict[str, str], body: bytes, query: Json) -> Response:
        """Answer one request. Runs in a thread: operations wait for locks and start processes."""
        return await asyncio.to_thread(self.answer, headers, body)

    def answer(self, headers: Mapping[str, str], body: bytes) -> Response:
        """Answer one request."""
        flat = flat_of(body)
        try:
            return 200, {"Content-Type": "text/xml"}, self._call(flat, headers).encode()
        except AwsError as error:
            return error.status, {"Content-Type": "text/xml"}, self._refusal(error).encode()

    def _call(self, flat: Flat, headers: Mapping[str, str]) -> str:
        name = flat["Action"]
        model = self._model.operation_model(name)
        result = self._operations[name](self._caller_of(self.name, headers), read_query(self._model, name, flat))
        shape = model.output_shape
        report = ParamValidator().validate(result, shape) if shape else None
        if report is not None and report.has_errors():
            logger.error("the sandbox's answer to %s violates the model: %s", name, report.generate_report())
            raise AwsError("InternalError", f"{name}: {report.generate_report()}", status=500)
        return self._envelope(name, "".join(self._fields(shape, result)) if shape else "", model)

    def _envelope(self, name: str, inner: str, model: Any) -> str:
        number, space = uuid.uuid4(), self._model.metadata["xmlNamespace"]
        if self._is_ec2:
            return f'<{name}Response xmlns="{space}"><requestId>{number}</requestId>{inner}</{name}Response>'
        wrapper = model.output_shape.serialization.get("resultWrapper") if model.output_shape else None
        inner = f"<{wrapper}>{inner}</{wrapper}>" if wrapper else inner
        told = f"<ResponseMetadata><RequestId>{number}</RequestId></ResponseMetadata>"
        return f'<{name}Response xmlns="{space}">{inner}{told}</{name}Response>'

    def _refusal(self, error: AwsError) -> str:
        is_denied = error.code == "AccessDeniedException"
        code = self._denied if is_denied else error.code
        told = f"<Code>{escape(code)}</Code><Message>{escape(error.message)}</Message>"
        if self._is_ec2:
            return f"<Response><Errors><Error>{told}</Error></Errors><RequestID>{uuid.uuid4()}</RequestID></Response>"
        return f"<ErrorResponse><Error><Type>Sender</Type>{told}</Error></ErrorResponse>"

    # Answers: nested values to XML

    def _fields(self, shape: Shape, values: Json) -> Iterator[str]:
        if isinstance(shape, StructureShape):
            for name, member in shape.members.items():
                if values.get(name) is not None:
                    tag = member.serialization.get("name", name)
                    yield f"<{tag}>{self._xml(member, values[name])}</{tag}>"

    def _xml(self, shape: Shape, value: Any) -> str:
        if isinstance(shape, StructureShape):
            return "".join(self._fields(shape, value))
        if isinstance(shape, ListShape):
            tag = shape.member.serialization.get("name", "item" if self._is_ec2 else "member")
            return "".join(f"<{tag}>{self._xml(shape.member, each)}</{tag}>" for each in value)
        if isinstance(value, datetime):
            return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return str(value).lower() if isinstance(value, bool) else escape(str(value))
