"""Tests run in a forked child, which has everything imported already and leaves nothing behind.

What a guard keeps from happening may be a loop without end: each test has its share of processor time, and one that
takes far more than it did with every guard in place has noticed as well.
"""

import json
import os
import resource
import select
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, process_time
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.mutants.switch import Switch

LEAST_SECONDS, TIMES = 5.0, 10.0  # of processor time: this much, or so many times what it took
QUIET_SECONDS = 300.0  # without a word: whoever waits for something else than the processor is hung
MEMORY = 4 * 2**30

Json = dict[str, Any]


@dataclass
class Task:
    """Some tests, with this guard out until one of them fails; None: all of them, with all guards in place."""

    out: int | None
    items: Sequence[pytest.Item]
    seconds: Sequence[float]  # what each took before
    done: Callable[["Heard"], object]
    stops_at_first: bool = True  # test that fails with the guard out


@dataclass
class Heard:
    """What became of it. `wrong`: what the last test said that was run; empty where it passed."""

    said: list[Json] = field(default_factory=list)
    last: str = ""
    wrong: str = ""


class Child:
    """One that runs now."""

    def __init__(self, task: Task, switch: Switch, scratch: Path) -> None:
        self.task, self.heard = task, Heard()
        self._rest = b""
        self._spoke = monotonic()
        self.reads, writes = os.pipe()
        self._pid = os.fork()
        self._scratch = scratch / str(self._pid or os.getpid())
        if self._pid == 0:
            os.close(self.reads)
            _be_the_child(task, switch, writes, self._scratch)
        os.close(writes)

    def listen(self) -> bool:
        """Take what it says; whether it goes on."""
        said = os.read(self.reads, 1 << 20)
        self._spoke = monotonic()
        *lines, self._rest = (self._rest + said).split(b"\n")
        for line in lines:
            self._take(json.loads(line))
        if not said:
            self._end()
        return bool(said)

    def look(self) -> None:
        """End it where it has been quiet for too long."""
        if monotonic() - self._spoke > QUIET_SECONDS:
            os.killpg(self._pid, signal.SIGKILL)

    def _take(self, said: Json) -> None:
        self.heard.last, self.heard.wrong = said["test"], said.get("wrong", "")
        if "wrong" in said:
            self.heard.said.append(said)

    def _end(self) -> None:
        _, status = os.waitpid(self._pid, 0)
        os.close(self.reads)
        shutil.rmtree(self._scratch, ignore_errors=True)
        if os.WIFSIGNALED(status):
            by = os.WTERMSIG(status)
            self.heard.wrong = "it does not end" if by in (signal.SIGPROF, signal.SIGKILL) else f"signal {by}"
        elif os.WEXITSTATUS(status):
            raise RuntimeError(f"a child broke off in {self.heard.last or 'its beginning'}")


def run_all(tasks: Iterator[Task], switch: Switch, scratch: Path, processes: int) -> None:
    """Each task in a child of its own, so many at a time; `done` hears of each as it ends."""
    alive: dict[int, Child] = {}
    while True:
        while len(alive) < processes and (task := next(tasks, None)) is not None:
            child = Child(task, switch, scratch)
            alive[child.reads] = child
        if not alive:
            return
        for reads in select.select(list(alive), [], [], 1.0)[0]:
            if not alive[reads].listen():
                ended = alive.pop(reads)
                ended.task.done(ended.heard)
        for child in alive.values():
            child.look()


def _be_the_child(task: Task, switch: Switch, writes: int, scratch: Path) -> None:
    """It never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        scratch.mkdir(parents=True)
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(scratch)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        with os.fdopen(writes, "w", encoding="utf-8") as to:
            _run(task, switch, to)
        code = 0
    finally:
        os._exit(code)


def _run(task: Task, switch: Switch, to: Any) -> None:
    switch.take_out(task.out)
    if not task.stops_at_first:
        signal.signal(signal.SIGPROF, _fail_the_test)
    for item, usual in zip(task.items, task.seconds, strict=True):
        _say(to, test=item.nodeid)
        signal.setitimer(signal.ITIMER_PROF, max(LEAST_SECONDS, TIMES * usual))
        if task.out is None:  # what one test has left to be remembered matters to the next one as well
            switch.take_out(None)
        switch.mattered.clear()
        before = process_time()
        reports = runtestprotocol(item, log=False, nextitem=None)
        took = process_time() - before
        failed = next((report for report in reports if report.failed), None)
        wrong, is_skipped = _in_a_line(failed) if failed else "", any(report.skipped for report in reports)
        mattered = [] if is_skipped else sorted(switch.mattered)
        _say(to, test=item.nodeid, wrong=wrong, seconds=took, mattered=mattered if task.out is None else [])
        if wrong and task.out is not None and task.stops_at_first:
            return


def _fail_the_test(*_: object) -> None:
    pytest.fail("it does not end")


def _say(to: Any, **said: Any) -> None:
    to.write(json.dumps(said) + "\n")
    to.flush()


def _in_a_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    said = str(crash.message if crash is not None else report.longrepr)
    return " ".join(said.split())[:200] or report.when or "it failed"
