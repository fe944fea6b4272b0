"""Runs an operator's own check: bounded in time and output, never as root, and with no process left behind.

This process adopts what the check leaves behind, also in a session of its own (PR_SET_CHILD_SUBREAPER), and kills it.

Its output comes through a pipe and not a file, so that a check of a full disk works. The pipe cannot block us: we wait
for the end of the process or the deadline, not for the end of the pipe.
"""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path

from nodeheal.agent.checks.check import CheckBroken
from nodeheal.agent.runtime.file_owner import ROOT, user_of
from nodeheal.agent.runtime.probe import KILL_GRACE_SECONDS, killed_with
from nodeheal.agent.runtime.safe_files import why_unsafe

OUTPUT_BYTES = 64 * 1024  # of stdout; more is an error
ERROR_BYTES = 4096  # of stderr; the rest is discarded
WORDS_CHARACTERS = 120
TICK_SECONDS = 0.05  # seconds between polls for its end
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
# prctl(2): set-user-id programs give it no more rights, and the agent's capability is not inherited.
_LIMITED = ((38, 1), (47, 4))  # PR_SET_NO_NEW_PRIVS; PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL
_PR_SET_CHILD_SUBREAPER = 36
FIRST_LINE_BYTES = 256  # what the kernel reads of it: BINPRM_BUF_SIZE
_MAY_BE_RUN = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH
_READ_BYTES = 64 * 1024


@dataclass
class _Pipe:
    """One of its two output pipes."""

    descriptor: int
    limit: int
    data: bytearray = field(default_factory=bytearray)

    @property
    def is_too_much(self) -> bool:
        """Whether more than the limit has been written."""
        return len(self.data) > self.limit

    def read(self) -> bool:
        """Read what is available. False: the pipe is at its end."""
        data = os.read(self.descriptor, _READ_BYTES)
        self.data += data[: self.limit + 1 - len(self.data)]
        return bool(data)


def run_own(file: Path, state_dir: Path, seconds: float) -> bytes:
    """Run the file and return its output. Raises CheckBroken: it may not run, or it failed.

    Where this process is root, the file runs as the owner of `state_dir`, who is the agent's user.
    """
    user = _user_for(file, state_dir)
    others = set(_children())
    _adopt_orphans(True)
    process = _started(file, None if os.geteuid() != ROOT else user)
    assert process.stdout and process.stderr
    out, errors = _Pipe(process.stdout.fileno(), OUTPUT_BYTES), _Pipe(process.stderr.fileno(), ERROR_BYTES)
    with process.stdout, process.stderr:
        try:
            has_ended = _read_until_its_end(process.pid, out, errors, time.monotonic() + seconds)
        finally:
            _end(process, others)
            _adopt_orphans(False)
        _drain(out, errors)
    if out.is_too_much:
        raise CheckBroken(f"it prints more than {OUTPUT_BYTES} bytes")
    if not has_ended:
        raise CheckBroken(f"no answer within {seconds:g} s")
    if process.returncode != 0:
        words = bytes(errors.data).decode("utf-8", "replace").strip().partition("\n")[0][:WORDS_CHARACTERS]
        raise CheckBroken(f"it ended with {process.returncode}" + f" and said {words!r}" * bool(words))
    return bytes(out.data)


def _user_for(file: Path, state_dir: Path) -> tuple[int, int]:
    """Return the user and group to run the file as. Raises CheckBroken where it may not run."""
    try:
        user, group = user_of(state_dir)
        why = why_unsafe(file, {ROOT, user})
        if not why and not file.stat().st_mode & _MAY_BE_RUN:
            why = f"{file} is not executable"
        for program in () if why else interpreters(file):
            why = why or why_unsafe(program.resolve(), {ROOT, user})
    except OSError as error:
        hint = ": the owner of this folder is the user that it runs as" * (str(error.filename) == str(state_dir))
        why = f"{error.filename}: {error.strerror}{hint}"
    if not why and user == ROOT:
        why = f"your own checks never run as root, but the owner of {state_dir}, the agent's user, is root"
    if why:
        raise CheckBroken(f"it is not run: {why}")
    return user, group


def _started(file: Path, user: tuple[int, int] | None) -> "subprocess.Popen[bytes]":
    """Start it in its own session. `user`: the user to switch to."""
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
        raise CheckBroken("it cannot be started: the interpreter in its first line does not exist") from None
    except OSError as error:
        raise CheckBroken(f"it cannot be started: {error.strerror}") from None


def _read_until_its_end(pid: int, out: _Pipe, errors: _Pipe, until: float) -> bool:
    """Read until it has ended. Returns whether that was before the deadline and within the output limit."""
    open_ones = {pipe.descriptor: pipe for pipe in (out, errors)}
    news = select.poll()
    for descriptor in open_ones:
        news.register(descriptor, select.POLLIN)
    while not out.is_too_much and time.monotonic() < until:
        for descriptor, _ in news.poll(TICK_SECONDS * 1000):
            if not open_ones[descriptor].read():
                news.unregister(descriptor)
        # Its pid stays reserved until it is waited for, so a kill by that number hits no other process.
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return True
    return False


def interpreters(file: Path) -> list[Path]:
    """Return the programs that the first line of a script starts: its interpreter, and what `env` finds. Empty: it is
    no script.
    """
    with file.open("rb") as script:
        first = script.read(FIRST_LINE_BYTES).partition(b"\n")[0]
    if not first.startswith(b"#!"):
        return []
    program, *arguments = (os.fsdecode(word) for word in first[2:].split(None, 1) or [b""])
    words = [word for word in " ".join(arguments).split() if not word.startswith("-") and "=" not in word]
    by_env = shutil.which(words[0], path=ENVIRONMENT["PATH"]) if Path(program).name == "env" and words else None
    return [Path(each) for each in (program, by_env) if each and Path(each).exists()]


def _adopt_orphans(is_on: bool) -> None:
    """Make this process the parent of whatever the check leaves behind, or no longer."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(is_on), 0, 0, 0)


def _children() -> list[int]:
    """Return the pids of this process's children."""
    own, children = str(os.getpid()), []
    for stat_file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            # pid (name) state parent: a name may have spaces and brackets
            if stat_file.read_text("utf-8", "replace").rpartition(")")[2].split()[1] == own:
                children.append(int(stat_file.parent.name))
    return children


def _end(process: "subprocess.Popen[bytes]", others: Container[int]) -> None:
    """Kill its process group, and then each orphan that it leaves, until there is none.

    `others`: the children that this process had before. A process that blocks in a driver cannot be killed and is left
    behind.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=KILL_GRACE_SECONDS)
    until = time.monotonic() + KILL_GRACE_SECONDS
    while time.monotonic() < until:
        orphans = [pid for pid in _children() if pid not in others and pid != process.pid]
        if not orphans:
            return
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError, PermissionError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
        time.sleep(TICK_SECONDS)


def _drain(*pipes: _Pipe) -> None:
    """Read what it wrote before its end. A process that cannot be killed may still hold the pipe; it is not waited
    for.
    """
    for pipe in pipes:
        os.set_blocking(pipe.descriptor, False)
        with contextlib.suppress(BlockingIOError):
            while not pipe.is_too_much and pipe.read():
                pass
