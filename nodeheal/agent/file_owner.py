"""Root's commands work in a folder that is the agent's user's: what they leave there must be his to write."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = 0


def user_of(folder: Path) -> tuple[int, int]:
    """The agent's user and group: those of this process, or the folder's owner where this is root. Raises OSError."""
    if os.geteuid() != ROOT:
        return os.geteuid(), os.getegid()
    status = folder.stat()
    return status.st_uid, status.st_gid


@contextmanager
def as_owner_of(folder: Path) -> Iterator[None]:
    """Open and make files as the folder's owner does, where this process is root: his, and nowhere he could not.

    For the whole process, so not beside other threads. A folder that is not there yet has no owner.
    """
    if os.geteuid() != ROOT or not folder.exists():
        yield
        return
    owner, group = folder.stat().st_uid, os.getegid()
    os.setegid(folder.stat().st_gid)
    os.seteuid(owner)
    try:
        yield
    finally:
        os.seteuid(ROOT)
        os.setegid(group)
