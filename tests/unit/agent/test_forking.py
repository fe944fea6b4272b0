"""A process is forked while its other threads rest, and every thread of the agent says when it works."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeheal.agent.runtime.forking import at_work, forked
from nodeheal.agent.transport.bus import BusUnavailable, EventBus
from nodeheal.agent.transport.heartbeat_thread import HeartbeatThread
from nodeheal.agent.transport.metrics import Publisher
from nodeheal.agent.transport.prometheus import Exporter
from nodeheal.agent.transport.sender import Sender
from nodeheal.agent.transport.spool import Spool
from tests.support.agent_fakes import IDENTITY, FakeTime, eventually, public_key, xid_event


class Notes:
    """What a thread of the agent calls: notes whether a process could have been forked meanwhile."""

    def __init__(self) -> None:
        self.forked_meanwhile: list[bool] = []

    def __call__(self, *_: object) -> float:
        self.forked_meanwhile.append(can_fork())
        return 0.0


def can_fork() -> bool:
    """Whether a process is forked now; it ends at once."""
    pid = forked()
    if pid == 0:
        os._exit(0)
    if pid is not None:
        os.waitpid(pid, 0)
    return pid is not None


@pytest.fixture
def notes() -> Iterator[Notes]:
    notes = Notes()
    yield notes
    assert notes.forked_meanwhile
    assert not any(notes.forked_meanwhile)
    eventually(can_fork)


def test_only_while_nobody_works_and_also_after_work_that_failed() -> None:
    before = can_fork()
    with pytest.raises(OSError, match="disk"), at_work():
        meanwhile = can_fork()
        raise OSError("disk")

    assert (before, meanwhile, can_fork()) == (True, False, True)


def test_anyway_where_that_is_asked_for() -> None:
    with at_work():
        pid = forked(anyway=True)
        if pid == 0:
            os._exit(7)

    assert os.waitstatus_to_exitcode(os.waitpid(pid or 0, 0)[1]) == 7


def test_the_sender_says_that_it_works(notes: Notes, tmp_path: Path, time: FakeTime) -> None:
    class Bus(EventBus):
        def __init__(self) -> None:
            """There is none."""

        def put(self, _: object) -> object:  # type: ignore[override]
            notes()
            raise BusUnavailable("it is not there")

        def close(self) -> None:
            """Nothing is open."""

    spool = Spool(tmp_path)
    spool.put([xid_event(79)])
    sender = Sender(spool, Bus(), time.clock())
    sender.start()

    eventually(lambda: notes.forked_meanwhile)

    sender.stop(5)
    spool.close()


def test_the_heartbeat_thread_says_that_it_works(notes: Notes, time: FakeTime, monkeypatch: pytest.MonkeyPatch) -> None:
    heartbeat_thread = HeartbeatThread(None, public_key, "boot-1", 0.01, time.clock(), lambda: None)  # type: ignore[arg-type]  # it never beats
    monkeypatch.setattr(heartbeat_thread, "heartbeat", lambda: notes() or 1000.0)
    heartbeat_thread.start()

    eventually(lambda: notes.forked_meanwhile)

    heartbeat_thread._stopping.set()
    heartbeat_thread.join()


def test_the_publisher_says_that_it_works(notes: Notes, time: FakeTime, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = Publisher(None, dict, time.clock(), 0.01)  # type: ignore[arg-type]  # it never publishes
    monkeypatch.setattr(publisher, "publish", notes)
    publisher.start()

    eventually(lambda: notes.forked_meanwhile)

    publisher._stopping.set()
    publisher.join()


def test_the_exporter_says_that_it_works(notes: Notes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])

    def gauges() -> dict[str, float]:
        notes()
        return {}

    exporter = Exporter(port, IDENTITY, gauges, list)
    exporter.start()

    def is_answered() -> bool:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as asks:
                asks.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                return b"200" in asks.recv(4096)
        except ConnectionError:
            return False

    eventually(is_answered)
    exporter.stop(5)
