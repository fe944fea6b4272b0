"""The state of a node's NVLinks, from its GPUs' readings."""

import subprocess
import sys
from dataclasses import replace

import pytest

from nodeheal.agent.checks.gpu_reading import GpuReading
from nodeheal.agent.checks.nvlink_state import COMMAND, printed_state, state_of
from nodeheal.agent.diagnostics.bench import Output
from nodeheal.agent.runtime import probe
from nodeheal.parsers.nvlinks import NvLinks

LINKED = GpuReading(0, "0000:10:00.0", links={0: True, 1: False}, health={"fabric/state": "Completed"})
JOINING = replace(LINKED, health={"fabric/state": "In Progress"})
LOST = replace(LINKED, error="GPU_LOST")


@pytest.mark.parametrize(
    ("readings", "state"),
    [
        ([LINKED, LINKED], NvLinks.UP),
        ([replace(LINKED, health={})], NvLinks.UP),  # a product without a fabric of switches, or an old driver
        ([LINKED, JOINING], NvLinks.TRAINING),
        ([replace(LINKED, health={"fabric/state": "Not Started"})], NvLinks.TRAINING),
        ([replace(LINKED, links={})], NvLinks.ABSENT),
        ([LINKED, LOST], NvLinks.UNKNOWN),
        ([], NvLinks.UNKNOWN),
    ],
)
def test_the_state_is_that_of_all_gpus(readings: list[GpuReading], state: NvLinks) -> None:
    assert state_of(readings) is state


@pytest.mark.parametrize("text", ["", "Traceback", "up down", "upper"])
def test_anything_but_a_state_is_unknown(text: str) -> None:
    assert printed_state(Output(text, "", probe.Ran(1.0, 0))) is NvLinks.UNKNOWN


def test_a_machine_without_a_driver_answers_that_it_does_not_know() -> None:
    ended = subprocess.run([sys.executable, *COMMAND[1:]], capture_output=True, text=True, check=True)

    assert ended.stdout == "unknown\n"
