"""The prober: whatever a look does, the others go on, and so does the agent."""

import errno
import itertools
import multiprocessing
import os
import select
import signal
import sys
import time
from collections import UserDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from nodeheal.agent.checks import looks
from nodeheal.agent.checks import prober as prober_module
from nodeheal.agent.checks.answer import Answer, dumped
from nodeheal.agent.checks.check import Check, Look, Place, Problem, State, always
from nodeheal.agent.checks.look import Terms
from nodeheal.agent.checks.one_look import STREAM_PAUSE_SECONDS
from nodeheal.agent.checks.outbox import FULL_BYTES
from nodeheal.agent.checks.prober import READS_A_TURN, Prober
from nodeheal.agent.checks.tools import run_tool
from nodeheal.agent.config import ConfigError
from nodeheal.contract.evidence.finding import Finding
from nodeheal.contract.vocabulary import Family, Verdict
from tests.unit.agent.fakes import CONFIG, PATIENCE_SECONDS, eventually

FULL = Finding(Family.host, "disk_full", "/", "no room", subcode=None, pid=7)
FINE = Look(summary="fine")


def a_check(look: Callable[[Place, State], Look], name: str = "one", **changes: object) -> Check:
    check = Check(name, "a test", interval_seconds=60.0, deadline_seconds=5.0, why_not=always, look=look)
    return replace(check, **changes)  # type: ignore[arg-type]


def prober_that_looks(checks: Sequence[Check]) -> Prober:
    prober = Prober(lambda: (checks, Place(CONFIG, run_tool)))
    assert prober.terms == tuple(check.terms for check in checks)
    return prober


def sleeps(*_: object) -> Look:
    time.sleep(60)
    return FINE


Ask = Callable[..., list[Answer]]


@pytest.fixture
def prober_of() -> Iterator[Callable[..., Prober]]:
    begun: list[Prober] = []

    def begin(*checks: Check) -> Prober:
        begun.append(prober_that_looks(checks))
        return begun[-1]

    yield begin
    for prober in begun:
        prober.close()


def wait_for(prober: Prober, count: int = 1) -> list[Answer]:
    heard: list[Answer] = []

    def has_heard() -> bool:
        heard.extend(prober.answers())
        return len(heard) >= count

    eventually(has_heard)
    return heard


def test_a_look_is_told_as_it_was_made(prober_of: Callable[..., Prober]) -> None:
    found = Look(
        (Problem(FULL, "df says so", 3),),
        state=UserDict({"before": [1, "two"]}),
        gauges={"used_percent": 99.5},
        happened=(Problem(FULL),),
        unclear="half of it",
        summary="s",
        doubts={"/fsx": "a stale file handle"},
    )
    prober = prober_of(a_check(lambda *_: found))

    prober.ask("one", {})

    assert wait_for(prober) == [Answer("one", found)]


def test_a_look_is_handed_what_the_last_one_remembered(prober_of: Callable[..., Prober]) -> None:
    prober = prober_of(a_check(lambda _, state: Look(state={"count": int(str(state.get("count", 0))) + 1})))

    prober.ask("one", {"count": 41})

    [answer] = wait_for(prober)
    assert answer.look == Look(state={"count": 42})


def test_a_look_that_hangs_is_ended_at_its_deadline_and_holds_up_no_other(prober_of: Callable[..., Prober]) -> None:
    prober = prober_of(a_check(sleeps, "hangs", deadline_seconds=0.3), a_check(lambda *_: FINE))

    prober.ask("hangs", {})
    prober.ask("one", {})

    assert wait_for(prober, 2) == [Answer("one", FINE), Answer("hangs", hung=True)]


def test_one_that_cannot_be_ended_is_said_to_hang_again_and_no_second_is_begun(
    prober_of: Callable[..., Prober], tmp_path: Path
) -> None:
    def is_deaf(*_: object) -> Look:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (tmp_path / str(os.getpid())).touch()
        return sleeps()

    prober = prober_of(a_check(is_deaf, deadline_seconds=0.3))
    prober.ask("one", {})
    wait_for(prober)

    prober.ask("one", {})

    assert wait_for(prober) == [Answer("one", hung=True)]
    assert len(list(tmp_path.iterdir())) == 1
    eventually(lambda: not psutil.pid_exists(int(next(tmp_path.iterdir()).name)))


def test_a_tool_that_a_hung_look_waits_for_is_ended_with_it(prober_of: Callable[..., Prober], tmp_path: Path) -> None:
    # A shell is there in milliseconds, also on a busy machine: it has written before the look's deadline.
    script = f"echo $$ > {tmp_path / 'pid'}; exec sleep 60"

    def runs(place: Place, _: State) -> Look:
        place.run(["sh", "-c", script], 60.0)
        return FINE

    prober = prober_of(a_check(runs, deadline_seconds=4.0))
    prober.ask("one", {})

    assert wait_for(prober) == [Answer("one", hung=True)]
    tool = int((tmp_path / "pid").read_text())
    eventually(lambda: not psutil.pid_exists(tool) or psutil.Process(tool).status() == psutil.STATUS_ZOMBIE)


@pytest.mark.parametrize(
    "dies",
    [lambda *_: os.kill(os.getpid(), signal.SIGKILL), lambda *_: os._exit(0), lambda *_: 1 / 0],
)
def test_a_look_that_dies_says_so_and_the_next_one_works(
    prober_of: Callable[..., Prober], dies: Callable[..., Look]
) -> None:
    prober = prober_of(a_check(dies), a_check(lambda *_: FINE, "two"))

    prober.ask("one", {})
    [answer] = wait_for(prober)
    prober.ask("two", {})

    assert (answer.look, answer.hung) == (None, False)
    assert answer.broke
    assert wait_for(prober) == [Answer("two", FINE)]


def test_a_stream_goes_on_until_it_falls_silent(prober_of: Callable[..., Prober]) -> None:
    def stream(*_: object) -> Iterator[Look]:
        yield Look(summary="first")
        time.sleep(0.2)
        yield Look(summary="second")
        time.sleep(60)

    prober = prober_of(a_check(lambda *_: FINE, stream=stream, deadline_seconds=0.5))
    prober.ask("one", {})

    answers = wait_for(prober, 3)

    assert [answer.look.summary if answer.look else "" for answer in answers] == ["first", "second", ""]
    assert answers[-1].hung


def test_each_look_of_a_stream_has_the_whole_deadline(prober_of: Callable[..., Prober]) -> None:
    def stream(*_: object) -> Iterator[Look]:
        for _number in range(3):
            time.sleep(0.8)
            yield FINE
        time.sleep(60)

    prober = prober_of(a_check(fine, stream=stream, deadline_seconds=1.5))
    prober.ask("one", {})

    answers = wait_for(prober, 3)

    assert answers == [Answer("one", FINE)] * 3


def test_a_stream_that_ends_is_broken(prober_of: Callable[..., Prober]) -> None:
    prober = prober_of(a_check(lambda *_: FINE, stream=lambda *_: iter([FINE])))
    prober.ask("one", {})

    answers = wait_for(prober, 2)

    assert answers[0].look == FINE
    assert answers[1].broke


@pytest.mark.parametrize("stream", [None, lambda *_: iter([FINE])])
def test_what_this_node_does_not_support_is_said_and_is_no_break(
    prober_of: Callable[..., Prober], stream: Callable[..., Iterator[Look]] | None
) -> None:
    absent = a_check(lambda *_: FINE, why_not=lambda _: "no GPU here", stream=stream)
    prober = prober_of(absent, a_check(lambda *_: FINE, "two"))

    prober.ask("one", {})
    first = wait_for(prober)
    prober.ask("two", {})

    assert first == [Answer("one", absent="no GPU here")]
    assert wait_for(prober) == [Answer("two", FINE)]


def test_the_prober_ends_with_the_agent_and_so_do_its_looks(tmp_path: Path) -> None:
    def marks(*_: object) -> Look:
        (tmp_path / str(os.getpid())).touch()
        return sleeps()

    prober = prober_that_looks([a_check(marks, deadline_seconds=60.0)])
    prober.ask("one", {})
    eventually(lambda: list(tmp_path.iterdir()))
    look = int(next(tmp_path.iterdir()).name)

    prober.close()

    eventually(lambda: not psutil.pid_exists(look))


def test_with_the_agent_ends_the_tool_that_a_look_waits_for(tmp_path: Path) -> None:
    code = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"

    def runs(place: Place, _: State) -> Look:
        place.run([sys.executable, "-c", code], 60.0)
        return FINE

    prober = prober_that_looks([a_check(runs, deadline_seconds=60.0)])
    prober.ask("one", {})
    eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    tool = int((tmp_path / "pid").read_text())

    prober.close()

    eventually(lambda: not psutil.pid_exists(tool) or psutil.Process(tool).status() == psutil.STATUS_ZOMBIE)


def test_with_the_agent_ends_a_look_that_will_not(tmp_path: Path) -> None:
    def stays(*_: object) -> Look:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (tmp_path / str(os.getpid())).touch()
        return sleeps()

    prober = prober_that_looks([a_check(stays, deadline_seconds=60.0)])
    prober.ask("one", {})
    eventually(lambda: list(tmp_path.iterdir()))
    look = int(next(tmp_path.iterdir()).name)

    prober.close()

    eventually(lambda: not psutil.pid_exists(look))


def test_a_prober_that_is_gone_is_noticed_though_one_of_its_looks_goes_on(
    prober_of: Callable[..., Prober], tmp_path: Path
) -> None:
    def marks(*_: object) -> Look:
        (tmp_path / str(os.getpid())).touch()
        return sleeps()

    prober = prober_of(a_check(marks, deadline_seconds=60.0))
    prober.ask("one", {})
    eventually(lambda: list(tmp_path.iterdir()))
    os.kill(prober._pid, signal.SIGKILL)
    deadline = time.monotonic() + 5.0

    with pytest.raises(EOFError, match="prober has ended"):
        while time.monotonic() < deadline:
            list(prober.answers())

    os.kill(int(next(tmp_path.iterdir()).name), signal.SIGKILL)


def test_a_prober_that_is_gone_is_noticed(prober_of: Callable[..., Prober]) -> None:
    prober = prober_of(a_check(lambda *_: FINE))
    os.kill(prober._pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_SECONDS

    with pytest.raises(EOFError, match="prober has ended"):
        while time.monotonic() < deadline:
            list(prober.answers())

    prober.ask("one", {})


def test_a_look_that_closes_its_pipe_and_stays_holds_up_no_other(prober_of: Callable[..., Prober]) -> None:
    def lingers(*_: object) -> Look:
        os.closerange(3, 1024)  # as a process does that ends, and that the driver then holds
        return sleeps()

    prober = prober_of(a_check(lingers, "lingers", deadline_seconds=0.5), a_check(lambda *_: FINE))
    prober.ask("lingers", {})
    time.sleep(0.2)
    prober.ask("one", {})

    assert wait_for(prober, 2) == [Answer("one", FINE), Answer("lingers", hung=True)]


def test_a_look_that_leaves_a_process_behind_has_ended(prober_of: Callable[..., Prober]) -> None:
    left = multiprocessing.get_context("fork").Value("i", 0)

    def forks(*_: object) -> Look:
        pid = os.fork()
        if not pid:
            time.sleep(5)
            os._exit(0)
        left.value = pid
        return FINE

    prober = prober_of(a_check(forks, deadline_seconds=0.3))
    opened = psutil.Process(prober._pid).num_fds()
    prober.ask("one", {})
    first = wait_for(prober)
    time.sleep(1.0)
    heard = list(prober.answers())
    assert psutil.Process(prober._pid).num_fds() == opened
    prober.ask("one", {})

    assert (first, heard, wait_for(prober)) == ([Answer("one", FINE)], [], [Answer("one", FINE)])
    assert psutil.pid_exists(left.value)


def test_a_look_that_is_ended_has_a_moment_to_clean_up(prober_of: Callable[..., Prober], tmp_path: Path) -> None:
    def cleans_up(*_: object) -> Look:
        try:
            return sleeps()
        finally:
            time.sleep(0.5)
            (tmp_path / "clean").touch()

    prober = prober_of(a_check(cleans_up, deadline_seconds=0.5))
    prober.ask("one", {})

    assert wait_for(prober) == [Answer("one", hung=True)]
    eventually(lambda: (tmp_path / "clean").exists())


@pytest.mark.parametrize(
    "said",
    [
        b"\xff\x00garbage\n",
        b'{"name":"two"}\n',
        b"[]\n",
        b"7\n",
        dumped(Answer("one", FINE)).replace(b'"problems":[]', b'"problems":7') + b"\n",
        dumped(Answer("two", FINE)) + b"\n",  # another check's
        b"[" * 9000 + b"\n",
        b"x" * 300_000,
    ],
)
def test_a_look_that_says_what_is_no_answer_is_broken_and_does_not_hang(
    prober_of: Callable[..., Prober], said: bytes
) -> None:
    def babbles(*_: object) -> Look:
        os.write(sys._getframe(2).f_locals["writer"], said)
        return FINE

    prober = prober_of(a_check(babbles), a_check(lambda *_: FINE, "two"))
    prober.ask("one", {})
    [answer] = wait_for(prober)
    prober.ask("two", {})

    assert (answer.name, answer.look, answer.hung) == ("one", None, False)
    assert answer.broke
    assert wait_for(prober) == [Answer("two", FINE)]


def test_a_look_that_babbles_without_an_end_is_broken_once_and_ended(prober_of: Callable[..., Prober]) -> None:
    def babbles(*_: object) -> Look:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            os.write(sys._getframe(2).f_locals["writer"], b"x" * 60_000)

    prober = prober_of(a_check(babbles))
    prober.ask("one", {})

    answers = wait_for(prober)
    eventually(lambda: not psutil.Process(prober._pid).children())
    answers += prober.answers()

    assert [(answer.hung, "bytes at once" in answer.broke) for answer in answers] == [(False, True)]


def test_a_look_that_raises_says_why_and_where(prober_of: Callable[..., Prober]) -> None:
    prober = prober_of(a_check(lambda *_: 1 / 0))  # type: ignore[arg-type]
    prober.ask("one", {})

    [answer] = wait_for(prober)

    assert answer.broke.startswith("ZeroDivisionError: division by zero (test_prober.py, line ")


def test_what_a_check_remembers_may_be_more_than_a_socket_holds(prober_of: Callable[..., Prober]) -> None:
    prober = prober_of(a_check(lambda _, state: Look(summary=str(len(str(state["long"]))))), a_check(fine, "two"))
    os.kill(prober._pid, signal.SIGSTOP)
    prober.ask("one", {"long": "x" * 1_000_000})
    prober.ask("two", {})
    os.kill(prober._pid, signal.SIGCONT)

    answers = wait_for(prober, 2)

    assert {answer.name: answer.look.summary for answer in answers if answer.look} == {"one": "1000000", "two": "fine"}


def fine(*_: object) -> Look:
    return FINE


def test_a_stream_that_never_pauses_leaves_the_agent_its_time(prober_of: Callable[..., Prober]) -> None:
    prober = prober_of(a_check(fine, stream=lambda *_: itertools.repeat(FINE)))
    prober.ask("one", {})
    wait_for(prober)

    time.sleep(1.0)

    assert len(list(prober.answers())) <= 1.5 / STREAM_PAUSE_SECONDS


def test_the_agent_is_not_held_by_one_who_never_stops(prober_of: Callable[..., Prober]) -> None:
    prober = prober_of()
    endless = EndlessSocket()
    prober._socket, real = endless, prober._socket  # type: ignore[assignment]

    answers = list(prober.answers())

    assert len(answers) == READS_A_TURN
    prober._socket = real


class EndlessSocket:
    def recv(self, _size: int) -> bytes:
        return dumped(Answer("one", FINE)) + b"\n"


def test_where_no_process_can_be_begun_the_look_is_broken_and_the_prober_lives(
    prober_of: Callable[..., Prober], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, fork = os.getpid(), os.fork

    def full() -> int:
        if os.getpid() == agent:
            return fork()
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", full)
    prober = prober_of(a_check(fine))
    opened = psutil.Process(prober._pid).num_fds()

    for _ in range(2):
        prober.ask("one", {})
        [answer] = wait_for(prober)
        assert "cannot be begun: Resource temporarily unavailable" in answer.broke
    assert psutil.Process(prober._pid).num_fds() == opened


def test_looks_end_with_an_agent_that_was_killed_while_one_answers(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path_factory.mktemp("said") / "broken"
    monkeypatch.setattr(looks.logger, "exception", lambda *_: broken.touch())

    def marks(*_: object) -> Look:
        (tmp_path / str(os.getpid())).touch()
        return sleeps()

    def slowly(*_: object) -> Look:
        time.sleep(0.5)
        return FINE

    prober = prober_that_looks([a_check(marks, deadline_seconds=60.0), a_check(slowly, "two")])
    prober.ask("one", {})
    prober.ask("two", {})
    eventually(lambda: list(tmp_path.iterdir()))
    look = int(next(tmp_path.iterdir()).name)
    os.kill(prober._pid, signal.SIGSTOP)
    time.sleep(0.7)
    prober._socket.close()
    os.kill(prober._pid, signal.SIGCONT)

    eventually(lambda: not psutil.pid_exists(look))
    prober.close()
    assert not broken.exists()  # an agent that is gone is no trouble of the prober's


def test_an_agent_that_was_killed_with_answers_unread_is_no_trouble_of_the_probers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks.logger, "exception", lambda *_: (tmp_path / "broken").touch())
    prober = prober_that_looks([a_check(lambda *_: FINE)])
    prober.ask("one", {})
    select.select([prober.descriptor], [], [], PATIENCE_SECONDS)

    prober.close()  # which resets the connection

    assert not (tmp_path / "broken").exists()


def test_a_prober_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prober_module, "CLOSE_SECONDS", 0.1)
    prober = prober_that_looks([a_check(fine)])
    os.kill(prober._pid, signal.SIGSTOP)

    prober.close()

    eventually(lambda: psutil.Process(prober._pid).status() == psutil.STATUS_ZOMBIE)
    os.waitpid(prober._pid, 0)


def test_hundreds_of_looks_leave_no_process_and_no_descriptor_behind(prober_of: Callable[..., Prober]) -> None:
    prober = prober_of(a_check(fine), a_check(lambda *_: 1 / 0, "two"))  # type: ignore[arg-type]
    seen = psutil.Process(prober._pid)

    def after(looks: int) -> int:
        for _ in range(looks):
            prober.ask("one", {})
            prober.ask("two", {})
            wait_for(prober, 2)
            eventually(lambda: not seen.children())
        return seen.num_fds()

    assert after(5) == after(100)


def test_a_configuration_that_cannot_be_followed_is_refused_in_the_probers_words() -> None:
    def refuses() -> tuple[list[Check], Place]:
        raise ConfigError("there is no check 'dusk'")

    prober = Prober(refuses)

    with pytest.raises(ConfigError, match="no check 'dusk'"):
        assert prober.terms
    prober.close()


def test_a_prober_that_does_not_begin_is_noticed() -> None:
    prober = Prober(lambda: ([], 1 / 0))  # type: ignore[arg-type,return-value]

    with pytest.raises(OSError, match="ended at its start"):
        assert prober.terms
    prober.close()


def test_one_that_begins_too_slowly_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prober_module, "BEGIN_SECONDS", 0.1)
    monkeypatch.setattr(prober_module, "CLOSE_SECONDS", 0.1)
    prober = Prober(lambda: time.sleep(5))  # type: ignore[arg-type,return-value]

    with pytest.raises(TimeoutError):
        assert prober.terms
    prober.close()


def test_what_the_agent_knows_of_a_check_is_what_the_check_says(prober_of: Callable[..., Prober]) -> None:
    hang = Finding(Family.nvml, "NVML_HANG", None, "it hangs")
    whole = a_check(fine, floor=Verdict.FAILED, hang=hang, confirm=3, settle_seconds=120.0, stream=lambda *_: iter(()))

    [terms] = prober_of(whole).terms

    assert terms.floor is Verdict.FAILED
    assert terms == Terms("one", 60.0, 5.0, Verdict.FAILED, hang, 3, 120.0, goes_on=True)


def test_while_the_agent_takes_nothing_a_look_that_hangs_is_still_ended(
    prober_of: Callable[..., Prober], tmp_path: Path
) -> None:
    def marks(*_: object) -> Look:
        (tmp_path / str(os.getpid())).touch()
        return sleeps()

    def is_long(*_: object) -> Look:
        return Look(summary="x" * 250_000)

    prober = prober_of(a_check(is_long), a_check(is_long, "two"), a_check(marks, "hangs", deadline_seconds=1.0))
    prober.ask("one", {})
    prober.ask("two", {})
    prober.ask("hangs", {})
    eventually(lambda: list(tmp_path.iterdir()))

    eventually(lambda: not psutil.pid_exists(int(next(tmp_path.iterdir()).name)))

    assert {answer.name: answer.hung for answer in wait_for(prober, 3)} == {"one": False, "two": False, "hangs": True}


def test_a_look_that_answered_while_the_agent_took_nothing_has_not_hung(prober_of: Callable[..., Prober]) -> None:
    def floods(*_: object) -> Iterator[Look]:
        for number in itertools.count():
            yield Look(summary=f"{number} {'x' * 250_000}")

    def slowly(*_: object) -> Look:
        time.sleep(0.5)
        return FINE

    prober = prober_of(a_check(fine, stream=floods, deadline_seconds=1.0), a_check(slowly, "two", deadline_seconds=1.0))
    prober.ask("one", {})
    prober.ask("two", {})

    time.sleep(2.5)  # the agent waits for its disk

    answers = wait_for(prober, 8)
    assert [answer for answer in answers if answer.hung or answer.broke] == []
    assert [answer.look for answer in answers if answer.name == "two"] == [FINE]
    told = [int(answer.look.summary.split()[0]) for answer in answers if answer.look and answer.name == "one"]
    assert told == list(range(len(told)))


def test_a_prober_that_nobody_asks_sleeps(prober_of: Callable[..., Prober]) -> None:
    prober = prober_of(a_check(fine))
    prober.ask("one", {})
    wait_for(prober)
    process = psutil.Process(prober._pid)
    eventually(lambda: not process.children())
    time.sleep(0.5)
    woken, worked = process.num_ctx_switches().voluntary, process.cpu_times().user

    time.sleep(1.5)

    assert process.num_ctx_switches().voluntary - woken <= 1
    assert process.cpu_times().user - worked < 0.1


def test_a_prober_whose_agent_takes_nothing_keeps_a_bounded_backlog(prober_of: Callable[..., Prober]) -> None:
    def floods(*_: object) -> Iterator[Look]:
        return itertools.repeat(Look(summary="x" * 250_000))

    prober = prober_of(*(a_check(fine, str(number), stream=floods) for number in range(4)))
    for number in range(4):
        prober.ask(str(number), {})
    time.sleep(1.0)
    process = psutil.Process(prober._pid)
    before, worked = process.memory_info().rss, sum(process.cpu_times()[:2])

    time.sleep(2.0)

    assert process.memory_info().rss - before < FULL_BYTES
    assert sum(process.cpu_times()[:2]) - worked < 0.3  # it waits: a turn every moment, and not one after the other


def test_signals_that_come_all_the_time_hold_up_no_look(prober_of: Callable[..., Prober]) -> None:
    def runs(place: Place, _: State) -> Look:
        return Look(summary=place.run(["true"], 5.0).ran.error or "ran")

    heard = list[int]()
    before = signal.signal(signal.SIGALRM, lambda number, _: heard.append(number))
    prober = prober_of(a_check(runs), a_check(runs, "two"))
    prober.ask("one", {})
    wait_for(prober)
    eventually(lambda: not psutil.Process(prober._pid).children())
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        answers = []
        for _ in range(20):
            for name in ("one", "two"):
                prober.ask(name, {})
            for number in (signal.SIGCHLD, signal.SIGALRM, signal.SIGTERM, signal.SIGSTOP, signal.SIGCONT) * 5:
                os.kill(prober._pid, number)
            answers += wait_for(prober, 2)
            eventually(lambda: not psutil.Process(prober._pid).children())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert len(heard) > 100
    assert [answer.look.summary if answer.look else answer for answer in answers] == ["ran"] * 40
