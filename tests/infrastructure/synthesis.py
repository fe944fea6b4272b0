"""Synthesizes the stacks inside the test process, without bundling."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aws_cdk as cdk

from stacks.control_stack import ControlStack
from stacks.settings import load_settings
from stacks.state_stack import StateStack

NO_BUNDLING: dict[str, list[str]] = {"aws:cdk:bundling-stacks": []}
Resource = dict[str, Any]


@dataclass(frozen=True)
class Templates:
    """Both templates of one stage."""

    state: dict[str, Any]
    control: dict[str, Any]

    def of_type(self, kind: str) -> Iterator[tuple[str, Resource]]:
        """Every resource of a type, of either stack, with its logical id."""
        for template in (self.state, self.control):
            for logical_id, resource in template["Resources"].items():
                if resource["Type"] == kind:
                    yield logical_id, resource


def synthesize(context: Mapping[str, Any]) -> Templates:
    """Both templates for this context."""
    with tempfile.TemporaryDirectory() as folder:
        app = cdk.App(outdir=folder, context={**NO_BUNDLING, **context})
        settings = load_settings(app.node)
        ControlStack(app, settings, StateStack(app, settings))
        app.synth()
        files = [Path(folder) / f"nodeheal-{stack}.template.json" for stack in ("state", "control")]
        state, control = (json.loads(file.read_text("utf-8")) for file in files)
    return Templates(state, control)
