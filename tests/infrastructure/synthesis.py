"""Synthesizes the stack inside the test process, without bundling."""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aws_cdk as cdk

from nodeheal.contract import names
from stacks.settings import load_settings
from stacks.stack import NodehealStack

NO_BUNDLING: dict[str, list[str]] = {"aws:cdk:bundling-stacks": []}
Resource = dict[str, Any]


@dataclass(frozen=True)
class Template:
    """The template of one stage."""

    body: dict[str, Any]

    @property
    def resources(self) -> dict[str, Resource]:
        """Every resource, by its logical id."""
        found: dict[str, Resource] = self.body["Resources"]
        return found

    def of_type(self, kind: str) -> Iterator[tuple[str, Resource]]:
        """Every resource of a type, with its logical id."""
        yield from ((name, resource) for name, resource in self.resources.items() if resource["Type"] == kind)

    def comes_after(self, name: str) -> set[str]:
        """The logical ids of all that CloudFormation makes before this resource, by reference or by DependsOn."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            for other in _refers_to(self.resources[waiting.pop()]):
                if other in self.resources and other not in found:
                    found.add(other)
                    waiting.append(other)
        return found


def _refers_to(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for inner in value:
            yield from _refers_to(inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key == "Ref":
                yield inner
            elif key == "Fn::GetAtt":
                yield inner[0]
            elif key == "DependsOn":
                yield from [inner] if isinstance(inner, str) else inner
            elif key == "Fn::Sub":
                yield from re.findall(r"\$\{(\w+)", inner if isinstance(inner, str) else inner[0])
            else:
                yield from _refers_to(inner)


def synthesize(context: Mapping[str, Any]) -> Template:
    """The template for this context."""
    with tempfile.TemporaryDirectory() as folder:
        app = cdk.App(outdir=folder, context={**NO_BUNDLING, **context})
        NodehealStack(app, load_settings(app.node))
        app.synth()
        return Template(json.loads((Path(folder) / f"{names.STACK}.template.json").read_text("utf-8")))


def role_named(template: Template, name: str) -> Any:
    """A role's properties. `name`: with {region} in it."""
    roles = [r["Properties"] for _, r in template.of_type("AWS::IAM::Role")]
    spelled = {"Fn::Join": ["", [name.format(region=""), {"Ref": "AWS::Region"}]]}
    [found] = [role for role in roles if role.get("RoleName") == spelled]
    return found
