"""The kernel's words out of journald, by a journalctl that answers what the test wants."""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time as real_time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from nodeheal.agent.checks import follower
from nodeheal.agent.checks import journal as journal_module
from nodeheal.agent.checks.kernel_log import KernelLogCheck
from nodeheal.agent.runtime.config import KernelLog
from nodeheal.agent.transport.event import HealthEvent
from nodeheal.contract.names import DRILL_MARK
from sandbox.toml import toml
from tests.support.agent_fakes import IDENTITY, XID_79, FakeEventBridge, FakeTime, NodeFolder, eventually
from tests.support.agent_process import AgentProcess

GOLDEN = Path(__file__).parents[2] / "golden" / "kernel_logs"
OLD_BOOT, BOOT = "0a1b2c3d-0000-4000-8000-000000000001", "0a1b2c3d-0000-4000-8000-000000000002"
# As much of journalctl as the agent asks for: it prints what the journal holds from a place on, then what comes.
JOURNALCTL = f"""#!{sys.executable}
import json, os, sys, time
folder = os.path.dirname(os.path.abspath(__file__))
with open(folder + "/arguments", "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
with open(folder + "/pids", "a") as file:
    file.write(f"{{os.getpid()}} ")
complaint = folder + "/complaint"
if os.path.exists(complaint):
    sys.stderr.write(open(complaint).read())
    sys.stderr.flush()
if os.path.exists(folder + "/dies"):
    sys.exit(7)
if os.path.exists(folder + "/hangs"):
    time.sleep(3600)
after = next((one[15:] for one in sys.argv if one.startswith("--after-cursor=")), None)
since = float(next((one[9:] for one in sys.argv if one.startswith("--since=@")), 0))
parent = os.getppid()
with open(folder + "/journal", "rb") as journal:
    while os.getppid() == parent:
        line = journal.readline()
        if not line:
            time.sleep(0.005)
            continue
        if after is not None:
            after = None if ('"' + after + '"').encode() in line else after
            continue
        if since and b'"at": ' in line and json.loads(line)["at"] < since:
            continue
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
"""


@dataclass
class Journal:
    """What journald has kept, and the journalctl that shows it."""

    folder: Path
    entries: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.journal = self.folder / "journal"
        self.journal.touch()
        tool = self.folder / "journalctl"
        tool.write_text(JOURNALCTL)
        tool.chmod(0o755)

    def says(self, message: object, boot: str = BOOT, **fields: object) -> None:
        """One entry; the kernel's, unless the fields say otherwise."""
        self.prints(self.entry(message, boot, **fields))

    def entry(self, message: object, boot: str = BOOT, **fields: object) -> str:
        """As journalctl prints it."""
        self.entries += 1
        entry: dict[str, object] = {"__CURSOR": self.cursor(self.entries), "_BOOT_ID": boot.replace("-", "")}
        entry |= {"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel", "MESSAGE": message, **fields}
        return json.dumps(entry) + "\n"

    @staticmethod
    def cursor(number: int) -> str:
        """As journald makes them."""
        return f"s={'5b6f' * 8};i={number:x};b={BOOT.replace('-', '')};m=1f;t=6{number:04x};x=7"

    def prints(self, text: str | bytes) -> None:
        """Whatever journalctl may print."""
        with self.journal.open("ab") as file:
            file.write(text.encode() if isinstance(text, str) else text)

    def pids(self) -> list[int]:
        """Of every journalctl that was started."""
        return [int(pid) for pid in (self.folder / "pids").read_text().split()]

    def starts(self) -> list[list[str]]:
        """What journalctl was started with, each time."""
        said = self.folder / "arguments"
        return [json.loads(line) for line in said.read_text().splitlines()] if said.exists() else []


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    made = Journal(tmp_path / "tools")
    monkeypatch.setenv("PATH", f"{made.folder}{os.pathsep}{os.environ['PATH']}")
    return made


@dataclass
class Listener:
    """A check that reads the journal, and all that it has told so far."""

    check: KernelLogCheck
    events: list[HealthEvent]

    def hears(self, *codes: str) -> list[HealthEvent]:
        """Wait for the events of these codes, in this order."""
        eventually(lambda: [event.code for event in self.poll()] == list(codes))
        return self.events

    def poll(self) -> list[HealthEvent]:
        self.events += self.check.poll()
        return self.events

    def restarted(self, time: FakeTime, boot: str = BOOT) -> "Listener":
        saved = json.loads(json.dumps(self.check.state()))
        self.check.close()
        return Listener(_check(time, saved, boot), [])


def _check(
    time: FakeTime, saved: dict[str, object] | None = None, boot: str = BOOT, takes_drills: bool = False
) -> KernelLogCheck:
    return KernelLogCheck([KernelLog("journald")], IDENTITY, boot, time.clock(), saved or {}, takes_drills)


@pytest.fixture
def listener(journal: Journal, time: FakeTime) -> Iterator[Listener]:
    made = Listener(_check(time), [])
    yield made
    made.check.close()


def xid(code: int) -> str:
    return f"NVRM: Xid (PCI:0000:b9:00): {code}, pid=1, name=python, something is wrong"


def test_a_fault_in_the_journal_is_reported_in_the_kernels_words(journal: Journal, listener: Listener) -> None:
    journal.says("usb 1-1: new device")
    journal.says(XID_79)

    [event] = listener.hears("79")

    assert (event.source, event.boot_id, event.evidence) == ("kernel_log", BOOT, XID_79)
    assert "_TRANSPORT=kernel" in journal.starts()[0]


def test_only_the_kernel_is_believed(journal: Journal, listener: Listener) -> None:
    journal.says(xid(31), _TRANSPORT="syslog")
    journal.says(xid(32), SYSLOG_FACILITY="1")
    journal.says("Xid (PCI:0000:b9:00): 48, pid=1", SYSLOG_FACILITY="1", SYSLOG_IDENTIFIER="NVRM")
    journal.says(xid(63), _TRANSPORT=["kernel", "syslog"])
    journal.says(xid(79), SYSLOG_FACILITY="0")

    assert [event.code for event in listener.hears("79")] == ["79"]


def test_a_recorded_journal_is_told_to_its_boots(journal: Journal, listener: Listener) -> None:
    """Recorded in the shape that systemd 252 prints, and broken in each way that its documents allow."""
    journal.prints((GOLDEN / "journald_two_boots.log").read_bytes())

    told = listener.hears("48", "63", "79")

    assert [event.boot_id for event in told] == [OLD_BOOT, BOOT, BOOT]
    assert ";i=9;" in json.dumps(listener.check.state())  # the last line's, though nothing in it is a fault


def test_a_drill_is_taken_where_drills_are_as_journald_cuts_it(journal: Journal, time: FakeTime) -> None:
    listener = Listener(_check(time, takes_drills=True), [])
    drill = f"Xid (PCI:0000:b9:00): 79, pid=1, {DRILL_MARK}"

    journal.says(drill, SYSLOG_FACILITY="1", SYSLOG_IDENTIFIER="NVRM")

    assert listener.hears("79")[0].evidence == f"NVRM: {drill}"
    listener.check.close()


def test_a_storm_is_one_event_at_once_and_one_for_the_rest(
    journal: Journal, listener: Listener, time: FakeTime
) -> None:
    for _ in range(500):
        journal.says(xid(31))
    journal.says(xid(79))
    eventually(lambda: "79" in [event.code for event in listener.poll()])

    time.seconds += 60

    told = listener.poll()
    assert sum(event.count for event in told if event.code == "31") == 500
    assert len([event for event in told if event.code == "31"]) <= 3


@pytest.mark.parametrize("facility", [{"SYSLOG_FACILITY": "0"}, {}], ids=["as now", "as in older versions"])
def test_in_a_storm_of_ten_thousand_entries_none_is_missed(
    journal: Journal, listener: Listener, time: FakeTime, facility: dict[str, str]
) -> None:
    messages = [xid(31), "usb 1-1: new device", xid(48), xid(31)]
    entries = [journal.entry(messages[number % 4], BOOT, **facility) for number in range(10_000)]
    journal.prints("".join([*entries, journal.entry(xid(79), BOOT, **facility)]))
    eventually(lambda: "79" in [event.code for event in listener.poll()])

    time.seconds += 60

    told = listener.poll()
    assert {code: sum(one.count for one in told if one.code == code) for code in ("31", "48")} == {
        "31": 5000,
        "48": 2500,
    }


def test_more_different_faults_at_once_than_are_remembered_are_all_told(journal: Journal, listener: Listener) -> None:
    """And those that are known from before, whatever is forgotten to make room."""
    processes = range(journal_module.KNOWN_WORDS + 10)
    journal.says(xid(31))
    listener.hears("31")

    journal.prints(
        "".join(
            journal.entry(f"NVRM: Xid (PCI:0000:b9:{process % 32:02x}): 48, pid={process}") for process in processes
        )
        + journal.entry(xid(31))
        + journal.entry(xid(79))
    )

    eventually(lambda: "79" in [event.code for event in listener.poll()])
    assert sum("31" in observation for observation in folded(listener)) == 1
    assert {event.component for event in listener.events if event.code == "48"} == {
        f"0000:b9:{number:02x}.0" for number in range(32)
    }


def folded(listener: Listener) -> list[str]:
    """The codes of what waits for its minute to be over."""
    return [str(one["code"]) for one in listener.check.state()["kernel_log.folded"]]  # type: ignore[attr-defined]


def test_entries_that_mean_different_things_are_told_apart_in_whatever_order_their_fields_come(
    journal: Journal, listener: Listener
) -> None:
    fields = {"SYSLOG_FACILITY": "0", "SYSLOG_IDENTIFIER": "kernel", "_TRANSPORT": "kernel"}
    for number, code in enumerate((31, 48, 79)):
        entry = {"__CURSOR": Journal.cursor(number), "MESSAGE": xid(code), "_BOOT_ID": BOOT.replace("-", ""), **fields}
        journal.prints(json.dumps(entry, separators=(",", ":")) + "\n")

    listener.hears("31", "48", "79")


def test_a_message_that_quotes_an_entry_is_read_as_a_message(journal: Journal, listener: Listener) -> None:
    quoted = '","_BOOT_ID":"x","MESSAGE":"usb","_TRANSPORT":"kernel","SYSLOG_FACILITY":"0","SYSLOG_IDENTIFIER":"kernel'

    journal.says(f"{xid(31)} {quoted}", SYSLOG_FACILITY="0")
    journal.says(f"{xid(48)} {quoted}", SYSLOG_FACILITY="0")

    listener.hears("31", "48")


def test_a_restart_goes_on_behind_the_last_entry(journal: Journal, listener: Listener, time: FakeTime) -> None:
    journal.says(xid(31))
    listener.hears("31")
    journal.says("usb 1-1: new device")
    eventually(lambda: listener.poll() and Journal.cursor(2) in json.dumps(listener.check.state()))

    again = listener.restarted(time)
    journal.says(xid(79))

    assert [event.code for event in again.hears("79")] == ["79"]
    assert f"--after-cursor={Journal.cursor(2)}" in journal.starts()[1]
    again.check.close()


def test_a_restart_before_anything_was_said_loses_nothing(journal: Journal, listener: Listener, time: FakeTime) -> None:
    time.seconds += 3600
    again = listener.restarted(time)

    journal.says(xid(79), at=time.clock().utc_now().timestamp() - 1800)

    again.hears("79")
    again.check.close()


def test_what_this_boot_has_said_before_the_first_start_ever_is_told_once_as_history(
    journal: Journal, time: FakeTime
) -> None:
    time.seconds = 100
    journal.says(xid(31), __CURSOR=cursor_at(time, -60))
    journal.says(xid(79), __CURSOR=cursor_at(time, -50))
    listener = Listener(_check(time), [])

    journal.says(xid(79), __CURSOR=cursor_at(time, 1))
    told = listener.hears("31", "79", "79")
    again = listener.restarted(time)
    journal.says(xid(48), __CURSOR=cursor_at(time, -1))  # as a clock of the journal's own might have it

    assert [event.is_history for event in told] == [True, True, False]
    assert told[0].observed_at == time.clock().utc_now() - timedelta(seconds=60)
    assert [event.is_history for event in again.hears("48")] == [False]
    again.check.close()


def test_a_replay_that_was_cut_off_goes_on_as_history(journal: Journal, time: FakeTime) -> None:
    time.seconds = 100
    journal.says(xid(31), __CURSOR=cursor_at(time, -60))
    listener = Listener(_check(time), [])
    listener.hears("31")

    again = listener.restarted(time)
    journal.says(xid(79), __CURSOR=cursor_at(time, -50))

    assert [event.is_history for event in again.hears("79")] == [True]
    again.check.close()


def cursor_at(time: FakeTime, seconds: float) -> str:
    """Of an entry that was written so long after now."""
    since_boot = int((time.seconds + seconds) * 1e6)
    at = int((time.clock().utc_now() + timedelta(seconds=seconds)).timestamp() * 1e6)
    return f"s={'5b6f' * 8};i=1;b={BOOT.replace('-', '')};m={since_boot:x};t={at:x};x=7"


def test_what_the_last_boot_said_before_it_died_is_told_once_as_history(journal: Journal, time: FakeTime) -> None:
    before = Listener(_check(time, boot=OLD_BOOT), [])
    journal.says(xid(31), boot=OLD_BOOT)
    before.hears("31")
    journal.says(xid(48), boot=OLD_BOOT)

    after = before.restarted(time, BOOT)
    journal.says(xid(79))
    after.hears("48", "79")
    once_more = after.restarted(time)
    journal.says(xid(63))

    assert [(event.code, event.boot_id) for event in after.events] == [("48", OLD_BOOT), ("79", BOOT)]
    assert [event.code for event in once_more.hears("63")] == ["63"]
    once_more.check.close()


def test_a_saved_place_that_is_not_understood_reads_the_boot_again(journal: Journal, time: FakeTime) -> None:
    listener = Listener(_check(time, {"kernel_log.journald.": {"cursor": "--vacuum-time=1s"}}), [])

    eventually(journal.starts)

    assert "--boot" in journal.starts()[0]
    assert not any("vacuum" in one for one in journal.starts()[0])
    listener.check.close()


@pytest.mark.parametrize(
    "junk",
    [
        b"-- Journal begins at Sat 2026-11-21 05:50:31 UTC. --\n",
        b'{"__CURSOR":"s=1;i=2;b=3;m=4;t=5;x=6","MESSAGE":"NVRM: Xid (PCI:0000:b9:00): 31, pid\n',
        b"\xff\xfe\x00NVRM: Xid\n",
        b"[1, 2]\n",
        b"[" * 50_000 + b"\n",
        b'{"MESSAGE": null, "_TRANSPORT": "kernel"}\n',
        b'{"MESSAGE": {"a": ["NVRM: "]}, "_TRANSPORT": "kernel", "SYSLOG_FACILITY": []}\n',
        b"x" * (follower.LINE_BYTES * 3) + b"\n",
    ],
)
def test_junk_hides_nothing_that_comes_behind_it(journal: Journal, listener: Listener, junk: bytes) -> None:
    journal.prints(junk)
    journal.says(xid(79))

    assert [event.code for event in listener.hears("79")] == ["79"]


def test_a_message_that_is_no_text_is_read_as_its_bytes(journal: Journal, listener: Listener) -> None:
    journal.says(list(xid(79).encode() + b" \x1b\xff"))

    assert listener.hears("79")[0].component == "0000:b9:00.0"


def test_an_entry_that_comes_in_pieces_is_one(journal: Journal, listener: Listener) -> None:
    journal.says(xid(79))
    whole = journal.journal.read_bytes()
    journal.journal.write_bytes(whole[:70])
    listener.poll()

    journal.prints(whole[70:])

    listener.hears("79")


def test_a_journalctl_that_dies_is_started_again_where_it_was(
    journal: Journal, listener: Listener, time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    journal.says(xid(31))
    listener.hears("31")
    process = listener.check._logs[0]._follower._process  # type: ignore[attr-defined]
    descriptors = listener.check.descriptors()

    os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: listener.poll() and "it has ended" in str(caplog.records[-1:] and vars(caplog.records[-1])))
    journal.says(xid(79))
    time.seconds += follower.FIRST_PAUSE_SECONDS

    assert [event.code for event in listener.hears("31", "79")] == ["31", "79"]
    assert f"--after-cursor={Journal.cursor(1)}" in journal.starts()[1]
    assert listener.check.descriptors() == descriptors


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_journalctl_that_hangs_without_a_word_is_found_out_and_nothing_is_lost(
    journal: Journal, time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    (journal.folder / "hangs").touch()
    listener = Listener(_check(time), [])
    eventually(journal.starts)
    listener.poll()
    journal.says(xid(79))
    (journal.folder / "hangs").unlink()

    time.seconds += follower.SILENT_SECONDS

    listener.hears("79")
    assert warnings(caplog) == ["journalctl did not print entries that the journal had; it was restarted"]
    listener.check.close()


def test_a_kernel_that_has_nothing_to_say_is_no_trouble(
    journal: Journal, listener: Listener, time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    journal.says(xid(31))
    listener.hears("31")
    time.seconds += follower.SILENT_SECONDS - 1
    listener.poll()
    time.seconds += 1
    eventually(lambda: listener.poll() and len(journal.starts()) == 2)

    just_now = f";t={int(time.clock().utc_now().timestamp() * 1e6):x};"
    journal.says(xid(79), __CURSOR=Journal.cursor(2).replace(";t=60002;", just_now))

    listener.hears("31", "79")
    assert f"--after-cursor={Journal.cursor(1)}" in journal.starts()[1]
    assert warnings(caplog) == []


def test_a_journalctl_that_is_silent_and_cannot_be_ended_is_told_once(
    journal: Journal,
    listener: Listener,
    time: FakeTime,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    eventually(journal.starts)
    listener.poll()
    process = listener.check._logs[0]._follower._process  # type: ignore[attr-defined]
    monkeypatch.setattr(process, "kill", lambda: None)  # as one that waits for its disk takes it
    time.seconds += follower.SILENT_SECONDS
    listener.poll()

    for _ in range(3):
        time.seconds += follower.END_SECONDS
        listener.poll()

    assert [vars(record)["it is silent"] for record in caplog.records] == ["and it cannot be ended"]
    assert len(journal.starts()) == 1


def test_what_a_journalctl_had_half_said_when_it_died_is_no_line(
    journal: Journal, listener: Listener, time: FakeTime
) -> None:
    journal.says(xid(31))
    listener.hears("31")
    log = listener.check._logs[0]
    process = log._follower._process  # type: ignore[attr-defined]
    journal.prints(b'{"MESSAGE": "cut ')
    eventually(lambda: listener.poll() and log._follower._rest)  # type: ignore[attr-defined]

    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    listener.poll()
    journal.journal.write_bytes(journal.journal.read_bytes().removesuffix(b'{"MESSAGE": "cut '))
    journal.says(xid(79))
    time.seconds += follower.FIRST_PAUSE_SECONDS

    listener.hears("31", "79")


def test_one_that_dies_at_once_is_complained_of_once_and_not_started_in_a_loop(
    journal: Journal, listener: Listener, time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    (journal.folder / "dies").touch()
    (journal.folder / "complaint").write_text("No journal files were opened due to insufficient permissions.\n")
    process = listener.check._logs[0]._follower._process  # type: ignore[attr-defined]
    process.kill()
    process.wait()
    listener.poll()

    for _ in range(600):  # ten minutes
        time.seconds += 1
        listener.poll()
        now = listener.check._logs[0]._follower._process  # type: ignore[attr-defined]
        if now is not None:
            now.wait()

    said = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(journal.starts()) < 20
    assert len(said) == 3  # killed; what it complains about; that it ends with 7
    assert "insufficient permissions" in str([vars(record) for record in said])


def test_one_that_complains_in_other_words_each_moment_is_told_of_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = tmp_path / "told"
    waits = f"echo > {told}$i; while [ -e {told}$i ]; do sleep 0.01; done"
    script = f"for i in 1 2 3 4 5; do echo trouble $i >&2; {waits}; done"
    listening = follower.Follower(lambda: ["sh", "-c", script])

    for number, now in enumerate((0.0, 1.0, follower.COMPLAINT_SECONDS - 1, follower.COMPLAINT_SECONDS), start=1):
        mark = Path(f"{told}{number}")
        eventually(mark.exists)
        listening.read(now)
        mark.unlink()

    assert [vars(record)["it complains"] for record in caplog.records] == ["trouble 1", "trouble 4"]
    listening.close()


def test_one_that_is_taken_away_is_waited_for(
    journal: Journal, listener: Listener, time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = listener.check._logs[0]._follower._process  # type: ignore[attr-defined]
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", str(journal.folder / "nowhere"))
    process.kill()
    process.wait()
    for _ in range(5):
        listener.poll()
        time.seconds += 1

    monkeypatch.setenv("PATH", path)
    journal.says(xid(79))
    time.seconds += follower.LONGEST_PAUSE_SECONDS

    listener.hears("79")


def test_without_a_journalctl_the_agent_does_not_start(time: FakeTime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(FileNotFoundError, match="journalctl"):
        _check(time)


def test_journalctl_ends_with_the_check(journal: Journal, listener: Listener) -> None:
    process = listener.check._logs[0]._follower._process  # type: ignore[attr-defined]

    listener.restarted(FakeTime()).check.close()

    assert process.returncode is not None


def test_select_hears_the_journal(journal: Journal, listener: Listener) -> None:
    assert len(listener.check.descriptors()) == 1
    assert not listener.check.must_be_polled


def test_an_agent_that_is_killed_leaves_no_journalctl_and_loses_nothing(
    journal: Journal, node: NodeFolder, bus: FakeEventBridge
) -> None:
    node.boot_id_file.write_text(BOOT)
    node.config_file.write_text(toml(node.config() | {"kernel_log": [{"kind": "journald"}]}))
    agent = AgentProcess(node)
    agent.start()
    eventually(lambda: bus.details("Node Booted"))
    journal.says(xid(31))
    eventually(lambda: "31" in bus.codes())
    agent.ends(signal.SIGKILL)
    journal.says(xid(48))

    agent.start()
    eventually(lambda: "48" in bus.codes())
    stopped = agent.ends(signal.SIGTERM)

    # The bus may get an event twice, under one id.
    assert sorted({one["event_id"]: one["code"] for one in bus.details()}.values()) == ["31", "48"]
    assert stopped == 0
    assert len(journal.starts()) == 2
    eventually(lambda: not any(_is_running(pid) for pid in journal.pids()))


def _is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.skipif(not shutil.which("journalctl"), reason="this machine has no journalctl")
@pytest.mark.parametrize("place", [{}, {"since": 4_000_000_000}, {"cursor": Journal.cursor(1)}])
def test_the_real_journalctl_takes_what_it_is_asked(
    time: FakeTime, place: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    check = KernelLogCheck([KernelLog("journald")], IDENTITY, BOOT, time.clock(), {"kernel_log.journald.": place})
    real_time.sleep(0.3)

    check.poll()

    said = str([vars(record) for record in caplog.records])
    assert not any(word in said for word in ("Failed to parse", "Failed to seek", "unrecognized", "invalid option"))
    check.close()


@pytest.mark.skipif(not shutil.which("journalctl"), reason="this machine has no journalctl")
def test_the_real_journalctl_ends_when_nobody_listens_any_more() -> None:
    """However we end: kill -9 closes what we read from."""
    ours, theirs = os.pipe()
    follow = ["journalctl", "--follow", "--no-tail", "--output=json", "--since=@4000000000", "_TRANSPORT=kernel"]
    process = subprocess.Popen(follow, stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    real_time.sleep(0.2)
    if process.poll() is not None:
        pytest.skip("this machine has no journal")

    os.close(ours)

    process.wait(timeout=20)
