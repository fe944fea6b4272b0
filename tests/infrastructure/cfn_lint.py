"""Runs cfn-lint over a template."""

import os
import subprocess
import sys
from pathlib import Path

from stacks.settings import REPOSITORY


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a tool in the repository."""
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def cfn_lint(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run cfn-lint with the repository's configuration."""
    return run([str(Path(sys.executable).with_name("cfn-lint")), *arguments])
