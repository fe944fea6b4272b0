"""The prober's life: it begins looks, hears what they say, and ends those that hang. See `prober`."""

import contextlib
import gc
import json
import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nodeheal.agent.checks.answer import READ_BYTES, Answer, Lines, answer_of, dumped, introduced
from nodeheal.agent.checks.check import Check, Place, State
from nodeheal.agent.checks.one_look import EXIT_TOLD, look_once
from nodeheal.agent.checks.outbox import Outbox
from nodeheal.agent.config import ConfigError

KILL_GRACE_SECONDS = 1.0
TICK_SECONDS = 0.25  # how late a deadline may be noticed while a look is under way
END_TICK_SECONDS = 0.01  # one that has closed its pipe is about to end
ANSWER_BYTES = 256 * 1024

logger = logging.getLogger(__name__)


@dataclass
class _Child:
    """A look that is under way."""

    check: Check
    pid: int
    pipe: int
    ends_at: float
    lines: Lines = field(default_factory=Lines)
    is_silent: bool = False  # its pipe is closed
    told_to_end: bool = False
    heard: bool = False


Begin = Callable[[], tuple[Sequence[Check], Place]]


def live(agent: socket.socket, begin: Begin) -> None:
    """The prober's life; never returns."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # of the whole service: the agent says when it is over
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        checks, place = _begun(agent, begin)
        gc.freeze()  # what is never touched again stays shared with the looks
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


def _begun(agent: socket.socket, begin: Begin) -> tuple[Sequence[Check], Place]:
    """What is looked at, and where; the agent is told. One that cannot follow its configuration says why, and ends."""
    try:
        checks, place = begin()
    except ConfigError as error:
        agent.sendall(introduced([], refused=str(error)) + b"\n")
        os._exit(0)
    agent.sendall(introduced([check.terms for check in checks]) + b"\n")
    return checks, place


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
            look_once(check, self._place, state, writer)
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
            if now < child.ends_at:
                continue
            if not child.told_to_end:
                self._tell(Answer(child.check.name, hung=True))
            _signal(child, signal.SIGKILL if child.told_to_end else signal.SIGTERM)
            child.told_to_end, child.ends_at = True, now + KILL_GRACE_SECONDS

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
