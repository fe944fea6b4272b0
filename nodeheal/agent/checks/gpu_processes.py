"""Who has an accelerator open. What another user's process has open, only root sees; of its GPUs, the driver tells."""

import os
import re
from pathlib import Path

from nodeheal.agent.checks import gpu_state
from nodeheal.agent.checks.check import Place

_ACCELERATOR = re.compile(r"/dev/(?:nvidia|neuron|infiniband/)")


def holds_accelerator(folder: Path, gpu_users: frozenset[int] | None) -> bool | None:
    """Whether the process of this folder below /proc has one open; None: it cannot be told."""
    try:
        with os.scandir(folder / "fd") as opened:
            return any(_ACCELERATOR.match(_target(Path(entry.path))) for entry in opened)
    except FileNotFoundError:
        return False  # it has ended
    except OSError:
        return None if gpu_users is None else int(folder.name) in gpu_users


def gpu_users(place: Place) -> frozenset[int] | None:
    """The processes that use an NVIDIA GPU; None: nobody tells."""
    if gpu_state.why_not(place):
        return None
    import pynvml  # here: it is rarely asked

    from nodeheal.agent.checks.nvml import Nvml

    try:
        nvml = Nvml()
        try:
            return nvml.users()
        finally:
            nvml.close()
    except pynvml.NVMLError:
        return None


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""  # closed meanwhile
