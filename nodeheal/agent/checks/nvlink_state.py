"""The state of the node's NVLinks. It is read in a process of its own, `COMMAND`: a call of the driver's library can
hang.
"""

import sys
from collections.abc import Sequence

from nodeheal.agent.checks.gpu_reading import GpuReading
from nodeheal.agent.diagnostics.bench import Output
from nodeheal.parsers.nvlinks import NvLinks

COMMAND = (sys.executable, "-m", "nodeheal.agent.checks.read_nvlinks")
SECONDS = 30.0


def printed_state(output: Output) -> NvLinks:
    """Return the state that the process has printed; UNKNOWN for anything else."""
    word = output.text.strip()
    return NvLinks(word) if word in list(NvLinks) else NvLinks.UNKNOWN


def state_of(readings: Sequence[GpuReading]) -> NvLinks:
    """Return the state of the links that all GPUs of the node share."""
    if not readings or any(reading.error for reading in readings):
        return NvLinks.UNKNOWN
    if not any(reading.links for reading in readings):
        return NvLinks.ABSENT
    return NvLinks.TRAINING if any(reading.joins_fabric for reading in readings) else NvLinks.UP
