"""The kernel's ring buffer is read once, and what was overwritten is noticed."""

import contextlib
import errno
import logging
import os
import uuid
from pathlib import Path

import pytest

from nodeheal.agent.checks.kmsg import KmsgReader

KMSG = Path("/dev/kmsg")


class RingBuffer:
    """/dev/kmsg as one open file sees it: one record a read, EAGAIN at the end, EPIPE after an overrun."""

    def __init__(self) -> None:
        self._records: list[bytes | int] = []
        self._place = 0

    def holds(self, *sequences: int) -> None:
        self._records += [f"3,{sequence},1,-;message {sequence}\n".encode() for sequence in sequences]

    def overruns(self) -> None:
        self._records.append(errno.EPIPE)

    def read(self, _descriptor: int, _size: int) -> bytes:
        if self._place == len(self._records):
            raise BlockingIOError
        record = self._records[self._place]
        self._place += 1
        if isinstance(record, int):
            raise OSError(record, os.strerror(record))
        return record

    def rewind(self, _descriptor: int) -> None:
        self._place = 0


def reader(buffer: RingBuffer, cursor: dict[str, object] | None, boot_id: str = "boot-1") -> KmsgReader:
    return KmsgReader(os.devnull, boot_id, cursor, buffer.read, buffer.rewind)


def sequences(kmsg: KmsgReader) -> list[int]:
    return [sequence for sequence, _ in kmsg.read()]


def test_the_first_start_ever_begins_with_the_first_record_and_knows_what_was_there() -> None:
    buffer = RingBuffer()
    buffer.holds(1, 2)
    kmsg = reader(buffer, None)

    buffer.holds(3)

    assert (sequences(kmsg), kmsg.history_until) == ([1, 2, 3], 2)


def test_a_start_that_was_cut_off_leaves_history_history() -> None:
    first, again = RingBuffer(), RingBuffer()
    first.holds(1, 2)
    cursor = reader(first, None).cursor()

    again.holds(1, 2, 3)
    kmsg = reader(again, cursor)

    assert (sequences(kmsg), kmsg.history_until) == ([1, 2, 3], 2)


def test_an_empty_device_has_no_history() -> None:
    buffer = RingBuffer()
    kmsg = reader(buffer, None)

    buffer.holds(0)

    assert (sequences(kmsg), kmsg.history_until) == ([0], -1)


def test_a_restart_goes_on_after_the_last_record_that_was_read() -> None:
    first, again = RingBuffer(), RingBuffer()
    first.holds(1, 2)
    read = reader(first, None)
    read.read()

    again.holds(1, 2, 3)

    assert sequences(reader(again, read.cursor())) == [3]


def test_after_a_reboot_everything_is_new() -> None:
    buffer = RingBuffer()
    buffer.holds(1, 2)

    kmsg = reader(buffer, {"boot_id": "boot-1", "sequence": 4711}, "boot-2")

    assert sequences(kmsg) == [1, 2]


def test_an_overrun_is_survived_and_told(caplog: pytest.LogCaptureFixture) -> None:
    buffer = RingBuffer()
    kmsg = reader(buffer, {"boot_id": "boot-1", "sequence": 1})
    buffer.overruns()
    buffer.holds(5)

    with caplog.at_level(logging.WARNING):
        assert sequences(kmsg) == [5]

    assert [vars(record)["lost"] for record in caplog.records] == [3]


@pytest.mark.skipif(not os.access(KMSG, os.R_OK | os.W_OK), reason="needs a writable /dev/kmsg")
def test_the_real_device_is_read() -> None:
    token = uuid.uuid4().hex
    kmsg = KmsgReader(str(KMSG), "boot-1", None)
    try:
        KMSG.write_text(f"<5>nodeheal test {token}\n")
    except OSError:
        pytest.skip("the device refuses to be written")

    records = [raw for _, raw in kmsg.read() if token.encode() in raw]

    with contextlib.closing(kmsg):
        assert [int(raw.split(b",")[0]) >> 3 for raw in records] == [1]


@pytest.mark.parametrize("cursor", [{}, {"boot_id": "boot-1"}, {"boot_id": "boot-1", "sequence": "x"}])
def test_a_cursor_that_nobody_understands_reads_the_boot_again(cursor: dict[str, object]) -> None:
    buffer = RingBuffer()
    buffer.holds(1, 2)

    assert sequences(reader(buffer, cursor)) == [1, 2]


def test_a_record_over_all_bounds_is_left_out() -> None:
    buffer = RingBuffer()
    kmsg = reader(buffer, {"boot_id": "boot-1", "sequence": 1})
    buffer._records.append(errno.EINVAL)
    buffer.holds(3)

    assert sequences(kmsg) == [3]


def test_a_device_that_fails_otherwise_is_no_silence() -> None:
    buffer = RingBuffer()
    kmsg = reader(buffer, {"boot_id": "boot-1", "sequence": 1})
    buffer._records.append(errno.EIO)

    with pytest.raises(OSError, match="Input/output"):
        kmsg.read()
