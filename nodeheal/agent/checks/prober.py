"""Runs looks in processes of their own, with a deadline each: what the hardware does to one hangs only that one.

The prober is a process too. It is forked before the agent has threads and has loaded what it needs to speak with AWS:
so it is small, shares its memory with the agent, and may fork safely, once for each look. It ends with the agent.
"""

import contextlib
import gc
import json
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from nodeheal.agent.checks.answer import Answer, answer_of, dumped
from nodeheal.agent.checks.check import Check, Look, Place, State

EXIT_ABSENT = 3
KILL_GRACE_SECONDS = 1.0
TICK_SECONDS = 0.25  # how late a deadline may be noticed while a look is under way
ANSWER_BYTES = 256 * 1024
READ_BYTES = 64 * 1024

logger = logging.getLogger(__name__)


class Prober:
    """The agent's end. `descriptor` becomes readable when there are answers."""

    def __init__(self, checks: Sequence[Check], place: Place) -> None:
        """Fork it. To be called before any thread is started."""
        ours, theirs = socket.socketpair()
        gc.freeze()  # what is never touched again stays shared
        self.checks = tuple(checks)
        self._pid = os.fork()
        if self._pid == 0:
            ours.close()
            _live(theirs, checks, place)
        theirs.close()
        self._socket = ours
        self._socket.setblocking(False)
        self._lines = _Lines()

    @property
    def descriptor(self) -> int:
        """Where select hears news."""
        return self._socket.fileno()

    def ask(self, name: str, state: State) -> None:
        """Ask for a look; its answer comes later. A prober that is gone gives none."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            self._socket.sendall(json.dumps([name, state]).encode() + b"\n")

    def answers(self) -> Iterator[Answer]:
        """What has come since the last call. Raises EOFError when the prober has ended."""
        try:
            while data := self._socket.recv(READ_BYTES):
                for line in self._lines.of(data):
                    yield answer_of(line)
        except BlockingIOError:
            return
        raise EOFError("the prober has ended")

    def close(self) -> None:
        """End it, and what it has under way."""
        self._socket.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


@dataclass
class _Lines:
    """Whole lines out of pieces."""

    rest: bytes = b""

    def of(self, data: bytes) -> list[bytes]:
        *whole, self.rest = (self.rest + data).split(b"\n")
        return whole


@dataclass
class _Child:
    check: Check
    pid: int
    pipe: int
    ends_at: float
    lines: _Lines = field(default_factory=_Lines)
    told_to_end: bool = False
    killed: bool = False
    heard: bool = False


def _live(agent: socket.socket, checks: Sequence[Check], place: Place) -> None:
    """The prober's life; never returns."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # of the whole service: the agent says when it is over
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _Work(agent, {check.name: check for check in checks}, place).go_on()
    finally:
        os._exit(0)


class _Work:
    def __init__(self, agent: socket.socket, checks: dict[str, Check], place: Place) -> None:
        self._agent, self._checks, self._place = agent, checks, place
        self._lines = _Lines()
        self._children: dict[int, _Child] = {}  # by the pipe that it speaks through
        self._poll = select.poll()
        self._poll.register(agent.fileno(), select.POLLIN)

    def go_on(self) -> None:
        """Until the agent is gone."""
        while True:
            for descriptor, _ in self._poll.poll(TICK_SECONDS * 1000 if self._children else None):
                if descriptor != self._agent.fileno():
                    self._hear(self._children[descriptor])
                elif not self._take_orders():
                    self._end_all()
                    return
            self._watch_deadlines(time.monotonic())

    def _take_orders(self) -> bool:
        try:
            data = self._agent.recv(READ_BYTES)
        except ConnectionResetError:
            return False
        for line in self._lines.of(data):
            name, state = json.loads(line)
            self._begin(self._checks[name], state)
        return bool(data)

    def _begin(self, check: Check, state: State) -> None:
        stuck = [child for child in self._children.values() if child.check is check]
        if stuck:  # nobody can end a process that waits in the driver: one of each kind is enough
            self._tell(Answer(check.name, hung=True))
            return
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._agent.close()
            os.close(reader)
            _look(check, self._place, state, writer)
        os.close(writer)
        self._children[reader] = _Child(check, pid, reader, time.monotonic() + check.deadline_seconds)
        self._poll.register(reader, select.POLLIN)

    def _hear(self, child: _Child) -> None:
        data = os.read(child.pipe, READ_BYTES)
        if not data:
            self._bury(child)
            return
        for line in child.lines.of(data):
            child.heard = True
            child.ends_at = time.monotonic() + child.check.deadline_seconds
            if not child.told_to_end:
                self._agent.sendall(line + b"\n")
        if len(child.lines.rest) > ANSWER_BYTES:
            child.ends_at = 0.0

    def _bury(self, child: _Child) -> None:
        """It has ended: well, unless it has said nothing, or was to go on."""
        self._poll.unregister(child.pipe)
        os.close(child.pipe)
        del self._children[child.pipe]
        _, status = os.waitpid(child.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        is_well = code == EXIT_ABSENT or (code == 0 and child.heard and not child.check.stream)
        if not child.told_to_end and not is_well:
            self._tell(Answer(child.check.name, broke=f"the look ended with {code} and no answer"))

    def _watch_deadlines(self, now: float) -> None:
        for child in self._children.values():
            if now < child.ends_at or child.killed:
                continue
            if not child.told_to_end:
                self._tell(Answer(child.check.name, hung=True))
            _signal(child, signal.SIGKILL if child.told_to_end else signal.SIGTERM)
            child.killed, child.told_to_end = child.told_to_end, True
            child.ends_at = now + KILL_GRACE_SECONDS

    def _end_all(self) -> None:
        for child in self._children.values():
            _signal(child, signal.SIGTERM)
        time.sleep(TICK_SECONDS if self._children else 0)
        for child in self._children.values():
            _signal(child, signal.SIGKILL)

    def _tell(self, answer: Answer) -> None:
        self._agent.sendall(dumped(answer) + b"\n")


def _signal(child: _Child, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid, number)


def _look(check: Check, place: Place, state: State, writer: int) -> None:
    """In a process of its own: look, say what was found, end. Never returns."""
    # An exit like any other, so that a tool that was started ends with the look.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    code = 1
    try:
        why_not = check.why_not(place)
        if why_not:
            os.write(writer, dumped(Answer(check.name, absent=why_not)) + b"\n")
            os._exit(EXIT_ABSENT)
        for look in _looks(check, place, state):
            os.write(writer, dumped(Answer(check.name, look)) + b"\n")
        code = 0
    except Exception:
        logger.exception("a check is broken", extra={"check": check.name})
    finally:
        os._exit(code)


def _looks(check: Check, place: Place, state: State) -> Iterator[Look]:
    if check.stream is not None:
        yield from check.stream(place, state)
    else:
        yield check.look(place, state)
