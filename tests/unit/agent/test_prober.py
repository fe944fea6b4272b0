"""The prober: whatever a look does, the others go on, and so does the agent."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from nodeheal.agent.checks.answer import Answer
from nodeheal.agent.checks.check import Check, Look, Place, Problem, State, always
from nodeheal.agent.checks.prober import Prober
from nodeheal.agent.checks.tools import run_tool
from nodeheal.contract.evidence.finding import Finding
from nodeheal.contract.vocabulary import Family
from tests.unit.agent.fakes import CONFIG, PATIENCE_SECONDS, eventually

FULL = Finding(Family.host, "disk_full", "/", "no room", subcode=None, pid=7)
FINE = Look(summary="fine")


def a_check(look: Callable[[Place, State], Look], name: str = "one", **changes: object) -> Check:
    check = Check(name, "a test", interval_seconds=60.0, deadline_seconds=5.0, why_not=always, look=look)
    return replace(check, **changes)  # type: ignore[arg-type]


def sleeps(*_: object) -> Look:
    time.sleep(60)
    return FINE


Ask = Callable[..., list[Answer]]


@pytest.fixture
def prober_of() -> Iterator[Callable[..., Prober]]:
    begun: list[Prober] = []

    def begin(*checks: Check) -> Prober:
        begun.append(Prober(checks, Place(CONFIG, run_tool)))
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
        state={"before": [1, "two"]},
        gauges={"used_percent": 99.5},
        happened=(Problem(FULL),),
        unclear="half of it",
        summary="s",
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
    code = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"

    def runs(place: Place, _: State) -> Look:
        place.run([sys.executable, "-c", code], 60.0)
        return FINE

    prober = prober_of(a_check(runs, deadline_seconds=2.0))
    prober.ask("one", {})

    assert wait_for(prober) == [Answer("one", hung=True)]
    tool = int((tmp_path / "pid").read_text())
    eventually(lambda: not psutil.pid_exists(tool) or psutil.Process(tool).status() == psutil.STATUS_ZOMBIE)


@pytest.mark.parametrize("dies", [lambda *_: os.kill(os.getpid(), signal.SIGKILL), lambda *_: 1 / 0])
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

    prober = Prober([a_check(marks, deadline_seconds=60.0)], Place(CONFIG, run_tool))
    prober.ask("one", {})
    eventually(lambda: list(tmp_path.iterdir()))
    look = int(next(tmp_path.iterdir()).name)

    prober.close()

    eventually(lambda: not psutil.pid_exists(look))


def test_a_prober_that_is_gone_is_noticed(prober_of: Callable[..., Prober]) -> None:
    prober = prober_of(a_check(lambda *_: FINE))
    os.kill(prober._pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_SECONDS

    with pytest.raises(EOFError, match="prober has ended"):
        while time.monotonic() < deadline:
            list(prober.answers())

    prober.ask("one", {})
