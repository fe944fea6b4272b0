"""`python -m tests.fakes.nvml.looks COUNT SECONDS [STATE]`: what gpu_state sees, one look a line, as JSON.

A process of its own, as on a node: the library is found by the environment that the process was started with. With
`probed` in the place of COUNT the agent's prober looks, with a deadline of SECONDS, and each line is an answer.
"""

import json
import select
import sys
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path

from nodeheal.agent.checks import gpu_state
from nodeheal.agent.checks.answer import dumped
from nodeheal.agent.checks.check import Place, always
from nodeheal.agent.checks.prober import Prober
from nodeheal.agent.config import AgentConfig, KernelLog
from nodeheal.agent.diagnostics.bench import Output
from nodeheal.contract.vocabulary import Provider


def no_tools(*_: object) -> Output:
    """NVML needs none."""
    raise AssertionError("no tool is run")


def probe(place: Place, seconds: float) -> None:
    """Print the prober's answers until it has nothing more to say of a look that hangs."""
    gpu_state.READ_SECONDS = seconds / 4
    check = replace(gpu_state.CHECK, deadline_seconds=seconds, why_not=always)
    prober = Prober(lambda: ([check], place))
    assert [one.name for one in prober.terms] == [check.name]
    prober.ask(gpu_state.CHECK.name, {})
    while select.select([prober.descriptor], [], [], seconds * 4)[0]:
        for answer in prober.answers():
            sys.stdout.write(dumped(answer).decode() + "\n")
            sys.stdout.flush()
    prober.close()


def main(count: str, seconds: str, state: str = "{}", kernel_log: str = "/nowhere") -> None:
    """Print so many looks, so far apart where nothing happens."""
    gpu_state.READ_SECONDS = float(seconds)
    logs = (KernelLog("file", kernel_log),)
    config = AgentConfig("mi-0a1b2c3d", "training", "h100", Provider.hybrid, "eu-west-1", kernel_log=logs)
    place = Place(config, no_tools, Path("/nowhere"), Path("/nowhere"), Path("/nowhere"))
    if count == "probed":
        probe(place, float(seconds))
        return
    for look in islice(gpu_state.stream(place, json.loads(state)), int(count)):
        sys.stdout.write(json.dumps(asdict(look)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
