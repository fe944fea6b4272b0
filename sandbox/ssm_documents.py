"""Command documents: their parameters, and the shell script that they come to on a node."""

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sandbox.aws_json import AwsError
from sandbox.iam import ACCOUNT, REGION

Json = dict[str, Any]
DEFAULT_EXECUTION_SECONDS = 3600
SCHEMA_VERSION = "2.2"


@dataclass(frozen=True)
class Script:
    """What a command runs on a node."""

    text: str
    execution_seconds: int


@dataclass
class Document:
    """One document of type Command, schema version 2.2, with one aws:runShellScript step."""

    name: str
    content: Json
    tags: dict[str, str] = field(default_factory=dict)
    version: int = 1
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def arn(self) -> str:
        """Its ARN."""
        return document_arn(self.name)

    @property
    def plugin_name(self) -> str:
        """The name of its step."""
        return str(self.content["mainSteps"][0]["name"])

    def script(self, parameters: dict[str, list[str]]) -> Script:
        """The script with these parameters filled in. Raises AwsError (InvalidParameters)."""
        values = self._values(parameters)
        inputs = self.content["mainSteps"][0]["inputs"]
        lines = inputs["runCommand"]
        text = _filled("\n".join(lines) if isinstance(lines, list) else str(lines), values)
        seconds = _filled(str(inputs.get("timeoutSeconds", DEFAULT_EXECUTION_SECONDS)), values)
        return Script(text, int(seconds))

    def describe(self) -> Json:
        """As DescribeDocument answers."""
        return {
            "Name": self.name,
            "DocumentVersion": str(self.version),
            "DefaultVersion": str(self.version),
            "LatestVersion": str(self.version),
            "SchemaVersion": SCHEMA_VERSION,
            "DocumentType": "Command",
            "DocumentFormat": "JSON",
            "Status": "Active",
            "Owner": ACCOUNT,
            "PlatformTypes": ["Linux"],
            "CreatedDate": self.created_at,
            "Tags": [{"Key": key, "Value": value} for key, value in self.tags.items()],
        }

    def _values(self, given: dict[str, list[str]]) -> dict[str, str]:
        declared: dict[str, Json] = self.content.get("parameters", {})
        unknown = sorted(set(given) - set(declared))
        if unknown:
            raise AwsError("InvalidParameters", f"Document {self.name} has no parameters named {', '.join(unknown)}.")
        return {name: _value(name, spec, given.get(name)) for name, spec in declared.items()}


def document_arn(name: str) -> str:
    """The ARN of an account's own document."""
    return f"arn:aws:ssm:{REGION}:{ACCOUNT}:document/{name}"


def parse_document(name: str, content: str | Json, tags: dict[str, str]) -> Document:
    """A document from its JSON. Raises AwsError (InvalidDocumentContent) for what the sandbox cannot run."""
    try:
        body: Json = json.loads(content) if isinstance(content, str) else content
        steps = body["mainSteps"]
        runs_shell = steps[0]["action"] == "aws:runShellScript" and "runCommand" in steps[0]["inputs"]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise AwsError("InvalidDocumentContent", f"{name}: not a command document: {error!r}") from error
    if body.get("schemaVersion") != SCHEMA_VERSION or len(steps) != 1 or not runs_shell:
        raise AwsError("InvalidDocumentContent", f"{name}: the sandbox runs schema 2.2, one aws:runShellScript step")
    return Document(name, body, tags)


def _value(name: str, spec: Json, given: list[str] | None) -> str:
    if given is None:
        if "default" not in spec:
            raise AwsError("InvalidParameters", f"Parameter {name} is required.")
        default = spec["default"]
        given = default if isinstance(default, list) else [str(default)]
    if spec.get("type", "String") == "String" and len(given) != 1:
        raise AwsError("InvalidParameters", f"Parameter {name} takes one value.")
    for value in given:
        pattern = spec.get("allowedPattern")
        if pattern and not re.search(pattern, value):
            raise AwsError("InvalidParameters", f"Parameter {name}: {value!r} does not match {pattern}.")
        if "allowedValues" in spec and value not in spec["allowedValues"]:
            raise AwsError("InvalidParameters", f"Parameter {name}: {value!r} is not one of {spec['allowedValues']}.")
    return " ".join(given)


def _filled(text: str, values: dict[str, str]) -> str:
    def fill(match: re.Match[str]) -> str:
        return values.get(match.group(1), match.group(0))

    return re.sub(r"\{\{\s*([A-Za-z0-9_]+)\s*\}\}", fill, text)
