"""Follows a log file through rotation, truncation, restarts and reboots, and returns each line once."""

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
LINE_BYTES = 64 * 1024  # a longer line is not a kernel message; it is skipped up to its newline
MARK_BYTES = 128  # bytes before the cursor, to recognise the file when its inode number was reused
# A syslog daemon goes on writing to the renamed file until it is told to reopen.
RETIRED_SECONDS = 10.0
READ_OUT = 16  # rotation seldom keeps more files
# Suffixes of rotated files: `.1`, `-20261123`, `-20261123-1795409669`. Names of manual copies contain words.
_ROTATED = re.compile(r"[.-]\d[\d._-]*")

logger = logging.getLogger(__name__)


class RawLine(NamedTuple):
    """One complete line and its position. `is_history`: it was written before the running boot."""

    content: bytes
    file: int
    offset: int
    is_history: bool

    @property
    def position(self) -> str:
        """The position of the line, valid as long as its file exists."""
        return f"{self.file}:{self.offset}"


@dataclass
class _OpenFile:
    """An open log file. `offset` is the first byte that was not returned yet."""

    descriptor: int
    identity: tuple[int, int]
    offset: int = 0
    partial: bytes = b""
    history_until: int = 0
    is_overlong: bool = False
    retired_at: float | None = None

    @classmethod
    def at(cls, path: Path) -> "_OpenFile":
        """Open the file. Raises OSError, also for anything but a regular file: a read of a pipe would block."""
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "is not a regular file", str(path))
        return cls(descriptor, (status.st_dev, status.st_ino))

    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def read(self) -> list[RawLine] | None:
        """Return the complete lines of the next chunk; None at the end of the file."""
        read_to = self.offset + len(self.partial)
        size = self.size()
        if size == read_to:
            return None
        if size < read_to:  # truncated in place, as with logrotate's copytruncate
            self.offset, self.partial, self.history_until, self.is_overlong, read_to = 0, b"", 0, False, 0
        *complete, rest = (self.partial + os.pread(self.descriptor, CHUNK_BYTES, read_to)).split(b"\n")
        if self.is_overlong and complete:
            # The end of a skipped line is not a line: a header in it could be forged.
            self.offset += len(complete.pop(0)) + 1
            self.is_overlong = False
        lines = self._handed_out(complete)
        self.partial = rest
        if len(rest) > LINE_BYTES:
            self.offset, self.partial, self.is_overlong = self.offset + len(rest), b"", True
        return lines

    def read_last(self) -> list[RawLine]:
        """Return the text at the end of the file without a newline: no writer completes it in a rotated file."""
        content, self.partial = self.partial, b""
        if not content:
            return []
        line = RawLine(content, self.identity[1], self.offset, self.offset < self.history_until)
        self.offset += len(content)
        return [line]

    def _handed_out(self, complete: list[bytes]) -> list[RawLine]:
        """Split a chunk into lines. In a storm this runs for every line, so it must be cheap."""
        lines, number, offset, history_until = [], self.identity[1], self.offset, self.history_until
        for content in complete:
            lines.append(RawLine(content, number, offset, offset < history_until))
            offset += len(content) + 1
        self.offset = offset
        return lines

    def mark(self) -> str:
        """Return a fingerprint of the bytes before the cursor; empty where the disk cannot be read."""
        start = max(0, self.offset - MARK_BYTES)
        try:
            return hashlib.sha256(os.pread(self.descriptor, self.offset - start, start)).hexdigest()[:16]
        except OSError:
            return ""

    def last_banner(self, until: int) -> int | None:
        """Return where the last boot began between the cursor and `until`."""
        banner_at, position, rest = None, self.offset, b""
        start = self.offset
        while position < until:
            chunk = os.pread(self.descriptor, min(CHUNK_BYTES, until - position), position)
            if not chunk:
                break
            position += len(chunk)
            *complete, rest = (rest + chunk).split(b"\n")
            for content in complete:
                if is_boot_banner(content):
                    banner_at = start
                start += len(content) + 1
        return start if rest and is_boot_banner(rest) else banner_at


class FileTail:
    """Reads one log file. `cursor()` gives the position for the next start."""

    def __init__(self, path: Path, boot_id: str, cursor: dict[str, object] | None) -> None:
        """Without a cursor (the first start ever), reading begins at the current end of the file. It does so with an
        invalid cursor, too: then the boot of earlier lines is not known.
        """
        self._path = path
        self._boot_id = boot_id
        self._name = str(path)
        self._files: list[_OpenFile] = []
        self._read_out: list[tuple[int, int]] = []  # the last files that were
        self._seen: tuple[int, int, int] | None = None
        self.trouble: OSError | None = None  # of the last read
        self.history_boot_id = boot_id
        if cursor is None:
            self._begin_at_the_end()
        else:
            self._go_on(cursor)

    def has_news(self) -> bool:
        """Whether `read` may return lines. It costs one system call, since it runs many times a second on an
        idle node.
        """
        try:
            status = os.stat(self._name)  # noqa: PTH116  # pathlib costs as much as the call itself
        except OSError:
            return True  # `read` reports the error
        file_state = (status.st_dev, status.st_ino, status.st_size)
        if file_state == self._seen and len(self._files) == 1:
            return False
        self._seen = file_state
        return True

    def read(self, now: float) -> Iterator[RawLine]:
        """Return the lines completed since the last call. `now`: monotonic seconds. An unreadable file does not block
        the others; its error is in `trouble` afterwards.
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
            self._seen = None  # retry, although nothing seems to have changed

    def cursor(self) -> dict[str, object]:
        """Return the position for the next start. It names the boot of the next unread line."""
        is_in_history = any(file.offset < file.history_until for file in self._files)
        return {
            "boot_id": self.history_boot_id if is_in_history else self._boot_id,
            "files": [
                {"identity": list(file.identity), "offset": file.offset, "mark": file.mark()} for file in self._files
            ],
        }

    def close(self) -> None:
        """Close the files."""
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
                "the stored position in the kernel log is not valid; reading begins at the end of the file",
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
        # Their retention starts at the first read, since their rename time is not known.
        if cursor["boot_id"] != self._boot_id:
            self.history_boot_id = str(cursor["boot_id"])
            self._tell_history_apart()

    def _find(self, identity: tuple[int, ...], offset: int, mark: str) -> Iterator[_OpenFile]:
        """Find the file of the cursor, under its own name or a rotated one. Where it was truncated, find the copy that
        logrotate's copytruncate made of it.
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
            except OSError:  # gone or unreadable: not this one
                continue
            file.offset = offset
            if file.mark() == mark or not mark:
                yield file
                return
            os.close(file.descriptor)

    def _came_between(self, current: _OpenFile) -> Iterator[_OpenFile]:
        """Return files that were created and rotated while nobody read, oldest first: those modified after the one that
        was read. That happens while the agent is down or blocked.
        """
        if not self._files:
            return
        known = {current.identity, *(file.identity for file in self._files), *self._read_out}
        read_until = os.fstat(self._files[-1].descriptor).st_mtime_ns
        candidates = []
        for candidate in self._path.parent.glob(f"{self._path.name}*"):
            with contextlib.suppress(OSError):  # it has just disappeared
                status = candidate.stat()
                is_new = status.st_mtime_ns > read_until and (status.st_dev, status.st_ino) not in known
                if is_new and _ROTATED.fullmatch(candidate.name.removeprefix(self._path.name)):
                    candidates.append((status.st_mtime_ns, candidate))
        for _, candidate in sorted(candidates):
            with contextlib.suppress(OSError):
                yield _OpenFile.at(candidate)

    def _tell_history_apart(self) -> None:
        """Mark lines up to the last boot banner as history; without a banner, all lines are history."""
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
        """Follow a rotation. Returns what prevents opening the current file, such as that it does not exist yet."""
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
