"""The kernel-log check: every fault once, storms folded, history told apart."""

import errno
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeheal.agent.checks.kernel_log import (
    KNOWN_BYTES,
    KNOWN_WORDS,
    PACE_SECONDS,
    STORM_LINES,
    STORM_SECONDS,
    TROUBLE_SECONDS,
    KernelLogCheck,
)
from nodeheal.agent.checks.kmsg import RECORDS_A_TURN
from nodeheal.agent.checks.repeats import OPEN_WINDOWS, WINDOW_SECONDS, FindingOccurrence
from nodeheal.agent.runtime.config import KernelLog
from nodeheal.agent.transport.event import HealthEvent
from nodeheal.contract.names import DRILL_MARK
from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding
from tests.support.agent_fakes import BANNER, IDENTITY, START, XID_79, FakeTime, NodeFolder, kernel_line, xid


def check_on(node: NodeFolder, time: FakeTime, saved: dict[str, object] | None = None) -> KernelLogCheck:
    logs = [KernelLog("file", str(node.kernel_log))]
    return KernelLogCheck(logs, IDENTITY, node.boot_id_file.read_text().strip(), time.clock(), saved or {})


LINK_DOWN = "pcieport 0000:00:1c.0: pciehp: Slot(0-1): Link Down"


def test_a_lost_link_is_reported_by_what_hung_on_it_even_after_a_restart(
    node: NodeFolder, time: FakeTime, tmp_path: Path
) -> None:
    port, devices = tmp_path / "devices" / "0000:00:1c.0", tmp_path / "pci"
    gpu = port / "0000:64:00.0"
    gpu.mkdir(parents=True)
    devices.mkdir()
    for device, vendor, kind in ((port, "0x1000", "0x060400"), (gpu, "0x10de", "0x030200")):
        (device / "vendor").write_text(vendor)
        (device / "class").write_text(kind)
        (devices / device.name).symlink_to(device)
    logs, boot_id = [KernelLog("file", str(node.kernel_log))], node.boot_id_file.read_text().strip()

    def started(saved: dict[str, object], boot: str) -> KernelLogCheck:
        return KernelLogCheck(logs, IDENTITY, boot, time.clock(), saved, pci_devices=devices)

    check = started({}, boot_id)
    node.logs(kernel_line(LINK_DOWN))
    assert [(event.code, event.subcode, event.verdict) for event in check.poll()] == [("link_down", None, "FAILED")]

    saved = json.loads(json.dumps(check.state()))
    check.close()
    (devices / gpu.name).unlink()
    after = [("same", started(saved, boot_id)), ("other", started({**saved}, "another boot"))]
    node.logs(kernel_line(LINK_DOWN.replace("Slot(0-1)", "Slot(0-2)")))

    codes = {name: [(event.code, event.subcode) for event in one.poll()] for name, one in after}
    assert codes == {"same": [("link_down", None)], "other": [("other_device", "link_down")]}


def firmware_report(severity: str, section: str) -> list[str]:
    """As the kernel prints one; the number starts at 1 after every boot."""
    said = [f"event severity: {severity}", f" Error 0, type: {severity}", f"  section_type: {section}"]
    return [f"{{1}}[Hardware Error]: {line}" for line in [*said, "  device_id: 0000:c9:02.0"]]


@pytest.mark.parametrize("turns", [1, 4])
def test_a_report_of_firmware_is_put_together_over_turns_and_never_remembered(
    node: NodeFolder, time: FakeTime, turns: int
) -> None:
    check, found = check_on(node, time), list[tuple[str, str | None]]()
    reports = [
        firmware_report("corrected", "PCIe error"),
        firmware_report("recoverable", "PCIe error"),
        firmware_report("corrected", "PCIe error"),
        firmware_report("fatal", "memory error"),
    ]
    for lines in reports:
        for turn in range(turns):
            size = len(lines) // turns
            node.logs("".join(kernel_line(line) for line in lines[turn * size : (turn + 1) * size]))
            found += [(event.code, event.subcode) for event in check.poll()]
        time.seconds += WINDOW_SECONDS + 1

    assert found == [("unplaced", "nonfatal"), ("fatal", None)]


def restarted(check: KernelLogCheck, node: NodeFolder, time: FakeTime) -> KernelLogCheck:
    saved = json.loads(json.dumps(check.state()))
    check.close()
    return check_on(node, time, saved)


def told(events: list[HealthEvent]) -> list[tuple[str, int, str]]:
    return [(event.code, event.count, event.boot_id) for event in events]


def test_a_fault_is_reported_with_its_line(node: NodeFolder, time: FakeTime) -> None:
    check = check_on(node, time)
    node.logs(kernel_line("usb 1-1: new device"))
    node.logs(kernel_line(XID_79))

    [event] = check.poll()

    assert (event.family, event.code, event.component, event.verdict) == ("xid", "79", "0000:b9:00.0", "FAILED")
    assert event.evidence == kernel_line(XID_79).rstrip()
    assert (event.source, event.count, event.suggested_action) == ("kernel_log", 1, None)


def test_a_storm_is_one_event_at_once_and_one_for_the_rest(node: NodeFolder, time: FakeTime) -> None:
    check = check_on(node, time)
    node.logs(xid(31) * 500)
    assert told(check.poll()) == [("31", 1, "boot-1")]

    time.seconds = WINDOW_SECONDS - 1
    assert check.poll() == []
    time.seconds = WINDOW_SECONDS

    assert told(check.poll()) == [("31", 499, "boot-1")]


def test_a_fault_that_comes_once_is_told_once(node: NodeFolder, time: FakeTime) -> None:
    check = check_on(node, time)
    node.logs(xid(31))
    check.poll()

    time.seconds = WINDOW_SECONDS * 3

    assert check.poll() == []


def test_the_same_words_of_two_boots_are_told_of_both(node: NodeFolder, time: FakeTime) -> None:
    check = check_on(node, time)
    node.logs(xid(79) * 3)
    node.boot_id_file.write_text("boot-2")
    node.logs(kernel_line(BANNER) + xid(79))

    again = restarted(check, node, time)
    events = again.poll()
    time.seconds = WINDOW_SECONDS
    events += again.poll()

    assert told(events) == [("79", 1, "boot-1"), ("79", 1, "boot-2"), ("79", 2, "boot-1")]


def test_a_line_and_the_rest_that_ends_with_it_are_two_events(node: NodeFolder, time: FakeTime) -> None:
    finding = Finding(Family.xid, "79", None, "a message")
    one, rest = (FindingOccurrence(finding, "boot-1", "7:0", "line", START, count) for count in (1, 2))
    check = check_on(node, time)

    assert check._event(one).event_id != check._event(rest).event_id


def test_what_is_kept_to_know_lines_by_stays_small(node: NodeFolder, time: FakeTime) -> None:
    check = check_on(node, time)
    for number in range(KNOWN_WORDS + 100):
        node.logs(kernel_line(f"usb {number}: {'x' * 1900}") + kernel_line(f"{number} {'x' * 60_000}"))
        node.logs(f"app[{number}]: {'x' * 1900}\n")
        check.poll()

    known = check._logs[0]._known  # type: ignore[attr-defined]
    assert 0 < sum(len(word) for words in known for word in words) <= KNOWN_WORDS * KNOWN_BYTES


def test_another_code_or_another_gpu_is_not_folded(node: NodeFolder, time: FakeTime) -> None:
    check = check_on(node, time)
    node.logs(xid(31) + xid(79) + xid(31).replace("b9", "c1"))

    assert [event.code for event in check.poll()] == ["31", "79", "31"]


def test_after_its_minute_the_same_fault_is_told_at_once_again(node: NodeFolder, time: FakeTime) -> None:
    check = check_on(node, time)
    node.logs(xid(31))
    first = check.poll()
    time.seconds = WINDOW_SECONDS
    check.poll()

    node.logs(xid(31))
    second = check.poll()

    assert told(second) == [("31", 1, "boot-1")]
    assert second[0].event_id != first[0].event_id


def test_what_was_folded_survives_a_restart(node: NodeFolder, time: FakeTime) -> None:
    check = check_on(node, time)
    node.logs(xid(31) * 3)
    check.poll()

    check = restarted(check, node, time)

    assert told(check.poll()) == [("31", 2, "boot-1")]
    assert check.poll() == []


def test_more_different_faults_than_a_node_can_have_do_not_fill_the_memory(node: NodeFolder, time: FakeTime) -> None:
    check = check_on(node, time)
    node.logs("".join(xid(code) for code in range(OPEN_WINDOWS + 100)))

    assert len(check.poll()) == OPEN_WINDOWS + 100
    node.logs(xid(0))
    assert told(check.poll()) == [("0", 1, "boot-1")]  # its window was the oldest


def test_a_fault_from_before_the_reboot_is_reported_under_its_own_boot(node: NodeFolder, time: FakeTime) -> None:
    check = check_on(node, time)
    node.logs(xid(79))
    node.reboots("boot-2")
    node.logs(xid(31))

    check = restarted(check, node, time)

    assert told(check.poll()) == [("79", 1, "boot-1"), ("31", 1, "boot-2")]


def test_the_same_fault_after_the_reboot_is_not_folded_into_the_one_before(node: NodeFolder, time: FakeTime) -> None:
    check = check_on(node, time)
    node.logs(xid(79))
    node.reboots("boot-2")
    node.logs(xid(79))

    check = restarted(check, node, time)

    assert told(check.poll()) == [("79", 1, "boot-1"), ("79", 1, "boot-2")]


def test_reading_the_same_line_again_gives_the_same_event(node: NodeFolder, time: FakeTime) -> None:
    check = check_on(node, time)
    saved = json.loads(json.dumps(check.state()))
    node.logs(xid(79))

    [first], [again] = check.poll(), check_on(node, time, saved).poll()

    assert first.event_id == again.event_id


def test_a_banner_alone_is_no_fault(node: NodeFolder, time: FakeTime) -> None:
    check = check_on(node, time)
    node.logs(kernel_line(BANNER))

    assert check.poll() == []


def test_a_log_file_that_is_not_there_at_the_start_is_named(node: NodeFolder, time: FakeTime) -> None:
    node.kernel_log.unlink()

    with pytest.raises(FileNotFoundError, match=r"kernel\.log"):
        check_on(node, time)


def test_a_log_file_that_was_read_before_is_waited_for(
    node: NodeFolder, time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    check = check_on(node, time)
    node.logs(xid(79))
    before = told(check.poll())
    node.kernel_log.rename(node.kernel_log.with_suffix(".log.1"))  # and the new file is not there yet

    check = restarted(check, node, time)
    meanwhile = told(check.poll())
    node.logs(xid(31))

    assert (before, meanwhile, told(check.poll())) == ([("79", 1, "boot-1")], [], [("31", 1, "boot-1")])
    # Once, whatever a thread of an earlier test still logs in this process.
    assert sum("the kernel log does not exist" in record.getMessage() for record in caplog.records) == 1


def test_a_log_file_that_may_not_be_read_is_named_though_it_was_read_before(
    node: NodeFolder, time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = check_on(node, time)

    def refuses(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(node.kernel_log))

    monkeypatch.setattr(os, "open", refuses)

    with pytest.raises(PermissionError, match=r"kernel\.log"):
        restarted(check, node, time)


@pytest.mark.parametrize(("takes_drills", "codes"), [(False, ["31"]), (True, ["79", "31"])])
def test_a_drill_is_a_fault_only_where_drills_are_taken(
    node: NodeFolder, time: FakeTime, takes_drills: bool, codes: list[str]
) -> None:
    logs = [KernelLog("file", str(node.kernel_log))]
    check = KernelLogCheck(logs, IDENTITY, "boot-1", time.clock(), {}, takes_drills)
    node.logs(kernel_line(f"{XID_79} {DRILL_MARK}"))
    node.logs(xid(31))

    assert [event.code for event in check.poll()] == codes


WRONG: tuple[object, ...] = ([], {}, ["79"])
FOLDED: dict[str, object] = {
    "family": "xid",
    "code": "79",
    "component": None,
    "message": "a message",
    "boot_id": "boot-1",
    "position": "7",
    "evidence": "line",
    "seen_at": "2026-11-21T05:50:31+00:00",
    "count": 2,
}


@pytest.mark.parametrize(
    "folded",
    [
        7,
        [7],
        [{"family": "unheard_of"}],
        [{"family": "xid"}],
        *([{**FOLDED, key: wrong}] for key in FOLDED for wrong in WRONG),
    ],
)
def test_what_was_folded_by_another_version_is_forgotten_where_it_is_not_understood(
    node: NodeFolder, time: FakeTime, folded: object
) -> None:
    check = check_on(node, time, {"kernel_log.folded": folded})
    node.logs(xid(31))

    assert told(check.poll()) == [("31", 1, "boot-1")]


def kmsg_on(node: NodeFolder, time: FakeTime) -> tuple[KernelLogCheck, list[bytes]]:
    """A device, and what it has yet to say."""
    device = node.kernel_log.with_name("kmsg")
    device.touch()
    log, says = KernelLogCheck([KernelLog("kmsg", str(device))], IDENTITY, "boot-1", time.clock(), {}), list[bytes]()
    log._logs[0]._reader._read = lambda *_: says.pop(0) if says else b""  # type: ignore[attr-defined]
    return log, says


def test_user_space_is_not_believed_though_the_kernel_has_said_the_same_words(node: NodeFolder, time: FakeTime) -> None:
    log, device_says = kmsg_on(node, time)
    said = b",1,-;" + XID_79.encode() + b"\n"
    device_says += [
        b"3,1" + said,
        b"11,2" + said,
        b"11,3" + said,
        b"3,4" + said.replace(b": 79", b": 31"),
        b"3,5" + said,
    ]

    assert told(log.poll()) == [("79", 2, "boot-1"), ("31", 1, "boot-1")]


@pytest.mark.parametrize("words", [XID_79, "docker0: port 3(veth1f2e3d4) entered forwarding state"])
def test_lines_may_gather_in_a_storm_and_a_second_longer_unless_a_turn_was_full(
    node: NodeFolder, time: FakeTime, words: str
) -> None:
    log, device_says = kmsg_on(node, time)
    reader = log._logs[0]._reader  # type: ignore[attr-defined]

    def breathes(after: float, many: int) -> bool:
        time.seconds += after
        device_says.extend(f"3,{number},1,-;{words}\n".encode() for number in range(many))
        reader._last_sequence = -1
        log.poll()
        return log.breath_seconds > 0

    slowly = [breathes(2 * PACE_SECONDS, STORM_LINES - 1) for _ in range(4)]
    in_small_turns = [breathes(PACE_SECONDS / 8, STORM_LINES // 4) for _ in range(4)]
    afterwards = [breathes(STORM_SECONDS / 2, 0), breathes(STORM_SECONDS / 2, 0)]
    full = [breathes(1.0, RECORDS_A_TURN - 1), breathes(0.01, RECORDS_A_TURN), breathes(0.01, 0)]

    assert not any(slowly)
    assert in_small_turns[-1]
    assert afterwards == [True, False]
    assert full == [True, False, True]


def _becomes_a_folder(log: Path) -> None:
    log.mkdir()


def _becomes_a_pipe(log: Path) -> None:
    os.mkfifo(log)


def _becomes_a_link_to_itself(log: Path) -> None:
    log.symlink_to(log.name)


@pytest.mark.parametrize("becomes", [_becomes_a_folder, _becomes_a_pipe, _becomes_a_link_to_itself, None])
def test_a_log_file_that_cannot_be_read_any_more_is_waited_for_and_told_once(
    becomes: Callable[[Path], None] | None, node: NodeFolder, time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    check = check_on(node, time)
    node.kernel_log.rename(node.kernel_log.with_suffix(".log.1"))
    if becomes is not None:
        becomes(node.kernel_log)
    for second in range(int(TROUBLE_SECONDS) * 3):
        time.seconds = float(second)
        assert check.poll() == []
    if becomes is not None:
        node.kernel_log.rename(node.kernel_log.with_suffix(".away"))

    node.logs(xid(31))

    assert told(check.poll()) == [("31", 1, "boot-1")]
    said = [record.getMessage() for record in caplog.records]
    assert said == ["the kernel log cannot be read; retrying", "the kernel log is read again"]
    assert caplog.records[0].path == str(node.kernel_log)  # type: ignore[attr-defined]  # by `extra`


def test_a_log_file_that_is_away_for_a_moment_is_nothing_to_tell(
    node: NodeFolder, time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    check = check_on(node, time)
    for start in (0.0, 100.0):
        away = node.kernel_log.rename(node.kernel_log.with_suffix(".away"))
        for time.seconds in (start, start + TROUBLE_SECONDS - 1):
            check.poll()
        away.rename(node.kernel_log)
        check.poll()

    assert caplog.records == []


def test_a_disk_that_cannot_be_read_holds_up_no_other_file(
    node: NodeFolder, time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = check_on(node, time)
    spoilt = node.kernel_log.stat().st_ino
    node.logs(xid(13))
    read = os.pread

    def fails(descriptor: int, count: int, offset: int) -> bytes:
        if os.fstat(descriptor).st_ino == spoilt:
            raise OSError(errno.EIO, "Input/output error")
        return read(descriptor, count, offset)

    monkeypatch.setattr(os, "pread", fails)
    node.rotates_its_log()
    node.logs(xid(31))

    assert told(check.poll()) == [("31", 1, "boot-1")]

    saved = json.loads(json.dumps(check.state()))
    monkeypatch.setattr(os, "pread", read)
    check.close()
    assert told(check_on(node, time, saved).poll()) == [("13", 1, "boot-1")]


@pytest.mark.parametrize(
    "cursor", [{}, {"boot_id": "boot-1", "files": [{}]}, {"boot_id": "boot-1", "files": [{"identity": 7}]}]
)
def test_a_cursor_that_is_not_understood_is_told_and_what_stands_there_is_nobodys_news(
    cursor: dict[str, object], node: NodeFolder, time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    node.logs(xid(79))

    check = check_on(node, time, {f"kernel_log.file.{node.kernel_log}": cursor})
    node.logs(xid(31))

    assert told(check.poll()) == [("31", 1, "boot-1")]
    assert ["not valid; reading begins at the end" in record.getMessage() for record in caplog.records] == [True]
