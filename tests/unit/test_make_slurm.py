"""`make slurm` says that Slurm is installed only where all of it is."""

import os
import subprocess
from pathlib import Path

import pytest

from sandbox.slurm import TOOLS
from stacks.settings import REPOSITORY

# Debian has its daemons in /usr/sbin, where `make slurm` looks as well: on a machine with Slurm they cannot be hidden.
CLIENTS = [tool for tool in TOOLS if not tool.endswith("d")]


def make_slurm(folder: Path, tools: list[str]) -> tuple[list[str], str]:
    """With no other programs on PATH than these; what was installed, and what is said."""
    calls = folder / "calls"
    calls.touch()
    for tool in tools:
        (folder / tool).touch(mode=0o755)
    (folder / "apt-get").write_text(f'#!/bin/sh\necho "$*" >>{calls}\n')
    (folder / "apt-get").chmod(0o755)
    (folder / "which").write_text('#!/bin/sh\nfor tool in "$@"; do command -v "$tool" || exit 1; done\n')
    (folder / "which").chmod(0o755)
    done = subprocess.run(
        ["/usr/bin/make", "--no-print-directory", "-C", str(REPOSITORY), "slurm"],
        env={**os.environ, "PATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return calls.read_text().splitlines(), done.stdout


def test_what_is_there_is_not_installed_again(tmp_path: Path) -> None:
    installed, said = make_slurm(tmp_path, list(TOOLS))

    assert (installed, said.startswith("Slurm is installed")) == ([], True)


@pytest.mark.parametrize("absent", CLIENTS)
def test_one_tool_that_is_missing_is_installed(tmp_path: Path, absent: str) -> None:
    installed, _ = make_slurm(tmp_path, [tool for tool in TOOLS if tool != absent])

    assert "slurm-client" in installed[-1]
