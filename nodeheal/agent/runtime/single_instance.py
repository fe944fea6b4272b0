"""Ensures that one agent works in a state folder: two would report everything twice, and overwrite each other's log
position.

The folder itself is locked, so nothing is written and nothing can block the next start: the kernel releases the lock
when the process ends. Check processes close their copy of the descriptor.
"""

import fcntl
import logging
import os
from pathlib import Path

LOCKS = Path("/proc/locks")

logger = logging.getLogger(__name__)


class AlreadyRunning(OSError):
    """Another agent works in the folder."""


def claim(folder: Path, locks: Path = LOCKS) -> int | None:
    """Lock the folder until this process ends; returns the descriptor of the lock. Raises AlreadyRunning.

    None: locking failed. A broken disk must not silence the node.
    """
    descriptor = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        is_taken = isinstance(error, BlockingIOError)
        who = _holder(os.fstat(descriptor), locks) if is_taken and descriptor is not None else None
        if descriptor is not None:
            os.close(descriptor)
        if is_taken:
            raise AlreadyRunning(
                f"{folder}: another agent works there, {who or 'of an unknown process'}; stop it first"
            ) from error
        logger.warning(
            "the state folder cannot be locked; a second agent could run beside this one",
            extra={"folder": folder, "why": error},
        )
        return None
    return descriptor


def _holder(folder: os.stat_result, locks: Path) -> str | None:
    """Return the process that has the lock, from the kernel's list: `1: FLOCK ADVISORY WRITE 4711 fe:01:1234 0 EOF`."""
    place = f"{os.major(folder.st_dev):02x}:{os.minor(folder.st_dev):02x}:{folder.st_ino}"
    try:
        lines = [line.split() for line in locks.read_text(encoding="ascii", errors="replace").splitlines()]
    except OSError:
        return None
    return next((f"process {words[4]}" for words in lines if words[1:2] == ["FLOCK"] and words[5:6] == [place]), None)
