"""The spool keeps what it was given."""

import contextlib
import json
import logging
import sqlite3
from pathlib import Path

import pytest

from nodeheal.agent.transport.event import EventFactory
from nodeheal.agent.transport.spool import AGAIN_SECONDS, FILE_NAME, Spool
from tests.support.agent_fakes import IDENTITY, START, FakeTime, xid_event

EVENT_FACTORY = EventFactory(IDENTITY, "boot-1")


def codes(spool: Spool, count: int = 10_000) -> list[str]:
    return [str(json.loads(entry.detail).get("code")) for entry in spool.oldest(count)]


def test_events_come_out_oldest_first_until_they_are_forgotten(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.put([xid_event(1), xid_event(2)])
    spool.put([xid_event(3)])

    spool.forget([spool.oldest(1)[0].event_id])

    assert codes(spool) == ["2", "3"]
    assert codes(spool, 1) == ["2"]


def test_the_same_event_is_kept_once_and_keeps_its_place(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.put([xid_event(1), xid_event(2)])
    spool.put([xid_event(1)])

    assert codes(spool) == ["1", "2"]


def test_another_process_sees_what_was_put(tmp_path: Path) -> None:
    Spool(tmp_path).put([xid_event(1)], {"kernel_log": {"offset": 7}})

    again = Spool(tmp_path)

    assert codes(again) == ["1"]
    assert again.state() == {"kernel_log": {"offset": 7}}


def test_state_that_the_disk_has_spoilt_is_forgotten_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Spool(tmp_path).put([xid_event(1)], {"kernel_log": 1, "checks": {}})
    with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)) as database, database:
        database.execute("UPDATE state SET value = ? WHERE key = 'kernel_log'", ('{"offset',))

    again = Spool(tmp_path)

    assert (again.state(), codes(again)) == ({"checks": {}}, ["1"])
    assert vars(caplog.records[0])["key"] == "kernel_log"


def test_events_and_their_cursor_are_kept_together_or_not_at_all(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.put([], {"kernel_log": 1})

    with pytest.raises(TypeError):
        spool.put([xid_event(1)], {"kernel_log": object()})

    assert codes(spool) == []
    assert spool.state() == {"kernel_log": 1}


def test_only_the_newest_heartbeat_waits(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.put([EVENT_FACTORY.alive(START), xid_event(1)])
    spool.put([EVENT_FACTORY.alive(START.replace(minute=59))])

    assert codes(spool) == ["1", "alive"]
    assert ":59:" in spool.oldest(2)[1].detail


def test_a_full_spool_gives_up_heartbeats_before_findings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool = Spool(tmp_path, limit_mib=1)
    spool.put([EVENT_FACTORY.alive(START)])
    with caplog.at_level(logging.ERROR):
        for hundred in range(40):
            spool.put([xid_event(hundred * 100 + number) for number in range(100)])

    kept = codes(spool)

    assert "alive" not in kept
    assert kept == [str(code) for code in range(4000 - len(kept), 4000)]
    assert spool.dropped() == 4001 - len(kept)
    assert (tmp_path / FILE_NAME).stat().st_size < 2 * 1024 * 1024
    assert "the oldest events were dropped" in caplog.text


def test_room_that_was_made_is_used_again_and_nothing_goes_for_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path, limit_mib=1)
    for hundred in range(40):
        spool.put([xid_event(hundred * 100 + number) for number in range(100)])
    dropped = spool.dropped()
    spool.forget([entry.event_id for entry in spool.oldest(10_000)])

    spool.put([xid_event(5000 + number) for number in range(100)])

    assert len(codes(spool)) == 100
    assert spool.dropped() == dropped


def test_what_was_put_is_on_the_disk_before_anything_else_is_done(tmp_path: Path) -> None:
    [(synchronous,)] = Spool(tmp_path)._database.execute("PRAGMA synchronous")

    assert synchronous == 2  # FULL: a power cut right after it loses nothing


@pytest.mark.parametrize("damage", [b"this is no database" * 100, None])
def test_a_corrupt_spool_is_moved_aside_and_told(
    tmp_path: Path, damage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    spool = Spool(tmp_path)
    spool.put([xid_event(number) for number in range(200)])
    spool.close()
    content = (tmp_path / FILE_NAME).read_bytes()
    (tmp_path / FILE_NAME).write_bytes(damage or content[:4096] + b"\xa5" * (len(content) - 4096))

    with caplog.at_level(logging.ERROR):
        fresh = Spool(tmp_path)
    fresh.put([xid_event(7)])

    assert codes(fresh) == ["7"]
    assert (tmp_path / "spool.corrupt").exists()
    assert "the spool is corrupt" in caplog.text


def test_a_disk_that_cannot_be_written_does_not_silence_the_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = Spool(tmp_path)
    spool.put([xid_event(1)], {"kernel_log": 1})
    spool._database.execute("PRAGMA max_page_count = 1")  # SQLite raises this to what it has: the disk is full now

    with caplog.at_level(logging.ERROR):
        spool.put([xid_event(code) for code in range(2, 100)], {"kernel_log": 2})

    assert codes(spool) == [str(code) for code in range(1, 100)]
    assert spool.state() == {"kernel_log": 2}
    assert "events are kept in memory" in caplog.text


def is_full(spool: Spool) -> None:
    """The disk has no room for what comes next."""
    spool._database.execute("PRAGMA max_page_count = 1")
    spool.put([xid_event(code) for code in range(2, 100)], {"kernel_log": 2})


def test_a_disk_that_has_room_again_is_written_again(
    tmp_path: Path, time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    spool = Spool(tmp_path, clock=time.clock())
    spool.put([xid_event(1)], {"kernel_log": 1})
    is_full(spool)
    Spool(tmp_path).put([xid_event(200)])  # of an order, which is another process
    time.seconds = AGAIN_SECONDS - 1
    assert len(spool.oldest(1000)) == 99
    assert codes(Spool(tmp_path)) == ["1", "200"]

    caplog.set_level(logging.INFO)
    time.seconds = AGAIN_SECONDS
    spool.put([xid_event(100)], {"kernel_log": 3})

    again = Spool(tmp_path)
    assert codes(again) == ["1", "200", *(str(code) for code in range(2, 101))]
    assert again.state() == {"kernel_log": 3}
    assert caplog.messages[-1] == "the spool is writable again"


def test_a_disk_that_is_still_full_is_tried_again_later_and_not_complained_of_again(
    tmp_path: Path, time: FakeTime, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path, clock=time.clock())
    is_full(spool)
    tries = []

    def refuses() -> sqlite3.Connection:
        tries.append(time.seconds)
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(spool, "_open", refuses)
    for time.seconds in range(int(AGAIN_SECONDS * 2.5)):
        spool.put([xid_event(100)])

    assert tries == [AGAIN_SECONDS, 2 * AGAIN_SECONDS]
    assert len(spool.oldest(1000)) == 99
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize(
    ("code", "is_left_alone"),
    [(sqlite3.SQLITE_IOERR_WRITE, True), (sqlite3.SQLITE_BUSY_SNAPSHOT, False)],
)
def test_a_disk_that_is_broken_is_left_alone(tmp_path: Path, time: FakeTime, code: int, is_left_alone: bool) -> None:
    spool = Spool(tmp_path, clock=time.clock())
    error = sqlite3.OperationalError("something is wrong")
    error.sqlite_errorcode = code
    spool._recover(error)

    time.seconds = AGAIN_SECONDS
    spool.put([xid_event(100)])

    assert (codes(Spool(tmp_path)) == []) is is_left_alone


def test_a_folder_that_cannot_be_made_does_not_silence_the_node(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    spool = Spool(tmp_path / "file" / "state")
    spool.put([xid_event(1)])

    assert codes(spool) == ["1"]


def test_a_corrupt_spool_that_cannot_be_moved_aside_does_not_silence_the_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"\xa5" * 8192)
    (tmp_path / "spool.corrupt").mkdir()  # as a file system that has become read-only refuses it

    with caplog.at_level(logging.ERROR):
        spool = Spool(tmp_path)
    spool.put([xid_event(1)])

    assert codes(spool) == ["1"]
    assert "events are kept in memory" in caplog.text


@pytest.mark.parametrize(
    "damage",
    [
        "detail = CAST(x'7b22ff' AS TEXT)",  # no text
        "detail = substr(detail, 1, 40)",  # no JSON
        "detail = '[' || detail || ']'",  # no event
        "detail = replace(detail, '2026-', '2026=')",
        "detail_type = 'Node Health Repooted'",  # nobody would listen to it
        "event_id = 'of another'",
    ],
)
def test_an_event_that_the_disk_has_spoilt_is_dropped_and_told_once_and_holds_up_no_other(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    spool = Spool(tmp_path)
    spool.put([xid_event(code) for code in range(1, 6)])
    with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)) as database, database:
        database.execute(f"UPDATE events SET {damage} WHERE seq = 3")

    assert codes(spool) == ["1", "2", "4", "5"]
    assert codes(Spool(tmp_path)) == ["1", "2", "4", "5"]
    assert caplog.text.count("the spool contains an event that cannot be read; it is dropped") == 1


def test_a_spool_that_becomes_corrupt_while_the_agent_runs_is_moved_aside_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = Spool(tmp_path)
    spool.put([xid_event(number) for number in range(200)])
    spool._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    spool._database.execute("PRAGMA cache_size = 1")
    with (tmp_path / FILE_NAME).open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * 4096 * 3)

    spool.put([xid_event(7)])

    assert codes(spool) == ["7"]
    assert not spool._is_in_memory
    assert (tmp_path / "spool.corrupt").exists()
    assert "the spool is corrupt" in caplog.text


def test_a_disk_that_is_back_knows_by_which_clock_it_was_dated_meanwhile(tmp_path: Path, time: FakeTime) -> None:
    spool = Spool(tmp_path, clock=time.clock(), boot_id="boot-1")
    (tmp_path / FILE_NAME).chmod(0o600)
    [(pages,)] = spool._database.execute("PRAGMA page_count")
    spool._database.execute(f"PRAGMA max_page_count = {pages}")
    while not spool._is_in_memory:
        spool.put([xid_event(len(codes(spool)))])
    time.seconds += AGAIN_SECONDS

    spool.put([])

    assert not spool._is_in_memory
    assert {entry.zero for entry in spool.oldest(10_000)} == {START.timestamp()}


def test_a_machine_that_is_registered_again_sends_what_it_has_stored_on_this_boot_under_its_new_id(
    tmp_path: Path,
) -> None:
    spool = Spool(tmp_path, boot_id="boot-1", node_id=IDENTITY.node_id)
    spool.put([xid_event(13, "boot-0"), xid_event(79, "boot-1")], {"kernel_log": {"offset": 7}})
    spool.close()

    again = Spool(tmp_path, boot_id="boot-1", node_id="mi-0again")

    [event] = [json.loads(entry.detail) for entry in again.oldest(10)]
    assert (event["code"], event["node_id"], event["instance_id"]) == ("79", "mi-0again", "mi-0again")
    assert again.state()["kernel_log"] == {"offset": 7}


def test_a_copy_of_a_disk_does_not_send_what_its_origin_has_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    origin = Spool(tmp_path, boot_id="boot-1", node_id=IDENTITY.node_id)
    origin.put([xid_event(79, "boot-1")])
    origin._database.execute("INSERT INTO events VALUES (9, 'damaged', 'x', '{', 0, 'finding', NULL)")
    origin._database.commit()
    origin.close()
    Spool(tmp_path, boot_id="boot-2", node_id=IDENTITY.node_id).close()  # its configuration still names the origin

    copy = Spool(tmp_path, boot_id="boot-2", node_id="mi-0copy")

    assert codes(copy) == []
    [told] = [record for record in caplog.records if "another node's" in record.message]
    assert (told.of, told.dropped, told.kept) == (IDENTITY.node_id, 2, 0)  # type: ignore[attr-defined]
