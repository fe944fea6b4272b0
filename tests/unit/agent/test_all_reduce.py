"""The all-reduce between two nodes: two processes of the agent's own program, over a fake NCCL that really adds up."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import pytest

from nodeheal.agent.diagnostics import all_reduce, fabric
from nodeheal.agent.diagnostics.bench import Bench, Output
from nodeheal.agent.diagnostics.fabric import FabricTest
from nodeheal.agent.runtime import probe
from nodeheal.contract.vocabulary import FabricRole, Verdict
from nodeheal.parsers.all_reduce import MISSING, parse_all_reduce
from nodeheal.parsers.fi_pingpong import PingpongExit
from tests.fakes import nccl
from tests.support.agent_commands import free_port, order
from tests.support.goldens import efa_cards, golden

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="the fake library is built with gcc")
HERE = "127.0.0.1"
PATIENCE_SECONDS = 60.0  # for a program to start on a machine that runs other tests as well
DONE = PingpongExit(0)
RESULT = {"ranks": 4, "bytes": 1048576, "bus_mb_per_s": 90000.0, "wrong_gpus": []}


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nccl.build(tmp_path_factory.mktemp("nccl"))


class Two:
    """Two nodes on one machine."""

    def __init__(self, libraries: Path) -> None:
        self.libraries = libraries
        self.started: list[subprocess.Popen[str]] = []
        self.port = free_port()

    def start(self, peer: str = "", seconds: float = PATIENCE_SECONDS, **said: str) -> "subprocess.Popen[str]":
        """One node's part. `said`: to the fake."""
        command = [sys.executable, "-m", "nodeheal.agent.diagnostics.all_reduce", "--megabytes", "1"]
        command += ["--peer", peer, "--port", str(self.port), "--seconds", str(seconds)]
        environment = {**os.environ, "LD_LIBRARY_PATH": str(self.libraries), **said}
        started = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.started.append(started)
        return started


@pytest.fixture
def two(libraries: Path) -> Iterator[Two]:
    two = Two(libraries)
    yield two
    for process in two.started:
        process.kill()
        process.communicate()


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    text, errors = process.communicate(timeout=2 * PATIENCE_SECONDS)
    return process.returncode, text, errors


def reduced(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """What a part that succeeds prints."""
    code, text, errors = ended(process)
    assert (code, errors) == (0, "")
    printed: dict[str, Any] = json.loads(text)
    return printed


def test_the_gpus_of_both_nodes_add_up_to_the_sum_of_all(two: Two) -> None:
    connecting = two.start(HERE, FAKE_NCCL_GPUS="3")  # tries again until the other serves
    serving = two.start(FAKE_NCCL_GPUS="2")

    for process in (serving, connecting):
        result = reduced(process)
        assert (result["ranks"], result["wrong_gpus"]) == (5, [])
        assert result["bus_mb_per_s"] > 0


def test_a_sum_that_is_wrong_names_its_gpu(two: Two) -> None:
    serving, connecting = two.start(), two.start(HERE, FAKE_NCCL="wrong")

    assert reduced(connecting)["wrong_gpus"] == [0]
    assert reduced(serving)["wrong_gpus"] == []


def test_a_call_that_fails_is_told_in_the_librarys_own_words(two: Two) -> None:
    two.start()
    connecting = two.start(HERE, FAKE_NCCL="fails")

    assert ended(connecting) == (1, "", "ncclAllReduce: unhandled system error (2)\n")


def test_nobody_comes(two: Two) -> None:
    code, _, errors = ended(two.start(seconds=1))

    assert (code, errors) == (1, "timed out\n")
    assert parse_all_reduce("", errors, PingpongExit(code)).verdict is Verdict.UNKNOWN


def test_nobody_serves(two: Two) -> None:
    code, _, errors = ended(two.start(HERE, seconds=1))

    assert code == 1
    assert "Connection refused" in errors
    assert parse_all_reduce("", errors, PingpongExit(code)).verdict is Verdict.UNKNOWN


@pytest.mark.skipif(bool(find_library("nccl")), reason="a real NCCL is installed here")
def test_a_node_without_nccl_proves_nothing(two: Two, tmp_path: Path) -> None:
    two.libraries = tmp_path

    code, text, errors = ended(two.start())

    assert (code, text) == (MISSING, "")
    assert "libnccl.so.2" in errors


def test_a_driver_that_sees_no_gpu_is_told(two: Two) -> None:
    code, _, errors = ended(two.start(FAKE_NCCL="blind"))

    assert (code, errors) == (MISSING, "cudaGetDeviceCount: no CUDA-capable device is detected (100)\n")


def test_a_node_without_gpus_proves_nothing(two: Two) -> None:
    assert ended(two.start(FAKE_NCCL_GPUS="0")) == (MISSING, "", "CUDA sees no GPU\n")


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request", b"nhar\0\0\0\0" + bytes(200), b"nhar", b""])
def test_whoever_else_answers_on_the_port_is_no_other_node(two: Two, said: bytes) -> None:
    with socket.create_server((HERE, two.port)) as stranger:
        stranger.settimeout(PATIENCE_SECONDS)
        process = two.start(HERE)
        answered, _ = stranger.accept()
        with answered:
            with suppress(OSError):  # it may have heard enough, and hung up
                answered.sendall(said)
                answered.shutdown(socket.SHUT_WR)
            code, text, _ = ended(process)

    assert (code, text) == (1, "")


def test_the_two_files_agree_on_what_is_missing() -> None:
    assert all_reduce.MISSING == MISSING


@pytest.mark.parametrize(
    ("text", "errors", "how", "verdict", "test"),
    [
        (json.dumps(RESULT), "", DONE, Verdict.OK, ()),
        (f"NCCL version 2.27\n{json.dumps(RESULT)}\n", "", DONE, Verdict.OK, ()),
        (json.dumps({**RESULT, "wrong_gpus": [0, 5]}), "", DONE, Verdict.FAILED, ("all_reduce",)),
        (json.dumps({**RESULT, "bus_mb_per_s": 999.9}), "", DONE, Verdict.FAILED, ("all_reduce_bandwidth",)),
        (json.dumps({**RESULT, "bus_mb_per_s": "fast"}), "", DONE, Verdict.UNKNOWN, ()),
        ('{"ranks": 4, "bus_mb_per_s": NaN, "wrong_gpus": []}', "", DONE, Verdict.FAILED, ("all_reduce_bandwidth",)),
        ("", "", DONE, Verdict.UNKNOWN, ()),
        ("{", "\x00", DONE, Verdict.UNKNOWN, ()),
        ("", "ncclCommInitRank: remote error (6)", PingpongExit(1), Verdict.FAILED, ("all_reduce",)),
        ("", "", PingpongExit(-11), Verdict.UNKNOWN, ()),
        ("", "", PingpongExit(0, 30.0), Verdict.FAILED, ("timeout",)),
    ],
)
def test_what_it_prints_is_read(
    text: str, errors: str, how: PingpongExit, verdict: Verdict, test: tuple[str, ...]
) -> None:
    report = parse_all_reduce(text, errors, how, least_mb_per_s=1000)

    assert (report.verdict, report.failed_tests) == (verdict, test)
    assert report.reason


# As a part of the test of the way


class Recorded(Bench):
    """Answers for the tools, and notes what was run."""

    def answers(self, **outputs: Output) -> "Recorded":
        object.__setattr__(self, "outputs", outputs)
        object.__setattr__(self, "ran", [])
        return self

    def run(self, command: Any, seconds: float) -> Output:
        name = "all_reduce" if "nodeheal.agent.diagnostics.all_reduce" in command else command[0]
        self.ran.append((name, list(command), seconds))  # type: ignore[attr-defined]
        found: Output = self.outputs[name]  # type: ignore[attr-defined]
        return found


def says(text: str, ran: probe.Ran | None = None) -> Output:
    return Output(text, "", ran or probe.Ran(exit_code=0))


def bench(tmp_path: Path, summed: Output, pingpong: str = "fi_pingpong_client_healthy.txt", code: int = 0) -> Recorded:
    played = probe.Ran(exit_code=code)
    return Recorded(tmp_path, 1, 0).answers(
        fi_info=says(efa_cards(1)),
        fi_pingpong=says(golden(pingpong), played),
        all_reduce=summed,
    )


WAY = FabricTest(FabricRole.CONNECT, "10.0.0.7", 47592, 60.0, all_reduce=True, least_all_reduce_mb_per_s=1000)


def test_the_sum_follows_the_ping_pong_on_the_next_port_within_the_time_that_is_left(tmp_path: Path) -> None:
    made, clock = bench(tmp_path, says(json.dumps(RESULT))), iter([0.0, 10.0, 10.0, 10.0])

    report, _ = fabric.check(made, WAY, lambda: next(clock), lambda _: None)

    name, command, seconds = made.ran[-1]  # type: ignore[attr-defined]
    assert (name, seconds) == ("all_reduce", 50.0)
    assert command[command.index("--peer") + 1 :] == ["10.0.0.7", "--port", "47593", "--seconds", "50"]
    assert report.verdict is Verdict.OK
    assert "came through" in report.reason
    assert "over 4 GPUs" in report.reason
    assert set(report.measured) == {"fabric_mb_per_s", "fabric_us", "all_reduce_mb_per_s"}


def test_nccl_is_found_where_the_images_of_aws_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/mine")
    made = bench(tmp_path, says(json.dumps(RESULT)))

    fabric.check(made, WAY, lambda: 0.0, lambda _: None)

    [set_to] = [word for word in made.ran[-1][1] if word.startswith("LD_LIBRARY_PATH=")]  # type: ignore[attr-defined]
    assert set_to.startswith("LD_LIBRARY_PATH=/opt/mine:/opt/amazon/ofi-nccl/lib:")


def test_a_way_that_fails_is_not_summed_over(tmp_path: Path) -> None:
    made = bench(tmp_path, says(json.dumps(RESULT)), "fi_pingpong_broken_sick.txt", 1)

    report, _ = fabric.check(made, WAY, lambda: 0.0, lambda _: None)

    assert report.verdict is not Verdict.OK
    assert "all_reduce" not in [name for name, *_ in made.ran]  # type: ignore[attr-defined]


def test_where_nobody_asks_for_it_there_is_no_sum(tmp_path: Path) -> None:
    made = bench(tmp_path, says(json.dumps(RESULT)))

    fabric.check(made, FabricTest(FabricRole.CONNECT, "10.0.0.7", 47592, 60.0), lambda: 0.0, lambda _: None)

    assert "all_reduce" not in [name for name, *_ in made.ran]  # type: ignore[attr-defined]


def test_an_all_reduce_that_hangs_has_failed(tmp_path: Path) -> None:
    made = bench(tmp_path, says("", probe.Ran(error="no answer within 50 s")))

    report, _ = fabric.check(made, WAY, lambda: 0.0, lambda _: None)

    assert (report.verdict, report.failed_tests) == (Verdict.FAILED, ("timeout",))


def test_one_that_cannot_be_started_proves_nothing(tmp_path: Path) -> None:
    made = bench(tmp_path, says("", probe.Ran(error="Permission denied")))

    report, _ = fabric.check(made, WAY, lambda: 0.0, lambda _: None)

    assert report.verdict is Verdict.UNKNOWN
    assert "Permission denied" in report.reason


@pytest.mark.parametrize("wanted", [True, False])
def test_the_order_carries_it_as_the_document_takes_it(wanted: bool) -> None:
    asked = order(all_reduce=wanted, min_all_reduce_mb_per_second=700)

    parameters = asked.parameters()

    assert parameters["AllReduce"] == ("yes" if wanted else "no")
    assert parameters["MinAllReduceMbPerSecond"] == "700"
