"""The SSM documents, carried out on a test's node as the SSM agent would."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.agent_fakes import NodeFolder

DOCUMENTS = Path(__file__).parents[2] / "packaging" / "ssm"
PATIENCE_SECONDS = 60
Ended = subprocess.CompletedProcess[str]


def script_of(document: str, parameters: Mapping[str, str]) -> str:
    """What the document runs; these must be all of its parameters."""
    content = json.loads((DOCUMENTS / f"{document}.json").read_text())
    assert sorted(content["parameters"]) == sorted(parameters)
    script = "\n".join(content["mainSteps"][0]["inputs"]["runCommand"])
    for name, value in parameters.items():
        script = script.replace("{{ " + name + " }}", value)
    return script


def run_document(node: NodeFolder, document: str, parameters: Mapping[str, str]) -> Ended:
    """Run it with this checkout's agent on the PATH."""
    agent = node.directory / "nodeheal-agent"
    agent.write_text(f'#!/bin/sh\nexec {sys.executable} -m nodeheal.agent.main "$@"\n')
    agent.chmod(0o755)
    return subprocess.run(
        ["sh", "-c", script_of(document, parameters)],
        env={**node.environment(), "PATH": f"{node.directory}:{os.defpath}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
