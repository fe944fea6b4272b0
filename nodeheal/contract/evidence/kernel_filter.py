"""Finds the few lines of a log that may report a fault, fast enough to read a node's whole history. Pure.

A line that is not handed out has no finding: every fault's line contains one of the needles. A line that is handed out
may still be an ordinary one.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

# What the parsers' patterns cannot do without.
_NEEDLES = (
    b"NVRM: ",
    b": SXid (",
    b"NEURON_HW_ERR=",
    b"neuron:",
    b"efa ",
    b"mlx5_core",
    b" failed with error ",  # a driver's probe
    b"AER: ",
    b"PCIe Bus Error: ",
    b"DPC: ",
    b": Link Down",
    b" after FLR; giving up",
    b"[Hardware Error]: ",
    b"EDAC MC",
    b"Kernel panic - not syncing: ",
    b": recovery action for ",
    b"] SMP",
    b"]  SMP",
    b"] PREEMPT",
    b"BUG: soft lockup",
    b"hard LOCKUP",
    b"INFO: task ",
    b": I/O ",
    b"I/O error, dev ",
    b":(READ) ",
    b":(WRITE) ",
    b"XFS (",
    b"BTRFS ",
    b" not responding, ",
    b"]: segfault at ",
    b"NIC Link is Down",
)
# In JSON a needle can be hidden: behind escapes, or in a message that is given as numbers.
_JSON_FIELD = b'"MESSAGE"'
_ESCAPE = b"\\u00"
_NUMBERS = re.compile(rb'"MESSAGE"[ \t\r\n]*:[ \t\r\n]*\[')

# Searching a block for every needle costs as many passes over it. Most needles have capitals, and most of a log has
# not: with all else deleted, a block shrinks to a tenth or less, and its lines to a few different ones. Only needles
# whose capitals are in one of those are searched for in the block itself.
_KEPT = b'ABCDEFGHIJKLMNOPQRSTUVWXYZ"\n'
_DELETED = bytes(byte for byte in range(256) if byte not in _KEPT)
_ENDS = (b"\n", b'"')  # of a message, the second one in JSON
# Needles, each behind the capitals that are there where it is.
_BY_CAPITALS: tuple[tuple[bytes, bytes], ...] = (
    *((needle.translate(None, _DELETED), needle) for needle in _NEEDLES),
    # A needle with few capitals, by those of its whole message.
    (b"LTX", b"ost TX completions are above "),  # ena 0000:00:05.0 eth0: Lost TX completions are above
    (b"UD", b"Unable to change power state "),  # Unable to change power state from D3cold to D0, device inaccessible
    (b"OK", b"Out of memory"),  # Out of memory: Killed process
    (b"MK", b"cgroup out of memory: "),  # Memory cgroup out of memory: Killed process
    (b"EXTR", b": Remounting filesystem read-only"),  # EXT4-fs (nvme0n1p1): Remounting filesystem read-only
    *((some, b"cpu clock") for some in (b"CPUC", b"CPUP")),  # CPU12: Core temperature is above threshold, cpu clock
    # A needle whose capital is the last one of its message.
    *((b"SP" + end, b": Power fault") for end in _ENDS),  # pcieport 0000:00:1c.0: pciehp: Slot(0-1): Power fault
    *((b"F" + end, b": Failed to initialize device") for end in _ENDS),
    *((b"K" + end, b"Keep alive watchdog timeout") for end in _ENDS),
    *((b"D" + end, b"Disabling device after reset failure: -") for end in _ENDS),
    *((b"R" + end, b"Removing after probe failure status: -") for end in _ENDS),
)

BLOCK_BYTES = 256 * 1024
LINE_BYTES = 64 * 1024  # a longer line is cut: no kernel message is that long


class Readable(Protocol):
    """A binary file."""

    def read(self, size: int, /) -> bytes:
        """The next bytes; none at the end."""


def suspicious_lines(blocks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Lines by their number from 1, of blocks as `blocks_of` yields them."""
    number = 1
    for block in blocks:
        capitals = block.translate(None, _DELETED).split(b"\n")
        at, counted = number, 0
        for start in _starts(block, b"\n".join((*set(capitals), b""))):
            at += block.count(b"\n", counted, start)
            counted = start
            yield at, _line(block, start)
        number += len(capitals) - 1


def all_lines(blocks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """As `suspicious_lines`, with nothing left out: what it is measured against."""
    number = 0
    for block in blocks:
        for line in block.removesuffix(b"\n").split(b"\n"):
            number += 1
            yield number, line[:LINE_BYTES]


def _starts(block: bytes, capitals: bytes) -> list[int]:
    starts: set[int] = set()
    for needle in {needle for some, needle in _BY_CAPITALS if some in capitals}:
        if needle in block:
            starts.update(_starts_of_lines(block, partial(block.find, needle)))
    if b"MESSAGE" in capitals and _JSON_FIELD in block:
        # One after the other: a pattern that begins in one way is looked for by its first bytes, many times faster.
        starts.update(_starts_of_lines(block, partial(block.find, _ESCAPE)))
        starts.update(_starts_of_lines(block, partial(_find_numbers, block)))
    return sorted(starts)


def _starts_of_lines(block: bytes, find: Callable[[int], int]) -> Iterator[int]:
    """Where the lines start in which `find` finds something, each line once."""
    position = find(0)
    while position >= 0:
        yield block.rfind(b"\n", 0, position) + 1
        end = block.find(b"\n", position)
        position = find(end) if end >= 0 else -1


def _find_numbers(block: bytes, start: int) -> int:
    found = _NUMBERS.search(block, start)
    return found.start() if found else -1


def _line(block: bytes, start: int) -> bytes:
    end = block.find(b"\n", start)
    return block[start : min(end if end >= 0 else len(block), start + LINE_BYTES)]


def blocks_of(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Blocks of whole lines, from bytes that are cut anywhere. What is too long for a line is dropped."""
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
