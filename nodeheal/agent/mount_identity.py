"""What a node sees at a path: on which file system it is, and which folder of that. Nothing is written to find out."""

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from nodeheal.agent.checks.disk import Mount, parse_mountinfo
from nodeheal.agent.event import PATH_CHARACTERS, SOURCE_CHARACTERS, Sight
from nodeheal.checkpoints.apart import NoAnswer, tell_apart

PROC = Path("/proc")


def see_apart(directory: str, after: float, seconds: float, prepare: Callable[[], None]) -> Sight | str:
    """What is seen, so many seconds from now; or why nobody can tell, in words. Never hangs, never raises."""
    time.sleep(after)
    try:
        told = tell_apart(lambda: _told(directory), seconds, prepare)
        return Sight(**told) if isinstance(told, dict) else str(told)
    except NoAnswer as silence:
        return str(silence)


def see(directory: str, proc: Path = PROC) -> Sight:
    """What is seen now. Raises OSError where the path cannot be looked at."""
    folder, missing = _nearest(Path(os.path.realpath(directory)))
    with contextlib.suppress(PermissionError):  # one that may not be listed can still be named
        # Opened, a network file system asks its server again, and an automounter mounts.
        os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    found = folder.stat()
    mount = _mount_of(folder, parse_mountinfo((proc / "self/mountinfo").read_text("utf-8", "replace")))
    return Sight(
        file_system=mount.kind if mount else "",
        source=mount.device[:SOURCE_CHARACTERS] if mount else "",
        inode=found.st_ino,
        device=found.st_dev,
        missing=missing[:PATH_CHARACTERS],
        machine=(proc / "sys/kernel/random/boot_id").read_text("ascii", "replace").strip(),
    )


def _told(directory: str) -> dict[str, object] | str:
    try:
        return asdict(see(directory))
    except OSError as error:
        return f"{directory} cannot be looked at: {error.strerror}"


def _nearest(path: Path) -> tuple[Path, str]:
    """The nearest folder that exists, and what is missing below it."""
    for folder in (path, *path.parents):
        try:
            if stat.S_ISDIR(folder.stat().st_mode):
                return folder, str(path.relative_to(folder)) if folder != path else ""
            raise NotADirectoryError(errno.ENOTDIR, "it is no folder")
        except FileNotFoundError:
            continue
    raise FileNotFoundError(errno.ENOENT, "not even / is there")


def _mount_of(folder: Path, mounts: list[Mount]) -> Mount | None:
    """The mount that the folder is on: the innermost one."""
    having = [mount for mount in mounts if folder.is_relative_to(mount.point)]
    return max(having, key=lambda mount: len(Path(mount.point).parts), default=None)
