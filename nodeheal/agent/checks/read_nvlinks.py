"""Prints the state of the node's NVLinks: `python -m nodeheal.agent.checks.read_nvlinks`."""

import sys

import pynvml

from nodeheal.agent.checks.nvlink_state import state_of
from nodeheal.agent.checks.nvml import Nvml
from nodeheal.parsers.nvlinks import NvLinks


def _read() -> NvLinks:
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
