"""`python -m tests.fakes.nvml.looks COUNT SECONDS [STATE]`: what gpu_state sees, one look a line, as JSON.

A process of its own, as on a node: the library is found by the environment that the process was started with. With
`probed` in the place of COUNT the agent looks, with a deadline of SECONDS, and each line is an answer.
"""

import json
import select
import sys
import time
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path

from nodeheal.agent.checks import gpu_state
from nodeheal.agent.checks.check import CheckContext, always
from nodeheal.agent.checks.check_ipc import dumped
from nodeheal.agent.checks.check_runner import CheckRunner
from nodeheal.agent.diagnostics.bench import Output
from nodeheal.agent.runtime.config import AgentConfig, KernelLog
from nodeheal.contract.vocabulary import Provider, SchedulerKind


def no_tools(*_: object) -> Output:
    """NVML needs none."""
    raise AssertionError("no tool is run")


def probe(place: CheckContext, seconds: float) -> None:
    """Print the answers until there are no more of a look that hangs."""
    gpu_state.READ_SECONDS = seconds / 4
    check = replace(gpu_state.CHECK, deadline_seconds=seconds, why_not=always)
    looks, heard_at = CheckRunner([check], place), time.monotonic()
    looks.ask(check.name, {})
    while time.monotonic() - heard_at < seconds * 4:
        for answer in looks.answers():
            heard_at = time.monotonic()
            sys.stdout.write(dumped(answer).decode() + "\n")
            sys.stdout.flush()
        select.select([looks.descriptor], [], [], min(seconds, looks.due_in()))
    looks.close()


def main(count: str, seconds: str, state: str = "{}", kernel_log: str = "/nowhere") -> None:
    """Print so many looks, so far apart where nothing happens."""
    gpu_state.READ_SECONDS = float(seconds)
    logs = (KernelLog("file", kernel_log),)
    config = AgentConfig(
        "mi-0a1b2c3d", "training", "h100", Provider.hybrid, SchedulerKind.ECS, "eu-west-1", kernel_log=logs
    )
    place = CheckContext(config, no_tools, Path("/nowhere"), Path("/nowhere"), Path("/nowhere"))
    if count == "probed":
        probe(place, float(seconds))
        return
    for look in islice(gpu_state.stream(place, json.loads(state)), int(count)):
        sys.stdout.write(json.dumps(asdict(look)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
