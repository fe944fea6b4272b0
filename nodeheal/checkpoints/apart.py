"""Runs a search in a process of its own: a file system that hangs blocks that process, and not the caller."""

import contextlib
import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable

from nodeheal.checkpoints.found import DirectoryListing, Distrusted, listing_of
from nodeheal.checkpoints.search import list_checkpoints
from nodeheal.contract.vocabulary import CheckpointFormat

MEMORY_BYTES = 2 * 1024**3  # of address space: files of any content must not exhaust the node's memory
READ_BYTES = 64 * 1024
_CAME_TO_GRIEF = "the search process ended without an answer"


class SearchFailed(Exception):
    """The search has no result; the message says why."""


def list_apart(
    directory: str,
    wanted: CheckpointFormat,
    seconds: float,
    *,
    to_newest_valid: bool = False,
    distrusted: Distrusted | None = None,
    prepare: Callable[[], None] = lambda: None,
) -> DirectoryListing:
    """Run `list_checkpoints` with a deadline; at the deadline the listing has a problem. The search process calls
    `prepare` first.
    """

    def look() -> object:
        listing = list_checkpoints(directory, wanted, to_newest_valid=to_newest_valid, distrusted=distrusted)
        return listing.as_json()

    try:
        answer = tell_apart(look, seconds, prepare)
        return listing_of(answer if isinstance(answer, dict) else {})
    except SearchFailed as silence:
        return DirectoryListing(directory, wanted, problem=str(silence))
    except (ValueError, KeyError, TypeError):
        return DirectoryListing(directory, wanted, problem=_CAME_TO_GRIEF)


def tell_apart(look: Callable[[], object], seconds: float, prepare: Callable[[], None] = lambda: None) -> object:
    """Return the result of `look`, which must fit into JSON. Raises SearchFailed at the deadline, or where the search
    fails.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _live(writer, look, prepare)
    os.close(writer)
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        answer = _heard(pipe.fileno(), time.monotonic() + seconds)
    _end(pid)
    if answer is None:
        raise SearchFailed(f"the file system did not answer within {seconds:g} s")
    try:
        return json.loads(answer)
    except ValueError as error:
        raise SearchFailed(_CAME_TO_GRIEF) from error


def _live(writer: int, look: Callable[[], object], prepare: Callable[[], None]) -> None:
    """Run the search in its process; never returns."""
    try:
        _close_streams()
        _bound_memory()
        prepare()
        result = look()
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(json.dumps(result).encode())
    finally:
        os._exit(0)


def _bound_memory() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    least = MEMORY_BYTES if most == resource.RLIM_INFINITY else min(MEMORY_BYTES, most)
    resource.setrlimit(resource.RLIMIT_AS, (least, most))


def _close_streams() -> None:
    """Close the standard streams: the reader of this command's output waits until all have closed them, and a hanging
    process must not block it.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)


def _heard(pipe: int, until: float) -> bytes | None:
    """Return all output until the pipe is closed; None: it was not closed in time."""
    output = b""
    while True:
        ready, _, _ = select.select([pipe], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return None
        data = os.read(pipe, READ_BYTES)
        if not data:
            return output
        output += data


def _end(pid: int) -> None:
    """Kill the process without waiting: one that blocks in the file system cannot be ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
