"""Reads a directory that others write to, safely: never outside of it, never blocking on a pipe, never all of a large
file.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from nodeheal.checkpoints.found import CheckpointBroken
from nodeheal.contract.json_text import read_json

ENTRIES_AT_MOST = 200_000  # of one directory: a million files are not a directory of checkpoints
TEXT_BYTES = 64 * 1024
JSON_BYTES = 64 * 1024 * 1024  # a Trainer's state contains the whole history of its losses
PATH_CHARACTERS = 1_000  # as in the SSM document
_PLAIN = re.compile(r"/[A-Za-z0-9._/@+=,:-]*")
_NUMBER = re.compile(r"\d+")


def why_not_plain(path: str) -> str:
    """Return why a path cannot be used in commands; empty: it can."""
    if not path.startswith("/"):
        return "it is not absolute"
    if len(path) > PATH_CHARACTERS:
        return f"it has more than {PATH_CHARACTERS} characters"
    if not _PLAIN.fullmatch(path):
        return "it has characters other than letters, digits and . _ / @ + = , : -"
    return "it contains '..'" if ".." in path.split("/") else ""


def last_number(name: str) -> int | None:
    """Return the last number in a name, which most programs use for the step. None for more digits than a step has."""
    numbers = [digits for digits in _NUMBER.findall(name) if len(digits) <= 18]  # fits 64 bits
    return int(numbers[-1]) if numbers else None


class CheckpointRoot:
    """One directory. Names are relative to it. Raises CheckpointBroken for a name outside of it, or one that cannot be
    read.
    """

    def __init__(self, directory: str) -> None:
        self.root = os.path.realpath(directory)

    def names(self, folder: str = "") -> list[str]:
        """Return the names in a folder, sorted. Raises CheckpointBroken where it cannot be listed."""
        entry_names: list[str] = []
        try:
            with os.scandir(self._real(folder)) as entries:
                for entry in entries:
                    entry_names.append(entry.name)
                    if len(entry_names) > ENTRIES_AT_MOST:
                        raise CheckpointBroken(f"{folder or 'the directory'} has more than {ENTRIES_AT_MOST} entries")
        except OSError as error:
            raise CheckpointBroken(f"{folder or 'the directory'} cannot be listed: {error.strerror}") from error
        return sorted(entry_names)

    def is_folder(self, name: str) -> bool:
        """Whether this directory has a folder of this name."""
        return self._is(name, stat.S_ISDIR)

    def is_file(self, name: str) -> bool:
        """Whether this directory has a file of this name."""
        return self._is(name, stat.S_ISREG)

    def changed_at(self, name: str) -> float:
        """Return when it was last written, in seconds since the epoch; 0.0 where that is not known."""
        try:
            return Path(self.root, name).stat().st_mtime
        except (OSError, ValueError):
            return 0.0

    def size(self, name: str) -> int:
        """Return a file's size in bytes."""
        with self.opened(name) as file:
            return os.fstat(file.fileno()).st_size

    @contextmanager
    def opened(self, name: str) -> Iterator[BinaryIO]:
        """Open a regular file. Raises CheckpointBroken for a pipe or a device, which would block the reader."""
        try:
            descriptor = os.open(self._real(name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise CheckpointBroken(f"{name} does not exist") from error
        except OSError as error:
            raise CheckpointBroken(f"{name} cannot be read: {error.strerror}") from error
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise CheckpointBroken(f"{name} is not a regular file")
            yield file

    def read(self, name: str, at_most: int) -> bytes:
        """Return a whole file, where it is small enough."""
        with self.opened(name) as file:
            content = file.read(at_most + 1)
        if len(content) > at_most:
            raise CheckpointBroken(f"{name} is larger than {at_most} bytes")
        return content

    def text(self, name: str) -> str:
        """Return a small file's text, without surrounding white space."""
        return self.read(name, TEXT_BYTES).decode("utf-8", "replace").strip()

    def json(self, name: str) -> dict[str, object]:
        """Return a file's JSON object."""
        try:
            document = read_json(self.read(name, JSON_BYTES))
        except ValueError as error:
            raise CheckpointBroken(f"{name} is cut off, or not JSON") from error
        if not isinstance(document, dict):
            raise CheckpointBroken(f"{name} is not a JSON object")
        return document

    def _is(self, name: str, is_kind: Callable[[int], bool]) -> bool:
        try:
            return is_kind(Path(self._real(name)).stat().st_mode)
        except (OSError, CheckpointBroken):
            return False

    def _real(self, name: str) -> str:
        if "\0" in name:
            raise CheckpointBroken("a name with a zero byte")
        real = os.path.realpath(Path(self.root, name))
        if real != self.root and not real.startswith(self.root.rstrip("/") + "/"):
            raise CheckpointBroken(f"{name} leads out of the directory")
        return real
