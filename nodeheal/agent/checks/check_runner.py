"""Runs looks in processes of their own, with a deadline each: what the hardware does to one hangs only that one."""

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from nodeheal.agent.checks.check import Check, Place, State
from nodeheal.agent.checks.check_ipc import READ_BYTES, Answer, Lines, answer_of
from nodeheal.agent.checks.check_process import EXIT_REPORTED, run_check
from nodeheal.agent.forking import forked

KILL_GRACE_SECONDS = 1.0
END_TICK_SECONDS = 0.01  # one that has closed its pipe is about to end
ANSWER_BYTES = 256 * 1024
REST_TICK_SECONDS = 0.05  # how soon it is tried again to begin a look while another thread works
# What a thread does is over in a moment, or waits for the network: for longer only where nothing answers. It then
# waits in the kernel, and holds nothing that a look takes.
REST_PATIENCE_SECONDS = 20.0
AWAY_SECONDS = 2.0  # an agent that comes back so late has waited for its disk: no look is to blame
CLOSE_SECONDS, CLOSE_TICK_SECONDS = 1.0, 0.01


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


@dataclass(frozen=True)
class _Asked:
    """A look that is to begin when the other threads rest, or at `until`."""

    check: Check
    state: State
    until: float


class CheckRunner:
    """The looks of all checks. `descriptor` becomes readable when one has something to say. For one thread alone."""

    def __init__(self, checks: Sequence[Check], place: Place) -> None:
        self.terms = tuple(check.terms for check in checks)
        self._checks, self._place = {check.name: check for check in checks}, place
        self._asked: list[_Asked] = []
        self._children: dict[int, _Child] = {}  # by pid
        self._pipes: dict[int, _Child] = {}
        self._news = select.epoll()
        self._lifeline = os.pipe()  # nobody writes; that we hold it tells the looks that we live
        self._told: list[Answer] = []
        self._seen_at = time.monotonic()

    @property
    def descriptor(self) -> int:
        """Where select hears news."""
        return self._news.fileno()

    def due_in(self) -> float:
        """Seconds until something must be looked after, whether or not there is news."""
        if any(child.is_silent and not child.told_to_end for child in self._children.values()):
            return END_TICK_SECONDS
        if self._asked:
            return REST_TICK_SECONDS
        ends_at = min((child.ends_at for child in self._children.values()), default=float("inf"))
        return max(0.0, ends_at - time.monotonic())

    def ask(self, name: str, state: State) -> None:
        """Ask for a look; its answer comes later."""
        self._asked.append(_Asked(self._checks[name], state, time.monotonic() + REST_PATIENCE_SECONDS))

    def answers(self) -> Iterator[Answer]:
        """What has come since the last call. Who has said something by now is heard before he is judged."""
        now = time.monotonic()
        self._extend_deadlines(now - self._seen_at)
        self._seen_at = now
        for descriptor, _ in self._news.poll(0):
            self._read_results(self._pipes[descriptor], now)
        self._reap_children(now)
        self._watch_deadlines(now)
        self._asked = [asked for asked in self._asked if not self._has_begun(asked, now)]
        told, self._told = self._told, []
        return iter(told)

    def close(self) -> None:
        """End whatever is under way. What does not end in its time is killed, and what cannot be killed is left."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for child in self._children.values():
                _signal(child, number)
            self._wait_for_ends()
        for descriptor in (*self._pipes, *self._lifeline):
            os.close(descriptor)
        self._news.close()

    def _extend_deadlines(self, seconds: float) -> None:
        """The looks' time, while the agent was away: what they say waits in their pipes, and fills them."""
        if seconds >= AWAY_SECONDS:
            for child in self._children.values():
                child.ends_at += seconds

    def _has_begun(self, asked: _Asked, now: float) -> bool:
        """Or is answered for another reason; not while another thread works."""
        if any(child.check is asked.check for child in self._children.values()):
            # Nobody can end a process that waits in the driver: one of each kind is enough.
            self._told.append(Answer(asked.check.name, hung=True))
            return True
        try:
            return self._begin(asked, now)
        except OSError as error:  # no process, memory or descriptor left
            self._told.append(Answer(asked.check.name, broke=f"the look cannot be begun: {error.strerror}"))
            return True

    def _begin(self, asked: _Asked, now: float) -> bool:
        reader, writer = os.pipe()
        pid = None
        try:
            pid = forked(anyway=now >= asked.until)
            if pid == 0:
                run_check(asked.check, self._place, asked.state, writer, self._lifeline[0])
        finally:
            os.close(writer)
            if pid is None:
                os.close(reader)
        if pid is None:
            return False
        ends_at = time.monotonic() + asked.check.deadline_seconds  # others may have been begun since `now`
        self._children[pid] = self._pipes[reader] = _Child(asked.check, pid, reader, ends_at)
        self._news.register(reader, select.EPOLLIN)
        return True

    def _read_results(self, child: _Child, now: float) -> None:
        data = os.read(child.pipe, READ_BYTES)
        if not data:
            self._forget(child)
        for line in child.lines.of(data):
            child.ends_at = now + child.check.deadline_seconds
            if child.told_to_end:
                continue
            answer = _answer(line, child.check)
            if answer is None:
                self._give_up(child, "the look has said what is no answer")
                continue
            child.heard = True
            self._told.append(answer)
        if len(child.lines.rest) > ANSWER_BYTES and not child.told_to_end:
            self._give_up(child, f"the look has said more than {ANSWER_BYTES} bytes at once")

    def _give_up(self, child: _Child, why: str) -> None:
        self._told.append(Answer(child.check.name, broke=why))
        child.told_to_end, child.ends_at = True, 0.0

    def _forget(self, child: _Child) -> None:
        if not child.is_silent:
            self._news.unregister(child.pipe)
            os.close(child.pipe)
            del self._pipes[child.pipe]
            child.is_silent = True

    def _reap_children(self, now: float) -> None:
        """Those that have ended. It is never waited for: the driver can hold a process that has closed its pipe, and
        what a look has left behind can hold the pipe of one that has ended.
        """
        for child in list(self._children.values()):
            if child.is_silent or child.told_to_end or now >= child.ends_at:
                pid, status = os.waitpid(child.pid, os.WNOHANG)
                if pid:
                    self._reap(child, os.waitstatus_to_exitcode(status))

    def _reap(self, child: _Child, code: int) -> None:
        """It has ended: well, unless it has said nothing, or was to go on."""
        self._forget(child)
        del self._children[child.pid]
        is_well = code == EXIT_REPORTED or (code == 0 and child.heard and not child.check.stream)
        if not child.told_to_end and not is_well:
            self._told.append(Answer(child.check.name, broke=f"the look ended with {code} and no answer"))

    def _watch_deadlines(self, now: float) -> None:
        for child in self._children.values():
            if now < child.ends_at:
                continue
            if not child.told_to_end:
                self._told.append(Answer(child.check.name, hung=True))
            _signal(child, signal.SIGKILL if child.told_to_end else signal.SIGTERM)
            child.told_to_end, child.ends_at = True, now + KILL_GRACE_SECONDS

    def _wait_for_ends(self) -> None:
        until = time.monotonic() + CLOSE_SECONDS
        while self._children and time.monotonic() < until:
            for child in list(self._children.values()):
                if os.waitpid(child.pid, os.WNOHANG)[0]:
                    del self._children[child.pid]
            time.sleep(CLOSE_TICK_SECONDS)


def _signal(child: _Child, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid, number)


def _answer(line: bytes, check: Check) -> Answer | None:
    """What the line says; None: it is no answer of this check's."""
    try:
        answer = answer_of(line)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return answer if answer.name == check.name else None
