"""What a disk has spoilt in the spool, and SQLite does not see, holds up nothing else."""

import contextlib
import json
import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeheal.agent.credentials import CredentialChain
from nodeheal.agent.sender import Sender
from nodeheal.agent.spool import FILE_NAME, Spool
from nodeheal.agent.spool_repair import KEPT_ASIDE
from tests.unit.agent.fakes import FakeEventBridge, FakeTime, NodeFolder, bus_at, eventually, xid_event

CODES = range(1, 6)
PAGE_BYTES = 4096


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a spool with five events."""
    spool = Spool(tmp_path)
    spool.put([xid_event(code) for code in CODES], {"kernel_log": {"offset": 7}})
    spool.close()
    return tmp_path


def spoil(folder: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(folder / FILE_NAME)) as database, database:
        database.execute(statement)


def spoil_bytes(folder: Path, word: str, which: int) -> None:
    """One byte of the file, where this word stands there for the nth time: SQLite has had no say in it."""
    file = folder / FILE_NAME
    content = bytearray(file.read_bytes())
    at = -1
    for _ in range(which + 1):
        at = content.index(word.encode(), at + 1)
    content[at] ^= 0x80 if content[at] < 0x80 else 0x01
    file.write_bytes(content)
    with contextlib.closing(sqlite3.connect(file)) as database:
        assert database.execute("PRAGMA quick_check").fetchone() == ("ok",)


def codes(spool: Spool, count: int = 100) -> list[str]:
    return [str(json.loads(entry.detail)["code"]) for entry in spool.oldest(count)]


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    "damage",
    [
        "detail = CAST(x'7b22ff' AS TEXT)",  # no text
        "detail = substr(detail, 1, 40)",  # no JSON
        "detail = '[' || detail || ']'",  # no event
        "detail = 79",
        "detail = replace(detail, 'event_id', 'event_ie')",
        "detail = replace(detail, '2026-', '2026=')",
        "detail_type = CAST(x'4eff' AS TEXT)",
        "detail_type = 'Node Health Repooted'",  # nobody would listen to it
        "event_id = CAST(x'ff' AS TEXT), detail = 'both'",
    ],
)
def test_an_event_that_cannot_be_read_is_set_aside_and_told_once(
    folder: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(folder, f"UPDATE events SET {damage} WHERE seq = 3")

    spool = Spool(folder)

    assert codes(spool) == ["1", "2", "4", "5"]
    assert codes(Spool(folder)) == ["1", "2", "4", "5"]
    assert complaints(caplog) == ["the spool holds an event that cannot be read; it is set aside"]
    assert vars(caplog.records[-1])["seq"] == 3
    with contextlib.closing(sqlite3.connect(folder / FILE_NAME)) as database:
        assert database.execute("SELECT seq FROM set_aside").fetchall() == [(3,)]


@pytest.mark.parametrize(
    "damage",
    [
        "observed_at = 'noon'",
        "observed_at = x'ff'",
        "observed_at = 9e999",
        "kind = CAST(x'ff' AS TEXT)",
        "detail = CAST(detail AS BLOB)",
        "event_id = CAST(x'ff' AS TEXT)",
        "event_id = x'ff'",
        "event_id = 'an id that it has not'",
    ],
)
def test_an_event_whose_own_words_are_whole_is_not_lost(
    folder: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(folder, f"UPDATE events SET {damage} WHERE seq = 3")

    spool = Spool(folder)
    entries = spool.oldest(100)

    assert [(entry.event_id, entry.observed_at) for entry in entries] == [
        (event.event_id, event.observed_at.timestamp()) for event in map(xid_event, CODES)
    ]
    spool.forget([entry.event_id for entry in entries])
    assert codes(Spool(folder)) == []
    assert complaints(caplog) == []


@pytest.mark.parametrize("which", [0, 2], ids=["in its row", "in the index"])
def test_an_event_that_is_not_found_by_its_id_is_sent_and_forgotten(
    folder: Path, which: int, caplog: pytest.LogCaptureFixture
) -> None:
    spoil_bytes(folder, xid_event(3).event_id, which)

    spool = Spool(folder)
    entries = spool.oldest(100)
    spool.forget([entry.event_id for entry in entries])

    assert [entry.event_id for entry in entries] == [xid_event(code).event_id for code in CODES]
    assert codes(Spool(folder)) == []
    assert complaints(caplog) == []


def test_an_event_that_waits_twice_because_of_it_is_sent_once(folder: Path) -> None:
    spoil_bytes(folder, xid_event(3).event_id, 2)
    spool = Spool(folder)
    spool.put([xid_event(3)])  # which the index does not know any more

    assert codes(spool) == ["1", "2", "3", "4", "5"]


def test_many_that_cannot_be_read_do_not_hide_the_rest(folder: Path) -> None:
    spoil(folder, "UPDATE events SET detail = 'rot' WHERE seq < 5")

    assert codes(Spool(folder), 2) == ["5"]


def test_what_is_set_aside_takes_little_room(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.put([xid_event(code) for code in range(KEPT_ASIDE * 2)])
    spoil(tmp_path, "UPDATE events SET detail = 'rot'")

    assert codes(spool) == []

    with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)) as database:
        kept = [seq for (seq,) in database.execute("SELECT seq FROM set_aside ORDER BY seq")]
    assert kept == list(range(KEPT_ASIDE + 1, KEPT_ASIDE * 2 + 1))


def test_what_is_set_aside_and_what_no_longer_says_its_kind_make_room_for_what_comes(tmp_path: Path) -> None:
    spool = Spool(tmp_path, limit_mib=1)
    spool.put([xid_event(code) for code in range(1500)])
    spoil(tmp_path, "UPDATE events SET kind = CAST(x'ff' AS TEXT)")
    spoil(tmp_path, "INSERT INTO set_aside VALUES (1, 1, 1, zeroblob(900000), 1, 1)")

    spool.put([xid_event(code) for code in range(2000, 4000)])

    assert codes(spool, 10_000)[-1] == "3999"
    assert spool._used_bytes(spool._database) <= 1024 * 1024


def test_state_that_is_no_text_is_forgotten_and_told(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    Spool(folder).put([], {"checks": {}, "spool.dropped": 3})
    spoil(folder, "UPDATE state SET value = CAST(x'ff' AS TEXT) WHERE key = 'kernel_log'")
    spoil(folder, "UPDATE state SET key = CAST(x'ff' AS TEXT) WHERE key = 'checks'")

    spool = Spool(folder)

    assert spool.state() == {"spool.dropped": 3}
    assert complaints(caplog) == ["the spool holds what is not understood; it is forgotten"] * 2


@pytest.mark.parametrize("damage", ["'many'", "'\"many\"'", "x'ff'", "CAST(x'ff' AS TEXT)"])
def test_a_count_that_is_spoilt_keeps_nothing_from_being_put(tmp_path: Path, damage: str) -> None:
    spool = Spool(tmp_path, limit_mib=1)
    spool.put([], {"spool.dropped": 1})
    spoil(tmp_path, f"UPDATE state SET value = {damage}")

    spool.put([xid_event(code) for code in range(3000)])

    assert spool.dropped() > 0
    assert codes(spool, 10_000)[-1] == "2999"


def test_what_goes_around_the_bus_passes_by_what_cannot_be_read(folder: Path) -> None:
    spool = Spool(folder)
    spool.put([xid_event(79), xid_event(48)])
    spoil(folder, "UPDATE events SET detail = replace(detail, 'event_id', 'event_ie') WHERE seq = 6")

    assert [json.loads(entry.detail)["code"] for entry in spool.failed("", 10)] == ["48"]


def test_the_sender_delivers_the_rest_in_order(folder: Path, bus: FakeEventBridge, time: FakeTime) -> None:
    spoil(folder, "UPDATE events SET detail = CAST(x'ff' AS TEXT) WHERE seq = 2")
    spoil_bytes(folder, xid_event(4).event_id, 2)
    spool, clock = Spool(folder), time.clock()
    chain = CredentialChain(clock, {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret"})
    sender = Sender(spool, bus_at(bus.url, chain, clock), clock)

    assert sender.send_all() == 0.0

    assert bus.codes() == ["1", "3", "4", "5"]
    assert len(bus.calls) == 1
    assert codes(spool) == []


def test_a_spool_with_a_page_that_is_gone_gives_up_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with_a_page_that_is_gone(tmp_path)

    with caplog.at_level(logging.ERROR):
        spool = Spool(tmp_path)

    assert_all_but_a_page_is_there(spool)
    assert spool.state() == {"kernel_log": {"offset": 7}}
    assert complaints(caplog)[0] == "the spool is corrupt; beginning a new one"


def test_a_page_that_goes_while_the_agent_runs_takes_no_other_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    intact = tmp_path / "intact"
    spool = Spool(intact)
    spool.put([xid_event(code) for code in range(200)], {"kernel_log": {"offset": 7}})
    spool._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    spool._database.execute("PRAGMA cache_size = 1")
    tear(intact / FILE_NAME)

    spool.put([xid_event(500)])

    assert_all_but_a_page_is_there(spool)
    assert codes(spool, 1000)[-1] == "500"
    assert "the spool cannot be written; going on in memory" in complaints(caplog)


def with_a_page_that_is_gone(folder: Path) -> None:
    spool = Spool(folder)
    spool.put([xid_event(code) for code in range(200)], {"kernel_log": {"offset": 7}})
    spool.close()
    tear(folder / FILE_NAME)


def tear(file: Path) -> None:
    """One page of events."""
    content = bytearray(file.read_bytes())
    at = content.index(b'"code":"100"') // PAGE_BYTES * PAGE_BYTES
    content[at : at + PAGE_BYTES] = b"\xa5" * PAGE_BYTES
    with file.open("r+b") as opened:
        opened.write(content)


def assert_all_but_a_page_is_there(spool: Spool) -> None:
    left = [int(code) for code in codes(spool, 1000) if int(code) < 200]
    assert left == sorted(left)
    assert 180 < len(left) < 200
    assert {0, 199} < set(left)


@pytest.fixture
def watching(node: NodeFolder) -> Iterator["subprocess.Popen[bytes]"]:
    """A real agent, on a spool that is spoilt in every way."""
    spool = Spool(node.state_dir)
    spool.put([xid_event(code) for code in CODES], {"kernel_log.folded": []})
    spool.close()
    spoil_bytes(node.state_dir, xid_event(5).event_id, 2)
    spoil(node.state_dir, "UPDATE state SET value = CAST(x'ff' AS TEXT)")
    spoil(node.state_dir, "UPDATE events SET detail = CAST(x'ff' AS TEXT) WHERE seq = 1")
    with (node.directory / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "nodeheal.agent.main", "watch"],
            env={**os.environ, **node.environment()},
            stderr=said,
        )
    yield process
    process.kill()
    process.wait()


def test_an_agent_on_a_spoilt_spool_tells_the_rest(
    node: NodeFolder, bus: FakeEventBridge, watching: "subprocess.Popen[bytes]"
) -> None:
    eventually(lambda: bus.codes() == ["2", "3", "4", "5"])

    said = (node.directory / "said").read_text()
    assert said.count("the spool holds an event that cannot be read; it is set aside") == 1
    assert said.count("the spool holds what is not understood; it is forgotten") == 1
    assert watching.poll() is None
