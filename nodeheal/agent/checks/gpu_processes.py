"""Finds the processes that have an accelerator open. Only root sees another user's open files; the driver lists GPU
users.
"""

import os
import re
from pathlib import Path

from nodeheal.agent.checks import gpu_state
from nodeheal.agent.checks.check import CheckContext

_ACCELERATOR = re.compile(r"/dev/(?:nvidia|neuron|infiniband/)")


def holds_accelerator(folder: Path, gpu_users: frozenset[int] | None) -> bool | None:
    """Whether the process of this /proc folder has an accelerator open; None where that is not known."""
    try:
        with os.scandir(folder / "fd") as opened:
            return any(_ACCELERATOR.match(_target(Path(entry.path))) for entry in opened)
    except FileNotFoundError:
        return False  # the process has ended
    except OSError:
        return None if gpu_users is None else int(folder.name) in gpu_users


def gpu_users(place: CheckContext) -> frozenset[int] | None:
    """Return the processes that use an NVIDIA GPU; None where the driver does not list them."""
    return None if gpu_state.why_not(place) else gpu_state.gpu_library().users()


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""  # closed in the meantime
