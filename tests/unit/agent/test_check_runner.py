"""Looks in processes of their own: whatever one does, the others go on, and so does the agent."""

import errno
import gc
import itertools
import multiprocessing
import os
import signal
import sys
import time
from collections import UserDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from nodeheal.agent.checks import check_runner as looks_module
from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, Problem, State, always
from nodeheal.agent.checks.check_ipc import READ_BYTES, ProcessAnswer, dumped
from nodeheal.agent.checks.check_result import CheckSchedule
from nodeheal.agent.checks.check_runner import AWAY_SECONDS, CheckRunner
from nodeheal.agent.checks.tools import run_tool
from nodeheal.agent.runtime.forking import at_work
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.parsers.finding import Finding
from tests.support.agent_fakes import CONFIG, eventually

FULL = Finding(Family.host, "disk_full", "/", "no room", subcode=None, pid=7)
FINE = NodeCheckResult(summary="fine")


def a_check(look: Callable[[CheckContext, State], NodeCheckResult], name: str = "one", **changes: object) -> NodeCheck:
    check = NodeCheck(name, "a test", interval_seconds=60.0, deadline_seconds=5.0, why_not=always, look=look)
    return replace(check, **changes)  # type: ignore[arg-type]


def sleeps(*_: object) -> NodeCheckResult:
    time.sleep(60)
    return FINE


Begin = Callable[..., CheckRunner]


@pytest.fixture
def looks_of() -> Iterator[Begin]:
    begun: list[CheckRunner] = []

    def begin(*checks: NodeCheck) -> CheckRunner:
        begun.append(CheckRunner(checks, CheckContext(CONFIG, run_tool)))
        return begun[-1]

    yield begin
    for looks in begun:
        looks.close()


def until(looks: CheckRunner, claim: Callable[[], object]) -> None:
    """Wait for it as the agent waits, which looks after its looks meanwhile."""
    eventually(lambda: (list(looks.answers()), claim())[1])


def has_ended(pid: int) -> bool:
    """Whether no such process runs any more; it may end while it is looked at."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_for(looks: CheckRunner, count: int = 1) -> list[ProcessAnswer]:
    heard: list[ProcessAnswer] = []

    def has_heard() -> bool:
        heard.extend(looks.answers())
        return len(heard) >= count

    eventually(has_heard)
    return heard


def test_a_look_is_told_as_it_was_made(looks_of: Begin) -> None:
    found = NodeCheckResult(
        (Problem(FULL, "df says so", 3),),
        state=UserDict({"before": [1, "two"]}),
        gauges={"used_percent": 99.5},
        happened=(Problem(FULL),),
        unclear="half of it",
        summary="s",
        doubts={"/fsx": "a stale file handle"},
    )
    looks = looks_of(a_check(lambda *_: found))

    looks.ask("one", {})

    assert wait_for(looks) == [ProcessAnswer("one", found)]


def test_a_look_is_handed_what_the_last_one_remembered(looks_of: Begin) -> None:
    looks = looks_of(a_check(lambda _, state: NodeCheckResult(state={"count": int(str(state.get("count", 0))) + 1})))

    looks.ask("one", {"count": 41})

    [answer] = wait_for(looks)
    assert answer.look == NodeCheckResult(state={"count": 42})


def test_a_look_that_hangs_is_ended_at_its_deadline_and_holds_up_no_other(looks_of: Begin) -> None:
    looks = looks_of(a_check(sleeps, "hangs", deadline_seconds=0.3), a_check(lambda *_: FINE))

    looks.ask("hangs", {})
    looks.ask("one", {})

    assert wait_for(looks, 2) == [ProcessAnswer("one", FINE), ProcessAnswer("hangs", hung=True)]


def test_one_that_cannot_be_ended_is_said_to_hang_again_and_no_second_is_begun(looks_of: Begin, tmp_path: Path) -> None:
    def is_deaf(*_: object) -> NodeCheckResult:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (tmp_path / str(os.getpid())).touch()
        return sleeps()

    looks = looks_of(a_check(is_deaf, deadline_seconds=0.3))
    looks.ask("one", {})
    wait_for(looks)

    looks.ask("one", {})

    assert wait_for(looks) == [ProcessAnswer("one", hung=True)]
    assert len(list(tmp_path.iterdir())) == 1
    until(looks, lambda: not psutil.pid_exists(int(next(tmp_path.iterdir()).name)))


def test_a_tool_that_a_hung_look_waits_for_is_ended_with_it(looks_of: Begin, tmp_path: Path) -> None:
    # A shell is there in milliseconds, also on a busy machine: it has written before the look's deadline.
    script = f"echo $$ > {tmp_path / 'pid'}; exec sleep 60"

    def runs(place: CheckContext, _: State) -> NodeCheckResult:
        place.run(["sh", "-c", script], 60.0)
        return FINE

    looks = looks_of(a_check(runs, deadline_seconds=4.0))
    looks.ask("one", {})

    assert wait_for(looks) == [ProcessAnswer("one", hung=True)]
    tool = int((tmp_path / "pid").read_text())
    eventually(lambda: has_ended(tool))


@pytest.mark.parametrize(
    "dies",
    [lambda *_: os.kill(os.getpid(), signal.SIGKILL), lambda *_: os._exit(0), lambda *_: 1 / 0],
)
def test_a_look_that_dies_says_so_and_the_next_one_works(looks_of: Begin, dies: Callable[..., NodeCheckResult]) -> None:
    looks = looks_of(a_check(dies), a_check(lambda *_: FINE, "two"))

    looks.ask("one", {})
    [answer] = wait_for(looks)
    looks.ask("two", {})

    assert (answer.look, answer.hung) == (None, False)
    assert answer.broke
    assert wait_for(looks) == [ProcessAnswer("two", FINE)]


def test_a_stream_goes_on_until_it_falls_silent(looks_of: Begin) -> None:
    def stream(*_: object) -> Iterator[NodeCheckResult]:
        yield NodeCheckResult(summary="first")
        time.sleep(0.2)
        yield NodeCheckResult(summary="second")
        time.sleep(60)

    looks = looks_of(a_check(lambda *_: FINE, stream=stream, deadline_seconds=0.5))
    looks.ask("one", {})

    answers = wait_for(looks, 3)

    assert [answer.look.summary if answer.look else "" for answer in answers] == ["first", "second", ""]
    assert answers[-1].hung


def test_each_look_of_a_stream_has_the_whole_deadline(looks_of: Begin) -> None:
    def stream(*_: object) -> Iterator[NodeCheckResult]:
        for _number in range(3):
            time.sleep(0.8)
            yield FINE
        time.sleep(60)

    looks = looks_of(a_check(fine, stream=stream, deadline_seconds=1.5))
    looks.ask("one", {})

    answers = wait_for(looks, 3)

    assert answers == [ProcessAnswer("one", FINE)] * 3


def test_a_stream_that_ends_is_broken(looks_of: Begin) -> None:
    looks = looks_of(a_check(lambda *_: FINE, stream=lambda *_: iter([FINE])))
    looks.ask("one", {})

    answers = wait_for(looks, 2)

    assert answers[0].look == FINE
    assert answers[1].broke


@pytest.mark.parametrize("stream", [None, lambda *_: iter([FINE])])
def test_what_this_node_does_not_support_is_said_and_is_no_break(
    looks_of: Begin, stream: Callable[..., Iterator[NodeCheckResult]] | None
) -> None:
    absent = a_check(lambda *_: FINE, why_not=lambda _: "no GPU here", stream=stream)
    looks = looks_of(absent, a_check(lambda *_: FINE, "two"))

    looks.ask("one", {})
    first = wait_for(looks)
    looks.ask("two", {})

    assert first == [ProcessAnswer("one", absent="no GPU here")]
    assert wait_for(looks) == [ProcessAnswer("two", FINE)]


def test_with_the_agent_ends_the_tool_that_a_look_waits_for(tmp_path: Path) -> None:
    code = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"

    def runs(place: CheckContext, _: State) -> NodeCheckResult:
        place.run([sys.executable, "-c", code], 60.0)
        return FINE

    looks = CheckRunner([a_check(runs, deadline_seconds=60.0)], CheckContext(CONFIG, run_tool))
    looks.ask("one", {})
    until(looks, lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    tool = int((tmp_path / "pid").read_text())

    looks.close()

    eventually(lambda: has_ended(tool))


def test_with_the_agent_ends_a_look_that_will_not(tmp_path: Path) -> None:
    def stays(*_: object) -> NodeCheckResult:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (tmp_path / str(os.getpid())).touch()
        return sleeps()

    looks = CheckRunner([a_check(stays, deadline_seconds=60.0)], CheckContext(CONFIG, run_tool))
    looks.ask("one", {})
    until(looks, lambda: list(tmp_path.iterdir()))
    look = int(next(tmp_path.iterdir()).name)

    looks.close()

    eventually(lambda: not psutil.pid_exists(look))


def test_a_look_ends_with_an_agent_that_was_killed_whatever_it_waits_for(looks_of: Begin, tmp_path: Path) -> None:
    def is_deaf(*_: object) -> NodeCheckResult:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        (tmp_path / "it hangs").touch()
        return sleeps()

    looks = looks_of(a_check(sleeps, "two"), a_check(is_deaf), a_check(sleeps, "three"))
    for name in ("two", "one", "three"):
        looks.ask(name, {})
    until(looks, (tmp_path / "it hangs").exists)

    os.dup2(looks._lifeline[0], looks._lifeline[1])  # as the kernel does for one who is killed

    answers = wait_for(looks, 3)
    assert {answer.broke for answer in answers} == {f"the check process ended with {-signal.SIGIO} and sent no answer"}


def test_a_look_that_closes_its_pipe_and_stays_holds_up_no_other(looks_of: Begin) -> None:
    def lingers(*_: object) -> NodeCheckResult:
        os.closerange(3, 1024)  # as a process does that ends, and that the driver then holds
        return sleeps()

    looks = looks_of(a_check(lingers, "lingers", deadline_seconds=0.5), a_check(lambda *_: FINE))
    looks.ask("lingers", {})
    until(looks, lambda: any(child.is_silent for child in looks._children.values()))
    looks.ask("one", {})

    assert wait_for(looks, 2) == [ProcessAnswer("one", FINE), ProcessAnswer("lingers", hung=True)]


def test_a_look_that_leaves_a_process_behind_has_ended(looks_of: Begin) -> None:
    left = multiprocessing.get_context("fork").Value("i", 0)

    def forks(*_: object) -> NodeCheckResult:
        pid = os.fork()
        if not pid:
            time.sleep(5)
            os._exit(0)
        left.value = pid
        return FINE

    looks = looks_of(a_check(forks, deadline_seconds=0.3))
    opened = psutil.Process().num_fds()
    looks.ask("one", {})
    first = wait_for(looks)
    time.sleep(1.0)
    heard = list(looks.answers())
    assert psutil.Process().num_fds() == opened
    looks.ask("one", {})

    assert (first, heard, wait_for(looks)) == ([ProcessAnswer("one", FINE)], [], [ProcessAnswer("one", FINE)])
    assert psutil.pid_exists(left.value)


def test_a_look_that_is_ended_has_a_moment_to_clean_up(looks_of: Begin, tmp_path: Path) -> None:
    def cleans_up(*_: object) -> NodeCheckResult:
        try:
            return sleeps()
        finally:
            time.sleep(0.5)
            (tmp_path / "clean").touch()

    looks = looks_of(a_check(cleans_up, deadline_seconds=0.5))
    looks.ask("one", {})

    assert wait_for(looks) == [ProcessAnswer("one", hung=True)]
    until(looks, lambda: (tmp_path / "clean").exists())


@pytest.mark.parametrize(
    "said",
    [
        b"\xff\x00garbage\n",
        b'{"name":"two"}\n',
        b"[]\n",
        b"7\n",
        dumped(ProcessAnswer("one", FINE)).replace(b'"problems":[]', b'"problems":7') + b"\n",
        dumped(ProcessAnswer("two", FINE)) + b"\n",  # another check's
        b"[" * 9000 + b"\n",
        b"x" * 300_000,
    ],
)
def test_a_look_that_says_what_is_no_answer_is_broken_and_does_not_hang(looks_of: Begin, said: bytes) -> None:
    def babbles(*_: object) -> NodeCheckResult:
        os.write(sys._getframe(2).f_locals["writer"], said)
        return FINE

    looks = looks_of(a_check(babbles), a_check(lambda *_: FINE, "two"))
    looks.ask("one", {})
    [answer] = wait_for(looks)
    looks.ask("two", {})

    assert (answer.name, answer.look, answer.hung) == ("one", None, False)
    assert answer.broke
    assert wait_for(looks) == [ProcessAnswer("two", FINE)]


def test_a_look_that_raises_says_why_and_where(looks_of: Begin) -> None:
    looks = looks_of(a_check(lambda *_: 1 / 0))  # type: ignore[arg-type]
    looks.ask("one", {})

    [answer] = wait_for(looks)

    assert answer.broke.startswith("ZeroDivisionError: division by zero (test_check_runner.py, line ")


def fine(*_: object) -> NodeCheckResult:
    return FINE


def test_what_the_agent_knows_of_a_check_is_what_the_check_says(looks_of: Begin) -> None:
    hang = Finding(Family.nvml, "NVML_HANG", None, "it hangs")
    whole = a_check(fine, floor=Verdict.FAILED, hang=hang, confirm=3, settle_seconds=120.0, stream=lambda *_: iter(()))

    [terms] = looks_of(whole).terms

    assert terms.floor is Verdict.FAILED
    assert terms == CheckSchedule("one", 60.0, 5.0, Verdict.FAILED, hang, 3, 120.0, goes_on=True)


def test_a_look_that_answered_while_the_agent_took_nothing_has_not_hung(looks_of: Begin) -> None:
    def floods(*_: object) -> Iterator[NodeCheckResult]:
        for number in itertools.count():
            yield NodeCheckResult(summary=f"{number} {'x' * 250_000}")

    def slowly(*_: object) -> NodeCheckResult:
        time.sleep(0.5)
        return FINE

    looks = looks_of(a_check(fine, stream=floods, deadline_seconds=1.0), a_check(slowly, "two", deadline_seconds=1.0))
    looks.ask("one", {})
    looks.ask("two", {})

    until(looks, lambda: len(looks._children) == 2)
    time.sleep(AWAY_SECONDS + 0.5)  # the agent waits for its disk

    answers = wait_for(looks, 8)
    assert [answer for answer in answers if answer.hung or answer.broke] == []
    assert [answer.look for answer in answers if answer.name == "two"] == [FINE]
    told = [int(answer.look.summary.split()[0]) for answer in answers if answer.look and answer.name == "one"]
    assert told == list(range(len(told)))


def test_a_look_waits_until_no_other_thread_works(looks_of: Begin) -> None:
    looks = looks_of(a_check(fine))

    with at_work():
        looks.ask("one", {})
        heard = [*looks.answers(), *looks.answers()]
        waits, due_in = not looks._children, looks.due_in()

    assert (heard, waits, due_in) == ([], True, looks_module.REST_TICK_SECONDS)
    assert wait_for(looks) == [ProcessAnswer("one", FINE)]


def test_a_thread_that_never_rests_does_not_keep_a_look_for_good(
    looks_of: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks_module, "REST_PATIENCE_SECONDS", 0.1)
    looks = looks_of(a_check(fine))

    with at_work():
        looks.ask("one", {})

        assert wait_for(looks) == [ProcessAnswer("one", FINE)]


def test_a_look_holds_nothing_open_that_is_the_agents(looks_of: Begin, tmp_path: Path) -> None:
    looks = looks_of(a_check(lambda *_: NodeCheckResult(summary=f"{_opened()}")), a_check(sleeps, "two"))
    with (tmp_path / "spool").open("w"):
        looks.ask("two", {})
        looks.ask("one", {})
        [answer] = wait_for(looks)

    assert answer.look == NodeCheckResult(summary=f"{['pipe', 'pipe']}")  # one to answer, one to notice the agent's end


def _opened() -> list[str]:
    """What is open beside the standard streams."""
    links = [link for link in Path("/proc/self/fd").iterdir() if int(link.name) > 2]
    return [str(link.readlink()).partition(":")[0] for link in links if link.is_symlink()]


def test_a_look_does_not_clean_up_what_the_agent_has_left(looks_of: Begin) -> None:
    class Garbage:
        """As a connection that refers to itself: to clean it up closes a descriptor."""

        cleaned_up = 0

        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            Garbage.cleaned_up += 1

    def cleans_up(*_: object) -> NodeCheckResult:
        gc.collect()
        return NodeCheckResult(summary=f"{Garbage.cleaned_up}")

    looks = looks_of(a_check(cleans_up))
    gc.disable()
    try:
        Garbage()
        looks.ask("one", {})
        [answer] = wait_for(looks)
    finally:
        gc.enable()

    assert answer.look == NodeCheckResult(summary="0")


def test_while_nothing_is_under_way_nothing_is_due(looks_of: Begin) -> None:
    looks = looks_of(a_check(fine))
    looks.ask("one", {})

    wait_for(looks)
    until(looks, lambda: not looks._children)

    assert looks.due_in() == float("inf")


def test_a_look_under_way_is_looked_after_at_its_deadline(looks_of: Begin) -> None:
    looks = looks_of(a_check(sleeps, deadline_seconds=5.0))
    looks.ask("one", {})

    list(looks.answers())

    assert 0.0 < looks.due_in() <= 5.0


def test_where_no_process_can_be_begun_the_look_is_broken(looks_of: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    looks = looks_of(a_check(fine))
    opened = psutil.Process().num_fds()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fork", full)
        for _ in range(2):
            looks.ask("one", {})
            [answer] = looks.answers()
            assert "cannot be started: Resource temporarily unavailable" in answer.broke
    assert psutil.Process().num_fds() == opened
    looks.ask("one", {})
    assert wait_for(looks) == [ProcessAnswer("one", FINE)]


def test_the_agent_is_not_held_by_one_who_never_stops(looks_of: Begin) -> None:
    def floods(*_: object) -> NodeCheckResult:
        line = dumped(ProcessAnswer("one", FINE)) + b"\n"
        while True:
            os.write(sys._getframe(2).f_locals["writer"], line * 100)

    looks = looks_of(a_check(floods))
    looks.ask("one", {})
    wait_for(looks)
    time.sleep(0.2)

    assert 0 < len(list(looks.answers())) <= READ_BYTES // len(dumped(ProcessAnswer("one", FINE)))


def test_a_look_that_babbles_without_an_end_is_broken_once_and_ended(looks_of: Begin) -> None:
    def babbles(*_: object) -> NodeCheckResult:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            os.write(sys._getframe(2).f_locals["writer"], b"x" * 60_000)

    looks = looks_of(a_check(babbles))
    looks.ask("one", {})

    answers = wait_for(looks)
    while looks._children:
        answers += looks.answers()

    assert [(answer.hung, "bytes at once" in answer.broke) for answer in answers] == [(False, True)]


def test_what_cannot_be_killed_is_left_when_the_agent_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def is_deaf(*_: object) -> NodeCheckResult:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
        (tmp_path / "it hangs").touch()
        return sleeps()

    looks = CheckRunner([a_check(is_deaf, deadline_seconds=60.0)], CheckContext(CONFIG, run_tool))
    looks.ask("one", {})
    until(looks, (tmp_path / "it hangs").exists)
    [left] = looks._children
    monkeypatch.setattr(looks_module, "CLOSE_SECONDS", 0.1)
    monkeypatch.setattr(looks_module, "_signal", lambda *_: None)  # as in the driver, which no signal reaches

    looks.close()

    assert psutil.Process(left).status() != psutil.STATUS_ZOMBIE
    os.kill(left, signal.SIGKILL)
    os.waitpid(left, 0)


def test_hundreds_of_looks_leave_no_process_and_no_descriptor_behind(looks_of: Begin) -> None:
    looks = looks_of(a_check(fine), a_check(lambda *_: 1 / 0, "two"))  # type: ignore[arg-type]

    def after(count: int) -> int:
        for _ in range(count):
            looks.ask("one", {})
            looks.ask("two", {})
            wait_for(looks, 2)
            until(looks, lambda: not looks._children)
        return psutil.Process().num_fds()

    assert after(5) == after(100)


def test_signals_that_come_all_the_time_hold_up_no_look(looks_of: Begin) -> None:
    def runs(place: CheckContext, _: State) -> NodeCheckResult:
        return NodeCheckResult(summary=place.run(["true"], 5.0).ran.error or "ran")

    heard = list[int]()
    before = signal.signal(signal.SIGALRM, lambda number, _: heard.append(number))
    looks = looks_of(a_check(runs), a_check(runs, "two"))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        answers = []
        for _ in range(20):
            for name in ("one", "two"):
                looks.ask(name, {})
            answers += wait_for(looks, 2)
            until(looks, lambda: not looks._children)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert len(heard) > 100
    assert [answer.look.summary if answer.look else answer for answer in answers] == ["ran"] * 40


def test_a_look_that_is_interrupted_from_the_terminal_goes_on(looks_of: Begin) -> None:
    def is_interrupted(*_: object) -> NodeCheckResult:
        os.kill(os.getpid(), signal.SIGINT)
        return FINE

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background ignores it anyway
    looks = looks_of(a_check(is_interrupted))
    looks.ask("one", {})
    answers = wait_for(looks)
    signal.signal(signal.SIGINT, before)

    assert answers == [ProcessAnswer("one", FINE)]
