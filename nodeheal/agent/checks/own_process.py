"""Runs a check of the operator's own, in a process group of its own: bounded in time and in output, and never as root.

What it prints comes through a pipe and not through a file, so that a check of a full disk works. Nothing holds us by
the pipe: nobody waits for its end, but for that of the process, or for the deadline.
"""

import contextlib
import os
import select
import signal
import stat
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from nodeheal.agent.checks.own import Broken
from nodeheal.agent.file_owner import ROOT, user_of
from nodeheal.agent.probe import KILL_GRACE_SECONDS, killed_with
from nodeheal.agent.safe_files import why_unsafe

OUTPUT_BYTES = 64 * 1024  # of what it prints; more is no answer
ERROR_BYTES = 4096  # of what it complains about; the rest is thrown away
WORDS_CHARACTERS = 120
TICK_SECONDS = 0.05  # how soon its end is noticed
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
# prctl(2): no set-user-id program gives it more than it has, and the agent's own capability is not handed on.
_LIMITED = ((38, 1), (47, 4))  # PR_SET_NO_NEW_PRIVS; PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL
_MAY_BE_RUN = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH
_READ_BYTES = 64 * 1024


@dataclass
class _Pipe:
    """One of the two that it writes to."""

    descriptor: int
    limit: int
    data: bytearray = field(default_factory=bytearray)

    @property
    def is_too_much(self) -> bool:
        """Whether more has come than is wanted."""
        return len(self.data) > self.limit

    def read(self) -> bool:
        """Take what is there; False: its end has come."""
        data = os.read(self.descriptor, _READ_BYTES)
        self.data += data[: self.limit + 1 - len(self.data)]
        return bool(data)


def run_own(file: Path, state_dir: Path, seconds: float) -> bytes:
    """What the file prints. Raises Broken: it may not be run, or did not end well.

    Where this process is root, the file runs as the owner of `state_dir`, who is the agent's user.
    """
    user = _user_for(file, state_dir)
    process = _started(file, None if os.geteuid() != ROOT else user)
    assert process.stdout and process.stderr
    out, errors = _Pipe(process.stdout.fileno(), OUTPUT_BYTES), _Pipe(process.stderr.fileno(), ERROR_BYTES)
    with process.stdout, process.stderr:
        try:
            has_ended = _read_until_its_end(process.pid, out, errors, time.monotonic() + seconds)
        finally:
            _end(process)
        _drain(out, errors)
    if out.is_too_much:
        raise Broken(f"it prints more than {OUTPUT_BYTES} bytes")
    if not has_ended:
        raise Broken(f"no answer within {seconds:g} s")
    if process.returncode != 0:
        words = bytes(errors.data).decode("utf-8", "replace").strip().partition("\n")[0][:WORDS_CHARACTERS]
        raise Broken(f"it ended with {process.returncode}" + f" and said {words!r}" * bool(words))
    return bytes(out.data)


def _user_for(file: Path, state_dir: Path) -> tuple[int, int]:
    """The user and the group that the file runs as. Raises Broken where it may not be run."""
    try:
        user, group = user_of(state_dir)
        why = why_unsafe(file, {ROOT, user})
        if not why and not file.stat().st_mode & _MAY_BE_RUN:
            why = f"{file} is not executable"
    except OSError as error:
        hint = ": the owner of this folder is the user that it runs as" * (str(error.filename) == str(state_dir))
        why = f"{error.filename}: {error.strerror}{hint}"
    if not why and user == ROOT:
        why = f"no check of your own runs as root, and {state_dir} says that root is the agent's user"
    if why:
        raise Broken(f"it is not run: {why}")
    return user, group


def _started(file: Path, user: tuple[int, int] | None) -> "subprocess.Popen[bytes]":
    """In a session of its own. `user`: who it is to be instead of this process's user."""
    try:
        return subprocess.Popen(
            [str(file)],
            cwd="/",
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            user=user[0] if user else None,
            group=user[1] if user else None,
            extra_groups=[] if user else None,
            umask=0o077,
            preexec_fn=killed_with(os.getpid(), *_LIMITED),
        )
    except FileNotFoundError:
        raise Broken("it cannot be started: what its first line names is not there") from None
    except OSError as error:
        raise Broken(f"it cannot be started: {error.strerror}") from None


def _read_until_its_end(pid: int, out: _Pipe, errors: _Pipe, until: float) -> bool:
    """Whether it has ended before the deadline, and before it has printed too much."""
    open_ones = {one.descriptor: one for one in (out, errors)}
    news = select.poll()
    for descriptor in open_ones:
        news.register(descriptor, select.POLLIN)
    while not out.is_too_much and time.monotonic() < until:
        for descriptor, _ in news.poll(TICK_SECONDS * 1000):
            if not open_ones[descriptor].read():
                news.unregister(descriptor)
        # Its number stays taken until it is waited for: what is killed by it is no other process.
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return True
    return False


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill what is left of its group. A process that waits in a driver cannot be killed, and is left behind."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=KILL_GRACE_SECONDS)


def _drain(*pipes: _Pipe) -> None:
    """Take what it has written before its end. What left its group may still hold the pipe, and is not waited for."""
    for pipe in pipes:
        os.set_blocking(pipe.descriptor, False)
        with contextlib.suppress(BlockingIOError):
            while not pipe.is_too_much and pipe.read():
                pass
