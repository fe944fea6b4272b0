"""Creates the job of a story: an example's file with the sandbox's settings, and the command that submits it."""

import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from nodeheal.domain.jobs.owner import Owner
from sandbox.client import free_port
from sandbox.script import GANG_NODES, Script

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
NODEHEAL = [sys.executable, "-c", "from nodeheal.cli.entry import main; main()"]
COMMAND_SECONDS = 60.0
ACCELERATORS = 1  # of the two that a simulated node has
# What an image starts; in the sandbox an image is the example's folder, and its Dockerfile is not read.
STARTS = {"numpy-trainer": ("python", "train.py"), "torchrun": ("./launch.sh",)}


class NotSubmitted(Exception):
    """The command did not submit the job; carries its output."""


def write_job_file(script: Script, owner: Owner, directory: Path, folder: Path) -> Path:
    """Write the story's job.yaml, in `folder`. `directory`: of its checkpoints; every simulated node sees it."""
    example = yaml.safe_load((EXAMPLES / script.example / "job.yaml").read_text("utf-8"))
    document = {**example, **_of_the_sandbox(script, owner, directory)}
    del document["hang_seconds"]  # a run that stands still is found by its own steps
    file = folder / f"{script.job}.yaml"
    head = f"# examples/{script.example}/job.yaml, with what the sandbox sets.\n"
    file.write_text(head + yaml.safe_dump(document, sort_keys=False, width=120), "utf-8")
    return file


def _of_the_sandbox(script: Script, owner: Owner, directory: Path) -> dict[str, Any]:
    mount = {"source": str(directory), "target": str(directory)}
    return {
        "name": script.job,
        "pool": script.pool,
        "nodes": GANG_NODES,
        "accelerators": ACCELERATORS,
        "image": f"registry.example.com/{script.example}:1",
        "command": [*STARTS[script.example], *_options(script, directory)],
        "environment": dict(script.environment),
        "devices": ["/dev/infiniband"],
        "memory_mib": 512,
        "stop_seconds": 10,
        "mounts": [mount],
        "checkpoints": {"directory": str(directory), "format": script.format.value},
        "preflight": {"level": 1},
        "spares": 0,
        "master_port": free_port(),
        "owner": str(owner),
    }


def _options(script: Script, directory: Path) -> list[str]:
    return [
        f"--steps={script.steps}",
        f"--step-seconds={script.step_seconds}",
        f"--checkpoint-every={script.checkpoint_every}",
        f"--directory={directory}",
        *([f"--overflow-at={script.overflows}", "--keep=1000"] if script.overflows else []),
    ]


def typed(file: Path) -> str:
    """Return the command as a person types it, in the folder of the file."""
    return shlex.join(["nodeheal", "jobs", "submit", file.name])


def submit(file: Path, environment: Mapping[str, str]) -> list[str]:
    """Run that command in this environment; returns its output, line by line. Raises NotSubmitted."""
    done = subprocess.run(
        [*NODEHEAL, "jobs", "submit", file.name],
        cwd=file.parent,
        env={**environment, "PYTHONPATH": str(EXAMPLES.parent)},
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise NotSubmitted(f"`{typed(file)}` in {file.parent}: {(done.stderr or done.stdout).strip()}")
    return done.stdout.splitlines()
