"""Reads the names in a pickle without running it: it decodes opcodes, and builds no objects."""

import pickletools
from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO, cast

from nodeheal.checkpoints.found import CheckpointBroken

OPCODES_AT_MOST = 2_000_000
VALUE_BYTES = 16 * 1024 * 1024  # of one value: what is searched for are names and numbers
Atom = str | int


class _Bounded:
    """A file of which no value is read that is too long, such as a line that never ends. Raises ValueError for one."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.tell = file, file.tell

    def read(self, size: int) -> bytes:
        if size > VALUE_BYTES:
            raise ValueError(f"a value of {size} bytes")
        return self._file.read(size)

    def readline(self) -> bytes:
        line = self._file.readline(VALUE_BYTES)
        if len(line) == VALUE_BYTES:
            raise ValueError("a line without an end")
        return line


def atoms(file: BinaryIO, name: str) -> Iterator[Atom]:
    """Return the strings, numbers and globals of the pickle that begins here, in order; the file is then positioned
    after it.

    A reference to an earlier value repeats that value. Raises CheckpointBroken for bytes that are not a whole pickle.
    """
    memo: dict[int, Atom | None] = {}
    last: Atom | None = None
    count = 0
    try:
        for opcode, argument, _ in islice(pickletools.genops(cast("BinaryIO", _Bounded(file))), OPCODES_AT_MOST):
            count += 1
            if opcode.name in ("PROTO", "FRAME"):
                continue
            if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT"):
                memo[int(argument or 0)] = last
                continue
            if opcode.name == "MEMOIZE":
                memo[len(memo)] = last
                continue
            if opcode.name in ("GET", "BINGET", "LONG_BINGET"):
                last = memo.get(int(argument or 0))
            else:
                last = argument if isinstance(argument, str | int) else None
            if last is not None:
                yield last
    except (ValueError, OverflowError, UnicodeError, MemoryError, EOFError) as error:
        raise CheckpointBroken(f"{name} is cut off, or not a pickle") from error
    if count == OPCODES_AT_MOST:
        raise CheckpointBroken(f"{name} has more values than are read")
