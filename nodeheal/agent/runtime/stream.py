"""Runs a tool whose output has no bound, and hands it on as it is printed."""

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import IO

from nodeheal.agent.runtime.probe import KILL_GRACE_SECONDS, NOT_INSTALLED, killed_with

_READ_BYTES = 64 * 1024
_ERROR_BYTES = 4_096


class NotRun(Exception):
    """The tool could not be started, hung, or failed; what it has printed is not all. `errors`: its error output."""

    def __init__(self, why: str, errors: str = "") -> None:
        super().__init__(why)
        self.errors = errors


def stream(command: Sequence[str], seconds: float) -> Iterator[bytes]:
    """Yield the tool's output, a part at a time. It ends within these seconds, and when nobody reads on. Raises NotRun,
    after the last part as well.
    """
    until = time.monotonic() + seconds
    with tempfile.TemporaryFile() as errors:
        process = _started(command, errors)
        assert process.stdout is not None
        try:
            with process.stdout:
                yield from _parts(process.stdout.fileno(), until)
            process.wait(max(0.0, until - time.monotonic()))
        except (TimeoutError, subprocess.TimeoutExpired):
            raise NotRun(f"no answer within {seconds:g} s", _start_of(errors)) from None
        finally:
            _end(process)
        if process.returncode:
            raise NotRun(f"it ended with {process.returncode}", _start_of(errors))


def _started(command: Sequence[str], errors: IO[bytes]) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            preexec_fn=killed_with(os.getpid()),
        )
    except FileNotFoundError:
        raise NotRun(NOT_INSTALLED) from None
    except OSError as error:
        raise NotRun(str(error.strerror)) from None


def _parts(descriptor: int, until: float) -> Iterator[bytes]:
    news = select.poll()
    news.register(descriptor, select.POLLIN)
    while news.poll(max(0.0, until - time.monotonic()) * 1000):
        part = os.read(descriptor, _READ_BYTES)
        if not part:
            return
        yield part
    raise TimeoutError


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_GRACE_SECONDS)


def _start_of(errors: IO[bytes]) -> str:
    errors.seek(0)
    return errors.read(_ERROR_BYTES).decode("utf-8", "replace").strip()
