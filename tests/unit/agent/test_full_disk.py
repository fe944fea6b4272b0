"""The agent on a disk that is full: a small file system of its own, which only root can mount."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.agent_fakes import PATIENCE_SECONDS, FakeEventBridge, NodeFolder, eventually, kernel_line

SIZE_BYTES = 512 * 1024
BEFORE, AFTER = range(0x10), range(0x10, 0x40)  # the second lot is far more than what is left of a page


@dataclass
class SmallDisk:
    """A file system with room for the spool and little else."""

    folder: Path

    @property
    def ballast(self) -> Path:
        """What fills it."""
        return self.folder / "ballast"

    def fill(self) -> None:
        """To the last page."""
        with self.ballast.open("wb", buffering=0) as file:
            for size in (64 * 1024, 4096, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    continue


@pytest.fixture
def disk(node: NodeFolder) -> Iterator[SmallDisk]:
    node.state_dir.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "none", str(node.state_dir)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        pytest.skip("no mount here")
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.strip()}")
    yield SmallDisk(node.state_dir)
    subprocess.run(["umount", "--lazy", str(node.state_dir)], timeout=60, check=True)


@dataclass
class Agent:
    """A real one, and what it says."""

    node: NodeFolder
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def words(self) -> str:
        """All that it has said so far."""
        return (self.node.directory / "said").read_text()

    def start(self) -> None:
        command = [sys.executable, "-m", "nodeheal.agent.main", "watch"]
        with (self.node.directory / "said").open("ab") as said:
            self.process = subprocess.Popen(command, env={**os.environ, **self.node.environment()}, stderr=said)

    def ends(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_SECONDS)


@pytest.fixture
def agent(node: NodeFolder) -> Iterator[Agent]:
    made = Agent(node)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.ends(signal.SIGKILL)


def faults(gpus: range) -> str:
    """One of each GPU."""
    return "".join(kernel_line(f"NVRM: Xid (PCI:0000:{gpu:02x}:00): 79, pid=1, name=x, lost") for gpu in gpus)


def told(bus: FakeEventBridge) -> set[str]:
    return {detail["component"] for detail in bus.details()}


def components(*gpus: range) -> set[str]:
    return {f"0000:{gpu:02x}:00.0" for some in gpus for gpu in some}


def cut_off_with_a_full_disk(node: NodeFolder, agent: Agent, disk: SmallDisk, bus: FakeEventBridge) -> None:
    """Some faults are on the disk, the others have found it full, and the bus has none."""
    agent.start()
    eventually(lambda: bus.details("Node Booted"))
    bus.stop()
    node.logs(faults(BEFORE))
    eventually(lambda: "the bus is out of reach" in agent.words)
    disk.fill()
    node.logs(faults(AFTER))
    eventually(lambda: "the spool cannot be written" in agent.words)


def test_an_agent_whose_disk_is_full_goes_on_and_says_so_once(
    node: NodeFolder, agent: Agent, disk: SmallDisk, bus: FakeEventBridge
) -> None:
    cut_off_with_a_full_disk(node, agent, disk, bus)
    node.logs(faults(range(0x40, 0x50)))

    bus.start()

    eventually(lambda: told(bus) >= components(BEFORE, AFTER, range(0x40, 0x50)))
    assert agent.words.count("the spool cannot be written") == 1
    assert agent.ends(signal.SIGTERM) == 0


@pytest.mark.parametrize("has_room", [False, True], ids=["still full", "room again"])
def test_what_was_kept_before_the_disk_was_full_survives_a_kill_and_the_log_tells_the_rest(
    node: NodeFolder, agent: Agent, disk: SmallDisk, bus: FakeEventBridge, has_room: bool
) -> None:
    cut_off_with_a_full_disk(node, agent, disk, bus)
    agent.ends(signal.SIGKILL)
    if has_room:
        disk.ballast.unlink()

    agent.start()
    bus.start()

    eventually(lambda: told(bus) == components(BEFORE, AFTER))
    ids = [detail["event_id"] for detail in bus.details()]
    assert len(set(ids)) == len(components(BEFORE, AFTER))  # told again or not, it is the same event
