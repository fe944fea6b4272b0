"""Follows a log file through rotation, truncation, restarts and reboots, and hands out its lines once."""

import contextlib
import errno
import hashlib
import logging
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from nodeheal.parsers.kernel_line import is_boot_banner

CHUNK_BYTES = 64 * 1024
LINE_BYTES = 64 * 1024  # a longer line is no kernel message; it is skipped up to its newline
MARK_BYTES = 128  # what stands before the cursor, to recognise the file when its inode number was reused
# A syslog daemon goes on writing to the renamed file until it is told to reopen.
RETIRED_SECONDS = 10.0
READ_OUT = 16  # rotation seldom keeps more
# What rotation puts behind a name: `.1`, `-20261123`, `-20261123-1795409669`. What a person copies has words in it.
_ROTATED = re.compile(r"[.-]\d[\d._-]*")

logger = logging.getLogger(__name__)


class RawLine(NamedTuple):
    """One complete line, and where it begins. `is_history`: it was written before the boot that now runs."""

    content: bytes
    file: int
    offset: int
    is_history: bool

    @property
    def position(self) -> str:
        """Where it stands, for as long as there is its file."""
        return f"{self.file}:{self.offset}"


@dataclass
class _OpenFile:
    """One file being read. `offset` is the first byte that was not handed out yet."""

    descriptor: int
    identity: tuple[int, int]
    offset: int = 0
    partial: bytes = b""
    history_until: int = 0
    is_overlong: bool = False
    retired_at: float | None = None

    @classmethod
    def at(cls, path: Path) -> "_OpenFile":
        """Raises OSError, also for what is no file: a pipe would be waited for, a folder cannot be read."""
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "is no file", str(path))
        return cls(descriptor, (status.st_dev, status.st_ino))

    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def read(self) -> list[RawLine] | None:
        """The complete lines of the next chunk; None at the end of the file."""
        read_to = self.offset + len(self.partial)
        size = self.size()
        if size == read_to:
            return None
        if size < read_to:  # truncated in place, as logrotate's copytruncate does
            self.offset, self.partial, self.history_until, self.is_overlong, read_to = 0, b"", 0, False, 0
        *complete, rest = (self.partial + os.pread(self.descriptor, CHUNK_BYTES, read_to)).split(b"\n")
        if self.is_overlong and complete:
            # The end of a line that was skipped is not a line: a header in there is somebody's forgery.
            self.offset += len(complete.pop(0)) + 1
            self.is_overlong = False
        lines = self._handed_out(complete)
        self.partial = rest
        if len(rest) > LINE_BYTES:
            self.offset, self.partial, self.is_overlong = self.offset + len(rest), b"", True
        return lines

    def read_last(self) -> list[RawLine]:
        """What stands at the very end without a newline: nobody will finish it in a file that was rotated away."""
        content, self.partial = self.partial, b""
        if not content:
            return []
        line = RawLine(content, self.identity[1], self.offset, self.offset < self.history_until)
        self.offset += len(content)
        return [line]

    def _handed_out(self, complete: list[bytes]) -> list[RawLine]:
        """In a storm every step here is taken for every line."""
        lines, number, offset, history_until = [], self.identity[1], self.offset, self.history_until
        for content in complete:
            lines.append(RawLine(content, number, offset, offset < history_until))
            offset += len(content) + 1
        self.offset = offset
        return lines

    def mark(self) -> str:
        """A fingerprint of what stands just before the cursor; empty where the disk does not say."""
        start = max(0, self.offset - MARK_BYTES)
        try:
            return hashlib.sha256(os.pread(self.descriptor, self.offset - start, start)).hexdigest()[:16]
        except OSError:
            return ""

    def last_banner(self, until: int) -> int | None:
        """Where, between the cursor and `until`, the last boot began."""
        found, position, rest = None, self.offset, b""
        start = self.offset
        while position < until:
            chunk = os.pread(self.descriptor, min(CHUNK_BYTES, until - position), position)
            if not chunk:
                break
            position += len(chunk)
            *complete, rest = (rest + chunk).split(b"\n")
            for content in complete:
                if is_boot_banner(content):
                    found = start
                start += len(content) + 1
        return start if rest and is_boot_banner(rest) else found


class FileTail:
    """Reads one log file. What it has handed out is said by `cursor()`, for the next start to go on from there."""

    def __init__(self, path: Path, boot_id: str, cursor: dict[str, object] | None) -> None:
        """Without a cursor (the first start ever) it begins at the end of the file as it is now; with one that is not
        understood as well: whose boot's the lines are that stand there, nobody knows then.
        """
        self._path = path
        self._boot_id = boot_id
        self._name = str(path)
        self._files: list[_OpenFile] = []
        self._read_out: list[tuple[int, int]] = []  # the last ones that were
        self._seen: tuple[int, int, int] | None = None
        self.trouble: OSError | None = None  # of the last reading
        self.history_boot_id = boot_id
        if cursor is None:
            self._begin_at_the_end()
        else:
            self._go_on(cursor)

    def has_news(self) -> bool:
        """Whether `read` may have something. One system call, as it is asked many times a second on an idle node."""
        try:
            status = os.stat(self._name)  # noqa: PTH116  # pathlib costs as much as the call itself
        except OSError:
            return True  # `read` finds out what is wrong
        seen = (status.st_dev, status.st_ino, status.st_size)
        if seen == self._seen and len(self._files) == 1:
            return False
        self._seen = seen
        return True

    def read(self, now: float) -> Iterator[RawLine]:
        """The lines that were completed since the last call. `now`: monotonic. What cannot be read holds up nothing
        else, and is in `trouble` afterwards.
        """
        self.trouble = self._follow_rotation(now)
        for file in tuple(self._files):
            try:
                while (lines := file.read()) is not None:
                    yield from lines
            except OSError as error:
                self.trouble = error
            if file.retired_at is not None and now - file.retired_at > RETIRED_SECONDS:
                yield from file.read_last()
                self._forget(file)
        if self.trouble is not None:
            self._seen = None  # to be tried again, though nothing seems to have changed

    def cursor(self) -> dict[str, object]:
        """Where to go on. It names the boot that the next unread line belongs to."""
        is_in_history = any(file.offset < file.history_until for file in self._files)
        return {
            "boot_id": self.history_boot_id if is_in_history else self._boot_id,
            "files": [
                {"identity": list(file.identity), "offset": file.offset, "mark": file.mark()} for file in self._files
            ],
        }

    def close(self) -> None:
        """Let the files go."""
        for file in tuple(self._files):
            self._forget(file)

    def _begin_at_the_end(self) -> None:
        if self._path.exists():
            file = _OpenFile.at(self._path)
            file.offset = file.size()
            self._files = [file]

    def _go_on(self, cursor: dict[str, object]) -> None:
        try:
            self._resume(cursor)
        except (KeyError, TypeError, ValueError) as error:
            logger.warning(
                "where the kernel log was read last is not understood; reading begins at its end",
                extra={"path": self._path, "why": f"{type(error).__name__}: {error}"},
            )
            self.close()
            self._begin_at_the_end()

    def _resume(self, cursor: dict[str, object]) -> None:
        entries = cursor["files"]
        for entry in entries if isinstance(entries, list) else []:
            self._files += self._find(tuple(entry["identity"]), entry["offset"], entry["mark"])
        if self._path.exists():
            current = _OpenFile.at(self._path)
            if any(file.identity == current.identity for file in self._files):
                os.close(current.descriptor)
            else:
                self._files += self._came_between(current)
                self._files.append(current)
        # Their retirement starts at the first reading, as nobody knows when they were renamed.
        if cursor["boot_id"] != self._boot_id:
            self.history_boot_id = str(cursor["boot_id"])
            self._tell_history_apart()

    def _find(self, identity: tuple[int, ...], offset: int, mark: str) -> Iterator[_OpenFile]:
        """The file that the cursor was in, under its name or the one that rotation gave it; where that was truncated,
        the copy that rotation has made of it before, as logrotate's copytruncate does.
        """
        named = sorted(self._path.parent.glob(f"{self._path.name}*"))
        copies = [path for path in named if _ROTATED.fullmatch(path.name.removeprefix(self._path.name))]
        candidates = [*((path, False) for path in named), *((path, True) for path in copies if mark and offset)]
        for candidate, is_copy in candidates:
            try:
                status = candidate.stat()
                is_same = (status.st_dev, status.st_ino) == identity
                if is_same is is_copy or status.st_size < offset:
                    continue
                file = _OpenFile.at(candidate)
            except OSError:  # gone or unreadable: not the one
                continue
            file.offset = offset
            if file.mark() == mark or not mark:
                yield file
                return
            os.close(file.descriptor)

    def _came_between(self, current: _OpenFile) -> Iterator[_OpenFile]:
        """Files that were begun and rotated while nobody read, oldest first: written to after the one that was read.
        That may be while the agent is down, or stands still.
        """
        if not self._files:
            return
        known = {current.identity, *(file.identity for file in self._files), *self._read_out}
        read_until = os.fstat(self._files[-1].descriptor).st_mtime_ns
        found = []
        for candidate in self._path.parent.glob(f"{self._path.name}*"):
            with contextlib.suppress(OSError):  # it has just gone
                status = candidate.stat()
                is_new = status.st_mtime_ns > read_until and (status.st_dev, status.st_ino) not in known
                if is_new and _ROTATED.fullmatch(candidate.name.removeprefix(self._path.name)):
                    found.append((status.st_mtime_ns, candidate))
        for _, candidate in sorted(found):
            with contextlib.suppress(OSError):
                yield _OpenFile.at(candidate)

    def _tell_history_apart(self) -> None:
        """Everything up to the last boot banner belongs to an earlier boot; without a banner all that is there does."""
        banner_seen = False
        for file in reversed(self._files):
            size = file.size()
            banner = None if banner_seen else file.last_banner(size)
            if banner_seen:
                file.history_until = size
            elif banner is not None:
                file.history_until = banner
                banner_seen = True
        if not banner_seen:
            for file in self._files:
                file.history_until = file.size()

    def _follow_rotation(self, now: float) -> OSError | None:
        """What keeps it from the file that has the name now, such as that there is none yet."""
        try:
            status = self._path.stat()
            if not self._files or (status.st_dev, status.st_ino) != self._files[-1].identity:
                current = _OpenFile.at(self._path)
                self._files += self._came_between(current)
                self._files.append(current)
        except OSError as error:
            return error
        for file in self._files[:-1]:
            file.retired_at = now if file.retired_at is None else file.retired_at
        return None

    def _forget(self, file: _OpenFile) -> None:
        os.close(file.descriptor)
        self._files.remove(file)
        self._read_out = [*self._read_out[-READ_OUT:], file.identity]
