"""One agent works in a state folder: two would tell everything twice, and write over each other's place in the log.

The folder itself is locked, so nothing has to be written where nothing may be, and nothing is left to block the next
start: the kernel lets go when the process ends, however it ends. Looks close what they have of it.
"""

import fcntl
import logging
import os
from pathlib import Path

LOCKS = Path("/proc/locks")

logger = logging.getLogger(__name__)


class AlreadyRunning(OSError):
    """Another agent works there."""


def claim(folder: Path, locks: Path = LOCKS) -> int | None:
    """Lock it until this process ends; the descriptor that holds it. Raises AlreadyRunning.

    None: it cannot be locked. A disk that is broken must not silence the node.
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
                f"{folder}: another agent works there, {who or 'of a process that is not known'}"
            ) from error
        logger.warning("nothing keeps a second agent from this folder", extra={"folder": folder, "why": error})
        return None
    return descriptor


def _holder(folder: os.stat_result, locks: Path) -> str | None:
    """Who has locked it, as the kernel tells: `1: FLOCK  ADVISORY  WRITE 4711 fe:01:1234 0 EOF`."""
    place = f"{os.major(folder.st_dev):02x}:{os.minor(folder.st_dev):02x}:{folder.st_ino}"
    try:
        lines = [line.split() for line in locks.read_text(encoding="ascii", errors="replace").splitlines()]
    except OSError:
        return None
    return next((f"process {said[4]}" for said in lines if said[1:2] == ["FLOCK"] and said[5:6] == [place]), None)
