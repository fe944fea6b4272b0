"""Command documents: their parameters, and the shell script for a node."""

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sandbox.aws_json import AwsError
from sandbox.iam import ACCOUNT, REGION

Json = dict[str, Any]
DEFAULT_EXECUTION_SECONDS = 3600
SHORTEST_EXECUTION_SECONDS, LONGEST_EXECUTION_SECONDS = 5, 172_800  # any other value counts as the default
SCHEMA_VERSION = "2.2"


class ParameterRefused(Exception):
    """The SSM agent does not run a document with this value."""


@dataclass(frozen=True)
class Script:
    """The script of a command on a node."""

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
        """Return its ARN."""
        return document_arn(self.name)

    @property
    def plugin_name(self) -> str:
        """Return the name of its step."""
        return str(self.content["mainSteps"][0]["name"])

    def must_accept(self, parameters: dict[str, list[str]]) -> None:
        """Check what SendCommand checks. Raises AwsError (InvalidParameters)."""
        unknown = sorted(set(parameters) - set(self._declared))
        if unknown:
            raise AwsError("InvalidParameters", f"Document {self.name} has no parameters named {', '.join(unknown)}.")
        for name, spec in self._declared.items():
            given = parameters.get(name)
            if given is None and "default" not in spec:
                raise AwsError("InvalidParameters", f"Parameter {name} is required.")
            if given is not None and spec.get("type", "String") == "String" and len(given) != 1:
                raise AwsError("InvalidParameters", f"Parameter {name} takes one value.")
            pattern, allowed = spec.get("allowedPattern"), spec.get("allowedValues")
            for value in given or ():
                if pattern and not re.search(pattern, value):
                    raise AwsError("InvalidParameters", f"Parameter {name}: {value!r} does not match {pattern}.")
                if allowed is not None and value not in allowed:
                    raise AwsError("InvalidParameters", f"Parameter {name}: {value!r} is not one of {allowed}.")

    @property
    def execution_seconds(self) -> int:
        """Return how long its script may run, where no parameter sets it."""
        return _execution_seconds(str(self._inputs.get("timeoutSeconds", "")))

    def script(self, parameters: dict[str, list[str]]) -> Script:
        """Return the script as the SSM agent builds it. Raises ParameterRefused.

        The agent checks patterns again, and never lists of allowed values. It ignores unknown parameters.
        """
        values = {}
        for name, spec in self._declared.items():
            given = parameters.get(name, _listed(spec.get("default")))
            if given is None:
                raise ParameterRefused(f"Parameter {name} has no value.")
            pattern = spec.get("allowedPattern")
            refused = [value for value in given if pattern and not re.search(_as_re2_reads(pattern), value)]
            if refused:
                raise ParameterRefused(f"Parameter {name}: {refused[0]!r} does not match {pattern}.")
            values[name] = given[0] if len(given) == 1 else json.dumps(given)
        lines = self._inputs["runCommand"]
        text = _filled("\n".join(lines) if isinstance(lines, list) else str(lines), values)
        return Script(text, _execution_seconds(_filled(str(self._inputs.get("timeoutSeconds", "")), values)))

    def describe(self) -> Json:
        """Describe it as DescribeDocument does."""
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

    @property
    def _declared(self) -> dict[str, Json]:
        declared: dict[str, Json] = self.content.get("parameters", {})
        return declared

    @property
    def _inputs(self) -> Json:
        inputs: Json = self.content["mainSteps"][0]["inputs"]
        return inputs


def document_arn(name: str) -> str:
    """Return the ARN of an account's own document."""
    return f"arn:aws:ssm:{REGION}:{ACCOUNT}:document/{name}"


def parse_document(name: str, content: str | Json, tags: dict[str, str]) -> Document:
    """Parse a document from its JSON. Raises AwsError (InvalidDocumentContent) for what the sandbox cannot run."""
    try:
        body: Json = json.loads(content) if isinstance(content, str) else content
        steps = body["mainSteps"]
        runs_shell = steps[0]["action"] == "aws:runShellScript" and "runCommand" in steps[0]["inputs"]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise AwsError("InvalidDocumentContent", f"{name}: not a command document: {error!r}") from error
    if body.get("schemaVersion") != SCHEMA_VERSION or len(steps) != 1 or not runs_shell:
        raise AwsError("InvalidDocumentContent", f"{name}: the sandbox runs schema 2.2, one aws:runShellScript step")
    return Document(name, body, tags)


def _execution_seconds(text: str) -> int:
    seconds = int(text) if text.isdigit() else 0
    is_known = SHORTEST_EXECUTION_SECONDS <= seconds <= LONGEST_EXECUTION_SECONDS
    return seconds if is_known else DEFAULT_EXECUTION_SECONDS


def _listed(default: Any) -> list[str] | None:
    return default if default is None or isinstance(default, list) else [str(default)]


def _as_re2_reads(pattern: str) -> str:
    """Convert a pattern for Python: in Go's RE2, `$` matches at the end only, and not before a newline at the end."""
    in_class, read = False, []
    for token in re.findall(r"\\.|.", pattern, re.DOTALL):
        in_class = token == "[" or (in_class and token != "]")
        read.append(r"\Z" if token == "$" and not in_class else token)
    return "".join(read)


def _filled(text: str, values: dict[str, str]) -> str:
    def fill(match: re.Match[str]) -> str:
        return values.get(match.group(1), match.group(0))

    return re.sub(r"\{\{\s*([A-Za-z0-9_]+)\s*\}\}", fill, text)
