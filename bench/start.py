"""Measures how long a command takes from its start to its end, in a deployed account that has no node yet.

The account is the embedded cloud, which answers at once: what remains is the command itself.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sandbox.client import REPOSITORY, Sandbox

TURNS = 9
PROGRAM = "from nodeheal.cli.entry import main; main()"
COMMANDS = {
    "version": "--version",
    "help": "-h",
    "help_of_one": "nodes list -h",
    "explain": "explain xid 79",
    "status": "status",
    "nodes_list": "nodes list",
    "incidents_list": "incidents list",
    "jobs_list": "jobs list",
    "policy_show": "policy show",
    "doctor": "doctor",
}
RAN = (0, 1)  # the doctor finds that a new deployment has no node


def measure_start() -> dict[str, float]:
    """Return the median milliseconds of each command. Raises RuntimeError for a command that does not run."""
    with tempfile.TemporaryDirectory() as directory, Sandbox(Path(directory) / "cloud") as cloud:
        cloud.deploy()
        environment = {**cloud.environment(), "PYTHONPATH": str(REPOSITORY)}
        for words in COMMANDS.values():
            _run(words, environment)  # an installed command has its bytecode
        taken = [{name: _run(words, environment) for name, words in COMMANDS.items()} for _ in range(TURNS)]
    return {f"{name}_ms": round(statistics.median(turn[name] for turn in taken)) for name in COMMANDS}


def _run(words: str, environment: dict[str, str]) -> float:
    command = [sys.executable, "-c", PROGRAM, *words.split()]
    began = time.perf_counter()
    done = subprocess.run(command, env=environment, cwd=os.sep, capture_output=True, text=True, timeout=60, check=False)
    seconds = time.perf_counter() - began
    if done.returncode not in RAN or "Traceback" in done.stderr:
        raise RuntimeError(f"nodeheal {words} did not run: {done.stderr}")
    return 1000 * seconds
