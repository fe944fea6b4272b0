"""A real agent whose clock is set by a day, forward and back, and set right again."""

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

from nodeheal.agent.transport.spool import FILE_NAME
from sandbox.toml import toml
from tests.fakes.clock import FakeClock
from tests.support.agent_fakes import PATIENCE_SECONDS, FakeEventBridge, NodeFolder, eventually, xid

COMMAND = [sys.executable, "-m", "nodeheal.agent.main"]
DAY = 86_400
EVERY_SECONDS = 0.5
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
# A loop that is busy takes a whole core. The fake's own waits take a little.
BUSY = 0.3

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="the fake clock is built with gcc")


@dataclass
class Node:
    """One with an agent that is up, on a bus that refuses what is signed at a strange time."""

    folder: NodeFolder
    bus: FakeEventBridge
    clock: FakeClock
    environment: dict[str, str]

    def __post_init__(self) -> None:
        self.starts()

    def beats_off_by(self) -> list[float]:
        """How far each heartbeat was from the true time when it came in, roughly: from now."""
        now = time.time()
        return [
            abs(float(heartbeat["ExpressionAttributeValues"][":at"]["N"]) - now) for heartbeat in self.bus.table.beats
        ]

    def dates_off_by(self) -> list[float]:
        """How far the time at which each fault was seen, as the bus was told, is from now."""
        now = time.time()
        return [abs(datetime.fromisoformat(told["observed_at"]).timestamp() - now) for told in self.bus.details()]

    def waits_for_the_bus(self, code: str) -> bool:
        """In the spool, a fault."""
        with contextlib.closing(sqlite3.connect(self.folder.state_dir / FILE_NAME)) as database:
            return bool(
                database.execute("SELECT 1 FROM events WHERE detail LIKE ?", (f'%"code":"{code}"%',)).fetchall()
            )

    def starts(self) -> None:
        """Its agent does."""
        with (self.folder.directory / "said").open("ab") as said:
            self.process = subprocess.Popen([*COMMAND, "watch"], env=self.environment, stderr=said)

    def has_told(self, code: str) -> bool:
        """The bus, of this fault."""
        return code in self.bus.codes()

    def cpu_seconds(self) -> float:
        """All that it has taken."""
        said = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(said[11]) + int(said[12])) / TICKS_A_SECOND


@pytest.fixture(params=[False, True], ids=["waits by the monotonic clock", "waits by the time of day"])
def node(request: pytest.FixtureRequest, tmp_path: Path, bus: FakeEventBridge) -> Iterator[Node]:
    """With a Python as it is now, and with one that was built for an old C library."""
    folder, clock = NodeFolder(tmp_path, bus.url, heartbeat_seconds=EVERY_SECONDS), FakeClock(tmp_path)
    folder.config_file.write_text(toml({**folder.config(), "checks": ["memory"]}))
    bus.refuses_strange_times = True
    environment = {**os.environ, **folder.environment(), **clock.environment(waits_by_wall=request.param)}
    node = Node(folder, bus, clock, environment)
    eventually(lambda: bus.details("Node Booted") and len(bus.table.beats) >= 2)
    yield node
    node.process.kill()
    node.process.wait()


@pytest.mark.parametrize("jump", [DAY, -DAY], ids=["forward", "back"])
def test_heartbeats_and_faults_go_on_when_the_clock_jumps(node: Node, jump: int) -> None:
    for code, shift in (("31", jump), ("48", 0)):
        node.clock.jump(shift)
        node.bus.table.beats.clear()
        began, cpu = time.monotonic(), node.cpu_seconds()
        node.folder.logs(xid(int(code)))

        eventually(partial(node.has_told, code))
        eventually(lambda: len(node.bus.table.beats) >= 6)

        took = time.monotonic() - began
        assert took + EVERY_SECONDS >= 5 * 0.9 * EVERY_SECONDS  # no beat early: the first came at any moment
        assert took < 8 * EVERY_SECONDS + 2.0
        assert (node.cpu_seconds() - cpu) / took < BUSY
        assert max(node.beats_off_by()) < 300.0
        assert max(node.dates_off_by()) < 60.0
        assert len(node.bus.table.beats) < 20
    assert node.process.poll() is None
    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(PATIENCE_SECONDS) == 0
    said = (node.folder.directory / "said").read_text()
    assert "ERROR" not in said, said


@pytest.mark.parametrize("node", [False], indirect=True)
@pytest.mark.parametrize("is_killed", [False, True], ids=["lives on", "is killed"])
@pytest.mark.parametrize(("then", "at_last"), [(-DAY, 0), (DAY, 0), (0, -DAY), (0, DAY)])
def test_what_was_seen_while_the_bus_was_away_is_dated_by_when_it_was_seen(
    node: Node, then: int, at_last: int, is_killed: bool
) -> None:
    """Whatever the clock was then, or is when the bus is back; the same agent may send it, or the next."""
    node.bus.stop()
    node.clock.jump(then)
    node.folder.logs(xid(79))
    eventually(partial(node.waits_for_the_bus, "79"))
    if is_killed:
        node.process.kill()
        node.process.wait()
        node.starts()

    node.clock.jump(at_last)
    time.sleep(2 * EVERY_SECONDS)  # a request that was dated before the jump must not be the one that is accepted
    node.bus.start()
    eventually(partial(node.has_told, "79"))

    assert max(node.dates_off_by()) < 60.0


@pytest.mark.parametrize("shift", [DAY, -DAY], ids=["ahead", "behind"])
def test_an_order_is_judged_by_the_clock_that_the_node_has_and_says_so(node: Node, shift: int) -> None:
    node.clock.jump(shift)
    expires_at = time.time() + 60

    ended = subprocess.run(
        [*COMMAND, "run", "reboot", "--boot-id", "boot-1", "--expires-at", str(expires_at)],
        env={**os.environ, **node.folder.environment(), **node.clock.environment(waits_by_wall=False)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == (3 if shift > 0 else 0), ended.stderr
    assert shift < 0 or f"its end is {expires_at:.0f}, this node's clock says" in ended.stderr
