"""Reads the state of the node's NVLinks, in a process of its own: a call of the driver's library can hang.

`python -m nodeheal.agent.checks.nvlink_state` prints it.
"""

import sys
from collections.abc import Sequence

from nodeheal.agent.checks.gpu_reading import GpuReading
from nodeheal.agent.diagnostics.bench import Output
from nodeheal.parsers.nvlinks import NvLinks

COMMAND = (sys.executable, "-m", "nodeheal.agent.checks.nvlink_state")
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


def _read() -> NvLinks:
    try:
        import pynvml

        from nodeheal.agent.checks.nvml import Nvml
    except ImportError:
        return NvLinks.UNKNOWN
    try:
        nvml = Nvml()
        try:
            return state_of(nvml.read())
        finally:
            nvml.close()
    except pynvml.NVMLError:
        return NvLinks.UNKNOWN


if __name__ == "__main__":
    sys.stdout.write(f"{_read()}\n")
