"""Opens and replaces files in folders where other users can write, without following links.

Commands run as root. A user who can write to a folder can place a link there, and root would follow it to any file.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Container
from pathlib import Path
from typing import BinaryIO

# O_NONBLOCK: opening a FIFO must not wait for its other end.
_UNLINKED = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KIND = {False: "folder", True: "regular file"}


def open_folder(name: str | Path, inside: int | None = None) -> int:
    """Open a folder, relative to `inside` where that is given; returns a descriptor. Raises OSError for a link."""
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | _UNLINKED, dir_fd=inside)


def open_file(name: str | Path, flags: int = os.O_RDONLY, mode: int = 0o600, inside: int | None = None) -> BinaryIO:
    """Open a regular file with one name, unbuffered. Raises OSError for a link, a hard link, a FIFO or a device."""
    descriptor = os.open(name, flags | _UNLINKED, mode, dir_fd=inside)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise OSError(errno.EPERM, "not a regular file with one name", str(name))
    return os.fdopen(descriptor, "rb" if flags & os.O_ACCMODE == os.O_RDONLY else "wb", buffering=0)


def why_unsafe(file: Path, owners: Container[int]) -> str:
    """Return why a user other than `owners` could replace the file, in words; empty: none could.

    The file and every folder above it must be regular and not links. A folder that everybody may write to, such as
    /tmp, must have the sticky bit: then only the owner of an entry can remove it. Raises OSError.
    """
    if not file.is_absolute() or ".." in file.parts:
        return f"{file} is not a plain absolute path"
    for place in (*reversed(file.parents), file):
        status = place.lstat()
        is_right = stat.S_ISREG(status.st_mode) if place == file else stat.S_ISDIR(status.st_mode)
        if not is_right:
            return f"{place} is a link" if stat.S_ISLNK(status.st_mode) else f"{place} is not a {_KIND[place == file]}"
        if status.st_uid not in owners:
            return f"{place} belongs to user {status.st_uid}"
        is_sticky = place != file and status.st_mode & stat.S_ISVTX
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not is_sticky:
            return f"{place} can be written by others than its owner"
    return ""


def is_own(descriptor: int) -> bool:
    """Whether it belongs to the user of this process: root, where a command runs."""
    return os.fstat(descriptor).st_uid == os.geteuid()


def replace_file(file: Path, text: str, mode: int, prepare: Callable[[int], None] = lambda _: None) -> None:
    """Write the file atomically. Its folder is created where it is missing, and may not be a link.

    `prepare` gets the descriptor before the file gets its name. Raises OSError.
    """
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    folder, fresh = open_folder(file.parent), f".{file.name}.new"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=folder)
        with open_file(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, folder) as opened:
            opened.write(text.encode())
            os.fchmod(opened.fileno(), mode)  # independent of the umask
            prepare(opened.fileno())
        os.replace(fresh, file.name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)
