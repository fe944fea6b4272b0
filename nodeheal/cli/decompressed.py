"""Reads a compressed log. Its first bytes say how it is compressed.

zstd is read by the tool of that name. Python has it only from 3.14 on, and a package would be one more compiled
dependency of the whole CLI for one command; where logs are compressed with zstd, the tool is there.
"""

import bz2
import gzip
import io
import lzma
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from nodeheal.parsers.kernel_filter import Readable

_GZIP, _XZ, _BZIP2, _ZSTD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"BZh", b"\x28\xb5\x2f\xfd"
_MOST_BYTES = 6
_TOOL = ["zstd", "-d", "-c", "-q"]
_BLOCK_BYTES = 256 * 1024
# What is raised by a log whose end is missing or whose bytes are wrong, beside OSError.
BROKEN = (EOFError, lzma.LZMAError)


@contextmanager
def decompressed(log: BinaryIO) -> Iterator[Readable]:
    """The log as it was before it was compressed; the log itself where it is not. Reading raises OSError or BROKEN."""
    stream = log if isinstance(log, io.BufferedReader) else io.BufferedReader(log)  # type: ignore[type-var]
    first = stream.peek(_MOST_BYTES)
    if first.startswith(_ZSTD):
        with _by_tool(stream) as text:
            yield text
    elif first.startswith(_GZIP):
        with gzip.GzipFile(fileobj=stream) as text:
            yield text
    elif first.startswith(_XZ):
        with lzma.LZMAFile(stream) as text:
            yield text
    elif first.startswith(_BZIP2):
        with bz2.BZ2File(stream) as text:
            yield text
    else:
        yield stream


@contextmanager
def _by_tool(stream: BinaryIO) -> Iterator[Readable]:
    try:
        tool = subprocess.Popen(_TOOL, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except FileNotFoundError:
        raise OSError("the log is compressed with zstd: install the tool `zstd`, or decompress it first") from None
    feeder = threading.Thread(target=_feed, args=(stream, tool), daemon=True)
    feeder.start()
    assert tool.stdout is not None  # both are pipes
    assert tool.stderr is not None
    try:
        yield tool.stdout
        complaint = tool.stderr.read().decode("utf-8", "replace").strip()
        if tool.wait() != 0:
            raise OSError(f"zstd: {complaint or 'it has failed'}")
    finally:
        tool.kill()
        tool.wait()


def _feed(stream: BinaryIO, tool: subprocess.Popen[bytes]) -> None:
    assert tool.stdin is not None
    with suppress(BrokenPipeError, ValueError), tool.stdin:
        while block := stream.read(_BLOCK_BYTES):
            tool.stdin.write(block)
