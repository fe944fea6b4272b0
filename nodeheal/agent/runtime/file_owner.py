"""Lets root's commands work in a folder of the agent's user, so that this user can write the files that they leave."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = 0


def user_of(folder: Path) -> tuple[int, int]:
    """Return the agent's user and group: those of this process, or the folder's owner where this process is root.
    Raises OSError.
    """
    if os.geteuid() != ROOT:
        return os.geteuid(), os.getegid()
    status = folder.stat()
    return status.st_uid, status.st_gid


@contextmanager
def as_owner_of(folder: Path) -> Iterator[None]:
    """Open and create files as the folder's owner, where this process is root: with that owner's rights only.

    It changes the whole process, so no other thread may run. A missing folder has no owner.
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
