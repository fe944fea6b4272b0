"""Runs a tool for a look."""

import os
from collections.abc import Sequence
from pathlib import Path

from nodeheal.agent.diagnostics.bench import Bench, Output


def is_installed(tool: str) -> bool:
    """Whether the tool is on the PATH."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return any(os.access(Path(folder) / tool, os.X_OK) for folder in folders)


def run_tool(command: Sequence[str], seconds: float) -> Output:
    """What it says, at most so long; see `probe.run`. The seconds must be fewer than the look has."""
    import tempfile  # which loads much: only where a tool is run

    with tempfile.TemporaryDirectory(prefix="nodeheal-", ignore_cleanup_errors=True) as folder:
        return Bench(Path(folder), level=1, accelerators=0).run(command, seconds)
