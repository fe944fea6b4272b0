"""What the kernel has said in this boot before the agent first started: told once, and told apart."""

import errno
import json
import os
from collections.abc import Iterator
from datetime import timedelta

import pytest

from nodeheal.agent.checks import kernel_log as module
from nodeheal.agent.checks.kernel_log import KernelLogCheck
from nodeheal.agent.checks.kmsg import KmsgReader
from nodeheal.agent.runtime.config import KernelLog
from nodeheal.agent.transport.event import HealthEvent
from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding
from tests.support.agent_fakes import IDENTITY, FakeTime, NodeFolder, xid

XID_OF = "NVRM: Xid (PCI:0000:b9:00): {}, pid=1, name=python"


class Device:
    """/dev/kmsg: records that stay, read from the first on by whoever opens it."""

    def __init__(self) -> None:
        self._records: list[bytes] = []
        self._place = 0

    def says(self, text: str, at_seconds: float = 1.0) -> None:
        self._records.append(f"2,{len(self._records)},{int(at_seconds * 1e6)},-;{text}\n".encode())

    def read(self, _descriptor: int, _size: int) -> bytes:
        if self._place == len(self._records):
            raise BlockingIOError(errno.EAGAIN, "")
        self._place += 1
        return self._records[self._place - 1]

    def rewind(self, _descriptor: int) -> None:
        self._place = 0


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    made = Device()

    def opened(_path: str, boot_id: str, cursor: dict[str, object] | None) -> KmsgReader:
        made.rewind(0)
        return KmsgReader(os.devnull, boot_id, cursor, made.read, made.rewind)

    monkeypatch.setattr(module, "KmsgReader", opened)
    yield made


def check_on(time: FakeTime, saved: dict[str, object] | None = None, boot: str = "boot-1") -> KernelLogCheck:
    return KernelLogCheck([KernelLog("kmsg", "/dev/kmsg")], IDENTITY, boot, time.clock(), saved or {})


def restarted(check: KernelLogCheck, time: FakeTime, boot: str = "boot-1") -> KernelLogCheck:
    saved = json.loads(json.dumps(check.state()))
    check.close()
    return check_on(time, saved, boot)


def told(events: list[HealthEvent]) -> list[tuple[str, int, bool]]:
    return [(event.code, event.count, event.is_history) for event in events]


def test_the_running_boots_lines_are_told_at_the_first_start_as_history(device: Device, time: FakeTime) -> None:
    time.seconds = 1000
    device.says(XID_OF.format(79), at_seconds=400)
    check = check_on(time)

    [event] = check.poll()

    assert (event.code, event.boot_id, event.is_history) == ("79", "boot-1", True)
    assert event.observed_at == time.clock().utc_now() - timedelta(seconds=600)


def test_what_comes_after_the_start_is_news_though_it_reads_the_same(device: Device, time: FakeTime) -> None:
    device.says(XID_OF.format(79))
    check = check_on(time)
    device.says(XID_OF.format(79))

    assert told(check.poll()) == [("79", 1, True), ("79", 1, False)]


def test_history_does_not_speak_for_what_the_library_sees_now(device: Device, time: FakeTime) -> None:
    device.says(XID_OF.format(79))
    check = check_on(time)
    check.poll()

    assert not check.has_told(Finding(Family.xid, "79", "0000:b9:00.0", "now"))
    device.says(XID_OF.format(79))
    check.poll()
    assert check.has_told(Finding(Family.xid, "79", "0000:b9:00.0", "now"))


def test_history_is_told_once(device: Device, time: FakeTime) -> None:
    device.says(XID_OF.format(79))
    check = check_on(time)
    check.poll()

    again = restarted(check, time)
    device.says(XID_OF.format(48))

    assert told(again.poll()) == [("48", 1, False)]


def test_a_start_that_was_cut_off_before_it_read_tells_history_at_the_next(device: Device, time: FakeTime) -> None:
    device.says(XID_OF.format(79))
    check = check_on(time)

    again = restarted(check, time)
    device.says(XID_OF.format(48))

    assert told(again.poll()) == [("79", 1, True), ("48", 1, False)]


def test_after_a_reboot_what_the_new_boot_has_said_before_the_agent_came_up_is_news(
    device: Device, time: FakeTime
) -> None:
    check = check_on(time)
    device.says(XID_OF.format(79))

    assert told(restarted(check, time, "boot-2").poll()) == [("79", 1, False)]


def test_a_storm_of_long_ago_is_two_events_and_its_count_survives_a_restart(device: Device, time: FakeTime) -> None:
    for _ in range(500):
        device.says(XID_OF.format(31))
    check = check_on(time)
    first = check.poll()

    rest = restarted(check, time).poll()

    assert sum(event.count for event in (*first, *rest)) == 500
    assert len(first) + len(rest) <= 2
    assert all(event.is_history for event in (*first, *rest))


def test_what_an_agent_before_this_one_had_folded_is_news(device: Device, time: FakeTime) -> None:
    check = check_on(time)
    device.says(XID_OF.format(31))
    check.poll()
    device.says(XID_OF.format(31))
    check.poll()
    saved = json.loads(json.dumps(check.state()))
    for one in saved["kernel_log.folded"]:
        del one["is_history"]

    assert told(check_on(time, saved).poll()) == [("31", 1, False)]


def test_a_file_says_not_of_which_boot_it_is_and_begins_with_what_comes_next(node: NodeFolder, time: FakeTime) -> None:
    node.logs(xid(79))
    log = KernelLog("file", str(node.kernel_log))
    check = KernelLogCheck([log], IDENTITY, "boot-1", time.clock(), {})

    node.logs(xid(48))

    assert told(check.poll()) == [("48", 1, False)]


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="needs a readable /dev/kmsg")
def test_the_real_device_begins_again_where_its_history_begins() -> None:
    kmsg = KmsgReader("/dev/kmsg", "boot-1", None)

    read = [sequence for sequence, _ in kmsg.read()]

    kmsg.close()
    assert (read[0] <= kmsg.history_until) if read else kmsg.history_until == -1
