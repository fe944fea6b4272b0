"""Runs a tool for a check."""

import os
from collections.abc import Sequence
from pathlib import Path

from nodeheal.agent.diagnostics.bench import Bench, Output


def is_installed(tool: str) -> bool:
    """Whether the tool is on the PATH."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return any(os.access(Path(folder) / tool, os.X_OK) for folder in folders)


def run_tool(command: Sequence[str], seconds: float) -> Output:
    """Run the tool within this many seconds; see `probe.run`. They must be fewer than the check's deadline."""
    import tempfile  # which imports much, so only where a tool is run

    with tempfile.TemporaryDirectory(prefix="nodeheal-", ignore_cleanup_errors=True) as folder:
        return Bench(Path(folder), level=1, accelerators=0).run(command, seconds)
