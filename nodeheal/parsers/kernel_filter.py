"""Finds the few lines of a log that may report a fault, fast enough for a node's whole history. Pure.

A skipped line has no finding: every fault's line contains one of the needles. A returned line may still be an ordinary
one.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

# Words that the parsers' patterns require. The rarer the words, the faster a log is read.
_NEEDLES = (
    b"NVRM: ",
    b": SXid (",
    b": Failed to initialize device",
    b"NEURON_HW_ERR=",
    b"neuron:",
    b"efa ",
    b"mlx5_core",
    b" failed with error ",  # a driver's probe
    b"AER: ",
    b"PCIe Bus Error: ",
    b"DPC: ",
    b": Link Down",
    b": Power fault",
    b" after FLR; giving up",
    b"Unable to change power state ",
    b"[Hardware Error]: ",
    b"EDAC MC",
    b"Kernel panic - not syncing: ",
    b": recovery action for ",
    b"ut of memory",
    b"[#",  # an oops
    b"BUG: soft lockup",
    b"hard LOCKUP",
    b"INFO: task ",
    b" timeout, ",
    b": controller is down; ",
    b": Device not ready; aborting ",
    b": resetting controller due to ",
    b": Identify Controller failed",
    b"Disabling device after reset failure: -",
    b"Removing after probe failure status: -",
    b" error, dev ",
    b"hutting down filesystem",
    b"Filesystem has been shut down",
    b": Remounting filesystem read-only",
    b"): forced readonly",
    b" not responding, ",
    b" in libnccl",
    b"NIC Link is Down",
    b"Keep alive watchdog timeout",
    b"Lost TX completions are above ",
    b"lost tx completions is above ",
    b"cpu clock",
)
# In JSON a needle can be hidden: by escapes, or in a message that is given as numbers.
_JSON_FIELD = b'"MESSAGE"'
_ESCAPE = b"\\u00"
_NUMBERS = re.compile(rb'"MESSAGE"[ \t\r]*:[ \t\r]*\[')

# Searching a block for every needle takes as many passes over it. But a log repeats the same lines with other numbers
# and addresses: without hex digits, most of its lines are equal. So needles are first searched in the distinct ones of
# these, and needles with capitals only where their capitals occur. What remains is searched in the block itself.
_HEX_DIGITS = b"0123456789abcdef"
_NO_CAPITALS = bytes(byte for byte in range(256) if byte not in b"ABCDEFGHIJKLMNOPQRSTUVWXYZ\n")
_GATES = tuple(
    (needle.translate(None, _NO_CAPITALS), needle.translate(None, _HEX_DIGITS), needle) for needle in _NEEDLES
)

BLOCK_BYTES = 256 * 1024
LINE_BYTES = 64 * 1024  # a longer line is cut: no kernel message is that long


class Readable(Protocol):
    """A binary file."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes; none at the end."""


def suspicious_lines(blocks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield suspicious lines with their number from 1, from blocks as `blocks_of` yields them."""
    number = 1
    for block in blocks:
        lines = block.translate(None, _HEX_DIGITS).split(b"\n")
        at, counted = number, 0
        for start in _starts(block, b"\n".join(set(lines))):
            at += block.count(b"\n", counted, start)
            counted = start
            yield at, _line(block, start)
        number += len(lines) - 1


def all_lines(blocks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield all lines in the same form: the reference for `suspicious_lines`."""
    number = 0
    for block in blocks:
        for line in block.removesuffix(b"\n").split(b"\n"):
            number += 1
            yield number, line[:LINE_BYTES]


def _starts(block: bytes, shapes: bytes) -> list[int]:
    """Return the starts of suspicious lines. `shapes`: the distinct lines, without their hex digits."""
    starts: set[int] = set()
    capitals = b"\n".join(set(shapes.translate(None, _NO_CAPITALS).split(b"\n")))
    for its_capitals, its_shape, needle in _GATES:
        if its_capitals in capitals and its_shape in shapes:
            starts.update(_starts_of_lines(block, partial(block.find, needle)))
    if _JSON_FIELD in shapes:
        # Separately: a pattern with one fixed beginning is searched by its first bytes, many times faster.
        starts.update(_starts_of_lines(block, partial(block.find, _ESCAPE)))
        if _NUMBERS.search(shapes):
            starts.update(_starts_of_lines(block, partial(_find_numbers, block)))
    return sorted(starts)


def _starts_of_lines(block: bytes, find: Callable[[int], int]) -> Iterator[int]:
    """Return the starts of the lines in which `find` has a match, each line once."""
    position = find(0)
    while position >= 0:
        yield block.rfind(b"\n", 0, position) + 1
        end = block.find(b"\n", position)
        position = find(end) if end >= 0 else -1


def _find_numbers(block: bytes, start: int) -> int:
    match = _NUMBERS.search(block, start)
    return match.start() if match else -1


def _line(block: bytes, start: int) -> bytes:
    end = block.find(b"\n", start)
    return block[start : min(end if end >= 0 else len(block), start + LINE_BYTES)]


def blocks_of(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield blocks of whole lines, from bytes that are cut anywhere. Overlong lines are dropped."""
    rest = b""
    for piece in pieces:
        end = piece.rfind(b"\n") + 1
        if end:
            yield rest + piece[:end]
            rest = b""
        if len(rest) < LINE_BYTES:
            rest += piece[end:]
    if rest:
        yield rest
