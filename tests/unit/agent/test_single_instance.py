"""Two agents on one state folder are kept apart, by nothing that outlives either."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeheal.agent.checks.check_process import _detach_from_agent
from nodeheal.agent.commands.command_line import EXIT_CANNOT_START
from nodeheal.agent.runtime.single_instance import AlreadyRunning, claim
from sandbox.toml import toml
from tests.support.agent_fakes import PATIENCE_SECONDS, FakeEventBridge, NodeFolder, eventually, xid

COMMAND = [sys.executable, "-m", "nodeheal.agent.main"]


def start(node: NodeFolder) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*COMMAND, "watch"], env={**os.environ, **node.environment()}, stderr=subprocess.PIPE, text=True
    )


def run(node: NodeFolder, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *words],
        env={**os.environ, **node.environment()},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def first(node: NodeFolder, bus: FakeEventBridge) -> Iterator["subprocess.Popen[str]"]:
    """An agent that is up, and looks."""
    node.config_file.write_text(toml({**node.config(), "checks": ["host_load"]}))
    process = start(node)
    eventually(lambda: bus.details("Node Booted"))
    yield process
    process.kill()
    process.communicate()


def test_the_second_agent_says_where_the_first_one_works_and_ends(
    node: NodeFolder, bus: FakeEventBridge, first: "subprocess.Popen[str]"
) -> None:
    second = run(node, "watch")

    assert second.returncode == EXIT_CANNOT_START
    assert f"{node.state_dir}: another agent works there, process {first.pid}" in second.stderr
    assert "Traceback" not in second.stderr
    node.logs(xid(79))
    eventually(lambda: bus.codes() == ["79"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_agent_that_has_ended_however_blocks_no_other(
    node: NodeFolder, bus: FakeEventBridge, first: "subprocess.Popen[str]", number: signal.Signals
) -> None:
    first.send_signal(number)
    first.wait(PATIENCE_SECONDS)

    second = start(node)

    node.logs(xid(79))
    eventually(lambda: bus.codes() == ["79"])
    second.kill()
    second.communicate()


@pytest.mark.parametrize(
    "words",
    [
        ["check", "memory"],
        ["doctor"],
        ["config"],
        ["run", "diag", "--level", "1", "--request-id", "r-1", "--boot-id", "boot-1", "--expires-at", "9999999999"],
    ],
    ids=lambda words: words[0],
)
def test_every_other_command_works_beside_it(
    node: NodeFolder, bus: FakeEventBridge, first: "subprocess.Popen[str]", words: list[str]
) -> None:
    ended = run(node, *words)

    assert ended.returncode in (0, 3), ended.stderr
    assert "another agent" not in ended.stdout + ended.stderr
    if words[0] == "run":
        assert bus.details("Diagnostics Finished")
    assert first.poll() is None


def test_a_look_that_goes_on_when_the_agent_is_killed_holds_nothing(tmp_path: Path) -> None:
    """As every look does: it closes what it has of the agent's, and hangs for good."""
    told, tells = os.pipe()
    agent = os.fork()
    if agent == 0:
        claim(tmp_path)
        if os.fork() == 0:
            _detach_from_agent({tells})
            os.write(tells, str(os.getpid()).encode())
            time.sleep(60)
        os.waitpid(-1, 0)
        os._exit(0)
    look = int(os.read(told, 16))
    os.kill(agent, signal.SIGKILL)
    os.waitpid(agent, 0)

    descriptor = claim(tmp_path)

    assert descriptor is not None
    os.close(descriptor)
    os.kill(look, signal.SIGKILL)


def test_a_folder_that_cannot_be_made_keeps_nobody_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")

    assert claim(tmp_path / "file" / "state") is None

    assert caplog.messages == ["the state folder cannot be locked; a second agent could run beside this one"]


def test_a_file_system_that_knows_no_locks_keeps_nobody_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(descriptor: int, what: int) -> None:
        raise OSError(22, "Invalid argument")

    opened = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(fcntl, "flock", refuses)

    assert claim(tmp_path) is None

    assert len(list(Path("/proc/self/fd").iterdir())) == opened


@pytest.mark.parametrize("locks", ["", "1: FLOCK\n", "1: POSIX  ADVISORY  WRITE 7 00:01:2 0 EOF\n", None])
def test_who_it_is_need_not_be_known(tmp_path: Path, locks: str | None) -> None:
    (tmp_path / "state").mkdir()
    if locks is not None:
        (tmp_path / "locks").write_text(locks)
    descriptor = claim(tmp_path / "state")
    assert descriptor is not None

    with pytest.raises(AlreadyRunning, match="of an unknown process"):
        claim(tmp_path / "state", tmp_path / "locks")

    os.close(descriptor)
    again = claim(tmp_path / "state")
    assert again is not None
    os.close(again)
