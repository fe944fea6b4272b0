"""The prober's life: it begins looks, hears what they say, and ends those that hang. See `prober`."""

import contextlib
import json
import logging
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nodeheal.agent.checks.answer import READ_BYTES, Answer, Lines, answer_of, dumped
from nodeheal.agent.checks.check import Check, Look, Place, State
from nodeheal.agent.checks.outbox import Outbox

EXIT_TOLD = 3  # the look has said itself why there is none
KILL_GRACE_SECONDS = 1.0
TICK_SECONDS = 0.25  # how late a deadline may be noticed while a look is under way
END_TICK_SECONDS = 0.01  # one that has closed its pipe is about to end
STREAM_PAUSE_SECONDS = 0.1  # after each look of a stream: one that never pauses must not burn a core
ANSWER_BYTES = 256 * 1024

logger = logging.getLogger(__name__)


@dataclass
class _Child:
    check: Check
    pid: int
    pipe: int
    ends_at: float
    lines: Lines = field(default_factory=Lines)
    is_silent: bool = False  # its pipe is closed
    told_to_end: bool = False
    killed: bool = False
    heard: bool = False


def live(agent: socket.socket, checks: Sequence[Check], place: Place) -> None:
    """The prober's life; never returns."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # of the whole service: the agent says when it is over
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        work = _Work(agent, {check.name: check for check in checks}, place)
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the agent is gone
                work.go_on()
        finally:
            work.end_all()
    except Exception:
        logger.exception("the prober is broken")
    finally:
        os._exit(0)


class _Work:
    def __init__(self, agent: socket.socket, checks: dict[str, Check], place: Place) -> None:
        self._agent, self._checks, self._place = agent, checks, place
        self._lines = Lines()
        self._children: dict[int, _Child] = {}  # by pid
        self._pipes: dict[int, _Child] = {}
        self._outbox = Outbox(agent)
        self._poll, self._agent_alone = select.poll(), select.poll()

    def go_on(self) -> None:
        """Until the agent is gone."""
        while self._hear_all():
            pass

    def _hear_all(self) -> bool:
        """Whoever has something to say; whether the agent is there. While it takes nothing, what the looks say waits in
        their pipes, and their time stands still. Who has said something by `now` is heard before he is judged.
        """
        now, was_full, is_there = time.monotonic(), self._outbox.is_full, True
        poll = self._agent_alone if was_full else self._poll
        poll.register(self._agent, select.POLLIN if self._outbox.is_empty else select.POLLIN | select.POLLOUT)
        for descriptor, event in poll.poll(self._patience()):
            if descriptor not in self._pipes:
                self._outbox.send()
                is_there = event == select.POLLOUT or self._take_orders()
            elif not self._outbox.is_full:
                self._hear(self._pipes[descriptor])
        if was_full or self._outbox.is_full:
            for child in self._children.values():
                child.ends_at += time.monotonic() - now
        else:
            self._bury_dead(now)
            self._watch_deadlines(now)
        return is_there

    def _patience(self) -> float | None:
        """Milliseconds until something must be looked after."""
        if any(child.is_silent and not child.told_to_end for child in self._children.values()):
            return END_TICK_SECONDS * 1000
        return TICK_SECONDS * 1000 if self._children else None

    def _take_orders(self) -> bool:
        data = self._agent.recv(READ_BYTES)
        for line in self._lines.of(data):
            name, state = json.loads(line)
            try:
                self._begin(self._checks[name], state)
            except OSError as error:  # no process, memory or descriptor left
                self._tell(Answer(name, broke=f"the look cannot be begun: {error.strerror}"))
        return bool(data)

    def _begin(self, check: Check, state: State) -> None:
        stuck = [child for child in self._children.values() if child.check is check]
        if stuck:  # nobody can end a process that waits in the driver: one of each kind is enough
            self._tell(Answer(check.name, hung=True))
            return
        reader, writer = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(reader)
            os.close(writer)
            raise
        if pid == 0:
            self._agent.close()
            os.close(reader)
            _look(check, self._place, state, writer)
        os.close(writer)
        self._children[pid] = self._pipes[reader] = _Child(
            check, pid, reader, time.monotonic() + check.deadline_seconds
        )
        self._poll.register(reader, select.POLLIN)

    def _hear(self, child: _Child) -> None:
        data = os.read(child.pipe, READ_BYTES)
        if not data:
            self._let_go(child)
        for line in child.lines.of(data):
            child.ends_at = time.monotonic() + child.check.deadline_seconds
            if child.told_to_end:
                continue
            if not _is_answer(line, child.check):
                self._give_up(child, "the look has said what is no answer")
                continue
            child.heard = True
            self._outbox.put(line)
        if len(child.lines.rest) > ANSWER_BYTES and not child.told_to_end:
            self._give_up(child, f"the look has said more than {ANSWER_BYTES} bytes at once")

    def _give_up(self, child: _Child, why: str) -> None:
        self._tell(Answer(child.check.name, broke=why))
        child.told_to_end, child.ends_at = True, 0.0

    def _let_go(self, child: _Child) -> None:
        if not child.is_silent:
            self._poll.unregister(child.pipe)
            os.close(child.pipe)
            del self._pipes[child.pipe]
            child.is_silent = True

    def _bury_dead(self, now: float) -> None:
        """Those that have ended. It is never waited for: the driver can hold a process that has closed its pipe, and
        what a look has left behind can hold the pipe of one that has ended.
        """
        for child in list(self._children.values()):
            if child.is_silent or child.told_to_end or now >= child.ends_at:
                pid, status = os.waitpid(child.pid, os.WNOHANG)
                if pid:
                    self._bury(child, os.waitstatus_to_exitcode(status))

    def _bury(self, child: _Child, code: int) -> None:
        """It has ended: well, unless it has said nothing, or was to go on."""
        self._let_go(child)
        del self._children[child.pid]
        is_well = code == EXIT_TOLD or (code == 0 and child.heard and not child.check.stream)
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

    def end_all(self) -> None:
        """Whatever is under way."""
        for child in self._children.values():
            _signal(child, signal.SIGTERM)
        time.sleep(TICK_SECONDS if self._children else 0)
        for child in self._children.values():
            _signal(child, signal.SIGKILL)

    def _tell(self, answer: Answer) -> None:
        self._outbox.put(dumped(answer))


def _signal(child: _Child, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid, number)


def _is_answer(line: bytes, check: Check) -> bool:
    try:
        return answer_of(line).name == check.name
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def _look(check: Check, place: Place, state: State, writer: int) -> None:
    """In a process of its own: look, say what was found, end. Never returns."""
    # An exit like any other, so that a tool that was started ends with the look.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    code = 1
    try:
        why_not = check.why_not(place)
        if why_not:
            os.write(writer, dumped(Answer(check.name, absent=why_not)) + b"\n")
            os._exit(EXIT_TOLD)
        for look in _looks(check, place, state):
            os.write(writer, dumped(Answer(check.name, look)) + b"\n")
        code = 0
    except Exception as error:
        os.write(writer, dumped(Answer(check.name, broke=_why(error))) + b"\n")
        code = EXIT_TOLD
    finally:
        os._exit(code)


def _why(error: Exception) -> str:
    """In one line: the agent says it once, and not at every look."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(at.filename).name}, line {at.lineno})"


def _looks(check: Check, place: Place, state: State) -> Iterator[Look]:
    if check.stream is None:
        yield check.look(place, state)
        return
    for look in check.stream(place, state):
        yield look
        time.sleep(STREAM_PAUSE_SECONDS)
