"""Runs checks in processes of their own, each with a deadline. Hardware that hangs a check hangs only its process."""

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from nodeheal.agent.checks.check import CheckContext, NodeCheck, State
from nodeheal.agent.checks.check_ipc import READ_BYTES, Lines, ProcessAnswer, answer_of
from nodeheal.agent.checks.check_process import EXIT_REPORTED, run_check
from nodeheal.agent.runtime.forking import forked

KILL_GRACE_SECONDS = 1.0
END_TICK_SECONDS = 0.01  # a process that has closed its pipe is about to end
ANSWER_BYTES = 256 * 1024
REST_TICK_SECONDS = 0.05  # seconds until the next try to fork while another thread works
# Threads work for moments, or wait for the network when nothing answers. In that case they block in the kernel and hold
# no lock that a check needs, so forking anyway is safe after this time.
REST_PATIENCE_SECONDS = 20.0
AWAY_SECONDS = 2.0  # seconds; an agent delayed for longer has waited for its own disk, so no check is to blame
CLOSE_SECONDS, CLOSE_TICK_SECONDS = 1.0, 0.01


@dataclass
class _Child:
    """A check process that is running."""

    check: NodeCheck
    pid: int
    pipe: int
    ends_at: float
    lines: Lines = field(default_factory=Lines)
    is_silent: bool = False  # its pipe is closed
    told_to_end: bool = False
    heard: bool = False


@dataclass(frozen=True)
class _Asked:
    """A check that starts as soon as no other thread works, at the latest at `until`."""

    check: NodeCheck
    state: State
    until: float


class CheckRunner:
    """The processes of all checks. `descriptor` becomes readable when one has an answer. For use by one thread."""

    def __init__(self, checks: Sequence[NodeCheck], place: CheckContext) -> None:
        self.terms = tuple(check.terms for check in checks)
        self._checks, self._place = {check.name: check for check in checks}, place
        self._asked: list[_Asked] = []
        self._children: dict[int, _Child] = {}  # by pid
        self._pipes: dict[int, _Child] = {}
        self._news = select.epoll()
        # Nobody writes to it; while we hold it open, the check processes know that the agent runs.
        self._lifeline = os.pipe()
        self._told: list[ProcessAnswer] = []
        self._seen_at = time.monotonic()

    @property
    def descriptor(self) -> int:
        """The descriptor to select on for answers."""
        return self._news.fileno()

    def due_in(self) -> float:
        """Seconds until this runner needs a call even without an answer."""
        if any(child.is_silent and not child.told_to_end for child in self._children.values()):
            return END_TICK_SECONDS
        if self._asked:
            return REST_TICK_SECONDS
        ends_at = min((child.ends_at for child in self._children.values()), default=float("inf"))
        return max(0.0, ends_at - time.monotonic())

    def ask(self, name: str, state: State) -> None:
        """Request a run; its answer comes later."""
        self._asked.append(_Asked(self._checks[name], state, time.monotonic() + REST_PATIENCE_SECONDS))

    def answers(self) -> Iterator[ProcessAnswer]:
        """Return the answers since the last call. An answer that has arrived is read before a deadline is judged."""
        now = time.monotonic()
        self._extend_deadlines(now - self._seen_at)
        self._seen_at = now
        for descriptor, _ in self._news.poll(0):
            self._read_results(self._pipes[descriptor], now)
        self._reap_children(now)
        self._watch_deadlines(now)
        self._asked = [asked for asked in self._asked if not self._has_begun(asked, now)]
        answers, self._told = self._told, []
        return iter(answers)

    def close(self) -> None:
        """End all check processes. One that does not end in time is killed; one that cannot be killed is left
        behind.
        """
        for number in (signal.SIGTERM, signal.SIGKILL):
            for child in self._children.values():
                _signal(child, number)
            self._wait_for_ends()
        for descriptor in (*self._pipes, *self._lifeline):
            os.close(descriptor)
        self._news.close()

    def _extend_deadlines(self, seconds: float) -> None:
        """Extend the deadlines by the time that the agent was blocked: answers were waiting in full pipes."""
        if seconds >= AWAY_SECONDS:
            for child in self._children.values():
                child.ends_at += seconds

    def _has_begun(self, asked: _Asked, now: float) -> bool:
        """Whether the check was started, or already has another answer. It does not start while another thread
        works.
        """
        if any(child.check is asked.check for child in self._children.values()):
            # Nobody can end a process that blocks in the driver: one of each check is enough.
            self._told.append(ProcessAnswer(asked.check.name, hung=True))
            return True
        try:
            return self._begin(asked, now)
        except OSError as error:  # no process, memory or descriptor left
            self._told.append(
                ProcessAnswer(asked.check.name, broke=f"the check process cannot be started: {error.strerror}")
            )
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
        ends_at = time.monotonic() + asked.check.deadline_seconds  # others may have started since `now`
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
                self._give_up(child, "the check sent a line that is not an answer")
                continue
            child.heard = True
            self._told.append(answer)
        if len(child.lines.rest) > ANSWER_BYTES and not child.told_to_end:
            self._give_up(child, f"the check sent more than {ANSWER_BYTES} bytes at once")

    def _give_up(self, child: _Child, why: str) -> None:
        self._told.append(ProcessAnswer(child.check.name, broke=why))
        child.told_to_end, child.ends_at = True, 0.0

    def _forget(self, child: _Child) -> None:
        if not child.is_silent:
            self._news.unregister(child.pipe)
            os.close(child.pipe)
            del self._pipes[child.pipe]
            child.is_silent = True

    def _reap_children(self, now: float) -> None:
        """Collect processes that have ended, without waiting. The driver can block a process that has closed its pipe,
        and a process that a check left behind can hold the pipe of one that has ended.
        """
        for child in list(self._children.values()):
            if child.is_silent or child.told_to_end or now >= child.ends_at:
                pid, status = os.waitpid(child.pid, os.WNOHANG)
                if pid:
                    self._reap(child, os.waitstatus_to_exitcode(status))

    def _reap(self, child: _Child, code: int) -> None:
        """Handle the end of a process: normal, unless it sent no answer or was a stream."""
        self._forget(child)
        del self._children[child.pid]
        is_well = code == EXIT_REPORTED or (code == 0 and child.heard and not child.check.stream)
        if not child.told_to_end and not is_well:
            self._told.append(
                ProcessAnswer(child.check.name, broke=f"the check process ended with {code} and sent no answer")
            )

    def _watch_deadlines(self, now: float) -> None:
        for child in self._children.values():
            if now < child.ends_at:
                continue
            if not child.told_to_end:
                self._told.append(ProcessAnswer(child.check.name, hung=True))
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


def _answer(line: bytes, check: NodeCheck) -> ProcessAnswer | None:
    """Parse the line; None where it is not an answer of this check."""
    try:
        answer = answer_of(line)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return answer if answer.name == check.name else None
