"""Finds what a node sees at a path: its file system, and the folder in it. Nothing is written."""

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from nodeheal.agent.checks.disk import MountEntry, parse_mountinfo
from nodeheal.agent.transport.event import PATH_CHARACTERS, SOURCE_CHARACTERS, Sight
from nodeheal.checkpoints.apart import SearchFailed, tell_apart

PROC = Path("/proc")


def see_apart(directory: str, after: float, seconds: float, prepare: Callable[[], None]) -> Sight | str:
    """Return what is seen after so many seconds; or why that is not known. It never hangs and never raises."""
    time.sleep(after)
    try:
        answer = tell_apart(lambda: _told(directory), seconds, prepare)
        return Sight(**answer) if isinstance(answer, dict) else str(answer)
    except SearchFailed as silence:
        return str(silence)


def see(directory: str, proc: Path = PROC) -> Sight:
    """Return what is seen now. Raises OSError where the path cannot be read."""
    folder, missing = _nearest(Path(os.path.realpath(directory)))
    with contextlib.suppress(PermissionError):  # one that cannot be listed can still be identified
        # Opening makes a network file system query its server, and an automounter mount.
        os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    status = folder.stat()
    mount = _mount_of(folder, parse_mountinfo((proc / "self/mountinfo").read_text("utf-8", "replace")))
    return Sight(
        file_system=mount.kind if mount else "",
        source=mount.device[:SOURCE_CHARACTERS] if mount else "",
        inode=status.st_ino,
        device=status.st_dev,
        missing=missing[:PATH_CHARACTERS],
        machine=(proc / "sys/kernel/random/boot_id").read_text("ascii", "replace").strip(),
    )


def _told(directory: str) -> dict[str, object] | str:
    try:
        return asdict(see(directory))
    except OSError as error:
        return f"{directory} cannot be read: {error.strerror}"


def _nearest(path: Path) -> tuple[Path, str]:
    """Return the nearest existing folder, and the missing part below it."""
    for folder in (path, *path.parents):
        try:
            if stat.S_ISDIR(folder.stat().st_mode):
                return folder, str(path.relative_to(folder)) if folder != path else ""
            raise NotADirectoryError(errno.ENOTDIR, "it is not a folder")
        except FileNotFoundError:
            continue
    raise FileNotFoundError(errno.ENOENT, "not even / exists")


def _mount_of(folder: Path, mounts: list[MountEntry]) -> MountEntry | None:
    """Return the innermost mount of the folder."""
    having = [mount for mount in mounts if folder.is_relative_to(mount.point)]
    return max(having, key=lambda mount: len(Path(mount.point).parts), default=None)
