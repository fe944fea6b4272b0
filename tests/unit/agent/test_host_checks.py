"""The checks of the host: mounts, memory, stuck processes, RAM, EFA and InfiniBand, and whether jobs move."""

import errno
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.agent.checks import memory, mounts, processes, progress, ram_ecc, rdma
from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, State
from nodeheal.agent.checks.check_ipc import ProcessAnswer, dumped
from nodeheal.agent.checks.check_runner import ANSWER_BYTES
from nodeheal.agent.checks.registry import CHECKS
from nodeheal.agent.checks.tools import run_tool
from nodeheal.agent.diagnostics.bench import Output
from nodeheal.agent.runtime import probe
from nodeheal.agent.runtime.thresholds import RAM_CORRECTED as RAM_CORRECTED_LIMIT
from nodeheal.agent.runtime.thresholds import RDMA_ERRORS
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Family
from nodeheal.domain.faults.catalog import find
from tests.support.agent_fakes import CONFIG

RAM_CORRECTED, RDMA_MANY = int(RAM_CORRECTED_LIMIT.default), int(RDMA_ERRORS.default)
PORT = "class/infiniband/rdmap79s0/ports/1"


def told(look: NodeCheckResult) -> list[tuple[str, str | None]]:
    return [(one.finding.code, one.finding.component) for one in (*look.problems, *look.happened)]


@pytest.fixture
def place(tmp_path: Path) -> CheckContext:
    for folder in ("proc", "sys", "etc", "progress"):
        (tmp_path / folder).mkdir()
    config = replace(CONFIG, progress_dir=str(tmp_path / "progress"))
    return CheckContext(config, run_tool, proc=tmp_path / "proc", sys=tmp_path / "sys", etc=tmp_path / "etc")


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


# Mounts --------------------------------------------------------------------------------------------------------------


HALF_FULL = "4096 1000 500 500 100 90\n"


class Stat:
    """A tool that hangs on the file systems named."""

    def __init__(self, *hangs: str) -> None:
        self.hangs, self.asked = hangs, list[str]()

    def __call__(self, command: Sequence[str], seconds: float) -> Output:
        self.asked.append(command[-1])
        hung = f"no answer within {seconds:g} s" if command[-1] in self.hangs else ""
        return Output("" if hung else HALF_FULL, "", probe.Ran(exit_code=None if hung else 0, error=hung))


def mounted(place: CheckContext, stat: Stat, *points: str) -> CheckContext:
    write(place.proc, "mounts", "".join(f"fs:/x {point} lustre rw 0 0\n" for point in points))
    return replace(place, run=stat, config=replace(place.config, mounts=("/fsx", "/home/shared")))


def test_a_file_system_that_jobs_need_is_mounted_and_answers(place: CheckContext) -> None:
    stat = Stat()

    there = mounted(place, stat, "/fsx", "/home/shared")
    look = mounts.CHECK.look(there, {})

    assert (told(look), look.why_unclear, mounts.CHECK.why_not(there)) == ([], "", "")
    assert stat.asked == ["/fsx", "/home/shared"]


def test_one_that_is_not_mounted_is_named_and_not_asked(place: CheckContext) -> None:
    stat = Stat()

    assert told(mounts.CHECK.look(mounted(place, stat, "/fsx"), {})) == [("mount_missing", "/home/shared")]
    assert stat.asked == ["/fsx"]


def test_one_that_hangs_is_named_and_left_alone_for_a_while(place: CheckContext) -> None:
    stat, state, looks = Stat("/fsx"), dict[str, object](), []
    there = mounted(place, stat, "/fsx", "/home/shared")
    for _ in range(mounts.LOOKS_BETWEEN_HANGS + 2):
        look = mounts.CHECK.look(there, state)
        state = dict(look.state)
        looks.append(told(look))

    assert looks == [[("mount_hung", "/fsx")]] * (mounts.LOOKS_BETWEEN_HANGS + 2)
    assert stat.asked.count("/fsx") == 2


def test_one_that_answers_with_an_error_is_not_fine_and_is_no_hang_either(place: CheckContext) -> None:
    def fails(*_: object) -> Output:
        return Output("", "stat: cannot read '/fsx': Stale file handle\n", probe.Ran(exit_code=1))

    there = replace(mounted(place, Stat(), "/fsx", "/home/shared"), run=fails)

    look = mounts.CHECK.look(there, {})

    assert told(look) == []
    assert look.doubts["/fsx"] == "/fsx: stat: cannot read '/fsx': Stale file handle"


def test_where_the_tool_itself_fails_that_is_what_is_said(place: CheckContext) -> None:
    def is_absent(*_: object) -> Output:
        return Output("", "", probe.Ran(error=probe.NOT_INSTALLED))

    there = replace(mounted(place, Stat(), "/fsx", "/home/shared"), run=is_absent)

    assert mounts.CHECK.look(there, {}).doubts["/fsx"] == f"/fsx: {probe.NOT_INSTALLED}"


def test_the_real_tool_answers_for_the_root(place: CheckContext) -> None:
    write(place.proc, "mounts", "dev / ext4 rw 0 0\n")
    there = replace(place, config=replace(place.config, mounts=("/",)))

    assert told(mounts.CHECK.look(there, {})) in ([], [("mount_missing", "/")])


def test_the_real_tool_reports_the_capacity_that_the_kernel_does(place: CheckContext, tmp_path: Path) -> None:
    write(place.proc, "mounts", f"dev {tmp_path} ext4 rw 0 0\n")
    there = replace(
        place, config=replace(place.config, mounts=(str(tmp_path),), thresholds={"mount_full_percent": 100})
    )

    look = mounts.CHECK.look(there, {})

    status = os.statvfs(tmp_path)
    blocks = 100.0 * (1 - status.f_bavail / (status.f_blocks - status.f_bfree + status.f_bavail))
    inodes = 100.0 * (1 - status.f_favail / status.f_files) if status.f_files else 0.0
    assert look.gauges[f"mount_used_percent:{tmp_path}"] == pytest.approx(max(blocks, inodes), abs=1.0)


def answering(place: CheckContext, text: str) -> CheckContext:
    def stat(*_: object) -> Output:
        return Output(text, "", probe.Ran(exit_code=0))

    write(place.proc, "mounts", "fs:/x /fsx lustre rw 0 0\n")
    return replace(place, run=stat, config=replace(place.config, mounts=("/fsx",)))


@pytest.mark.parametrize(
    ("text", "used", "problems"),
    [
        ("4096 1000 51 51 100 100", 94.9, []),
        ("4096 1000 50 50 100 100", 95.0, [("mount_full", "/fsx")]),
        ("4096 1000 150 50 100 100", 100 * 850 / 900, []),
        ("4096 1000 500 500 100 1", 99.0, [("mount_full", "/fsx")]),
        ("4096 1000 500 500 0 0", 50.0, []),
    ],
    ids=["below the limit", "at the limit", "what is reserved for root", "inodes", "no inodes"],
)
def test_a_shared_file_system_that_is_nearly_full_is_reported(
    place: CheckContext, text: str, used: float, problems: list[tuple[str, str]]
) -> None:
    look = mounts.CHECK.look(answering(place, text), {})

    assert look.gauges == {"mount_used_percent:/fsx": pytest.approx(used)}
    assert (told(look), look.why_unclear) == (problems, "")


def test_the_size_that_efs_reports_is_no_size(place: CheckContext) -> None:
    look = mounts.CHECK.look(answering(place, "1048576 8796093022207 0 0 0 0"), {})

    assert (told(look), look.gauges, look.why_unclear) == ([], {}, "")


@pytest.mark.parametrize("text", ["", "4096 1000", "4096 -1 0 0 0 0", "? ? ? ? ? ?", "9" * 5000 + " 1 1 1 1 1"])
def test_a_size_that_is_not_understood_is_neither_full_nor_healthy(place: CheckContext, text: str) -> None:
    look = mounts.CHECK.look(answering(place, text), {})

    assert (told(look), look.gauges) == ([], {})
    assert look.doubts["/fsx"].startswith("/fsx: its size cannot be read")


def test_file_systems_that_hang_leave_the_check_time_to_report_them(
    place: CheckContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("nodeheal.agent.checks.mounts.time.monotonic", lambda: clock[0])

    def stat(command: Sequence[str], seconds: float) -> Output:
        clock[0] += seconds
        return Output("", "", probe.Ran(error=f"no answer within {seconds:g} s"))

    points = [f"/fsx{number}" for number in range(20)]
    write(place.proc, "mounts", "".join(f"fs:/x {point} lustre rw 0 0\n" for point in points))
    there = replace(place, run=stat, config=replace(place.config, mounts=tuple(points)))

    look = mounts.CHECK.look(there, {})

    assert clock[0] < mounts.CHECK.deadline_seconds
    assert {code for code, _ in told(look)} == {"mount_hung"}
    assert len(look.problems) + len(look.doubts) == len(points)
    assert "not checked" in look.doubts["/fsx19"]


def test_without_mounts_in_the_configuration_there_is_nothing_to_check(place: CheckContext) -> None:
    assert "mounts" in mounts.CHECK.why_not(place)


# Memory --------------------------------------------------------------------------------------------------------------

MEMINFO = "MemTotal:       1000 kB\nMemFree: 10 kB\nMemAvailable:    250 kB\n"
PRESSURE = "some avg10=1.00 avg60=90.00 avg300=3.00 total=4\nfull avg10=5.00 avg60={} avg300=7.00 total=8\n"


@pytest.mark.parametrize(("stalled", "codes"), [("19.99", []), ("20.00", [("memory_pressure", None)])])
def test_a_host_on_which_all_tasks_wait_for_memory_is_short_of_it(
    place: CheckContext, stalled: str, codes: list[tuple[str, None]]
) -> None:
    write(place.proc, "meminfo", MEMINFO)
    write(place.proc, "pressure/memory", PRESSURE.format(stalled))

    look = memory.CHECK.look(place, {})

    assert told(look) == codes
    assert look.gauges == {"memory_stalled_percent": float(stalled)}


@pytest.mark.parametrize(
    ("meminfo", "used"),
    [
        (MEMINFO, 75.0),
        ("MemTotal: 0 kB\nMemAvailable: 5 kB\n", None),
        ("MemTotal: 5 kB\n", None),
        ("MemAvailable: 5 kB\n", None),
    ],
)
def test_how_much_memory_is_in_use_is_told_or_not_known(meminfo: str, used: float | None) -> None:
    assert memory.parse_used_percent(meminfo) == used


def test_a_kernel_that_does_not_measure_pressure_is_not_looked_at(place: CheckContext) -> None:
    without = memory.CHECK.why_not(place)
    write(place.proc, "pressure/memory", "")

    assert (bool(without), memory.CHECK.why_not(place)) == (True, "")


@pytest.mark.parametrize(("pressure", "meminfo"), [("full avg60=", MEMINFO), (PRESSURE.format("1"), "MemTotal: 0 kB")])
def test_what_is_not_understood_is_not_fine(place: CheckContext, pressure: str, meminfo: str) -> None:
    write(place.proc, "meminfo", meminfo)
    write(place.proc, "pressure/memory", pressure)

    assert memory.CHECK.look(place, {}).unclear


# Processes -----------------------------------------------------------------------------------------------------------


def process(
    place: CheckContext,
    pid: int,
    state: str,
    *,
    switches: int = 7,
    started: int = 5,
    name: str = "python3",
    flags: int = 0x400100,
    opened: str = "/dev/nvidia0",
) -> None:
    write(
        place.proc, f"{pid}/stat", f"{pid} ({name}) {state} 1 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 {started} 9 9\n"
    )
    counts = f"voluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t1\n"
    write(place.proc, f"{pid}/status", f"Name:\t{name}\n{counts}")
    descriptors = place.proc / str(pid) / "fd"
    descriptors.mkdir(exist_ok=True)
    (descriptors / "3").unlink(missing_ok=True)
    (descriptors / "3").symlink_to(opened)


def stuck(place: CheckContext) -> NodeCheckResult:
    """The second of two looks at a node on which nothing runs meanwhile."""
    return processes.CHECK.look(place, processes.CHECK.look(place, {}).state)


def test_a_process_that_has_waited_from_one_look_to_the_next_is_stuck(place: CheckContext) -> None:
    process(place, 41, "D", name="train (rank 0)")
    process(place, 42, "S")

    first = processes.CHECK.look(place, {})
    second = processes.CHECK.look(place, first.state)

    assert (told(first), told(second)) == ([], [("d_state_processes", None)])
    assert "train (rank 0) (41)" in second.problems[0].evidence


@pytest.mark.parametrize("change", [{"switches": 8}, {"started": 6}, {"state": "R"}])
def test_one_that_has_run_in_between_or_is_another_one_is_not(place: CheckContext, change: dict[str, object]) -> None:
    process(place, 41, "D")
    first = processes.CHECK.look(place, {})
    process(place, 41, **{"state": "D", **change})  # type: ignore[arg-type]

    assert told(processes.CHECK.look(place, first.state)) == []


@pytest.mark.parametrize(
    ("opened", "codes"),
    [
        ("/dev/nvidia7", ["d_state_processes"]),
        ("/dev/nvidia-uvm", ["d_state_processes"]),
        ("/dev/neuron3", ["d_state_processes"]),
        ("/dev/infiniband/uverbs0", ["d_state_processes"]),
        ("/dev/null", []),
        ("/fsx/dev/nvidia0", []),
        ("socket:[4711]", []),
    ],
)
def test_one_that_waits_keeps_others_from_an_accelerator_only_if_it_has_one_open(
    place: CheckContext, opened: str, codes: list[str]
) -> None:
    process(place, 41, "D", opened=opened)

    look = stuck(place)

    assert ([code for code, _ in told(look)], look.unclear) == (codes, "")


@pytest.mark.parametrize("change", [{"flags": 0x208040}, {"state": "I"}, {"state": "S"}])
def test_threads_of_the_kernel_and_what_may_be_interrupted_wait_by_trade(
    place: CheckContext, change: dict[str, object]
) -> None:
    process(place, 41, **{"state": "D", **change})  # type: ignore[arg-type]

    assert told(stuck(place)) == []


@pytest.mark.parametrize(
    ("users", "codes", "is_unclear"),
    [(frozenset({41}), ["d_state_processes"], False), (frozenset({42}), [], False), (None, [], True)],
)
def test_what_another_users_process_has_open_the_driver_tells_or_nobody(
    place: CheckContext,
    monkeypatch: pytest.MonkeyPatch,
    users: frozenset[int] | None,
    codes: list[str],
    is_unclear: bool,
) -> None:
    process(place, 41, "D")
    monkeypatch.setattr(processes, "gpu_users", lambda _: users)
    monkeypatch.setattr("nodeheal.agent.checks.gpu_processes.os.scandir", refused)

    look = stuck(place)

    assert ([code for code, _ in told(look)], bool(look.unclear)) == (codes, is_unclear)
    assert ("python3 (41)" in look.unclear) == is_unclear


def refused(*_: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied")


def test_where_nothing_waits_the_driver_is_not_asked(place: CheckContext, monkeypatch: pytest.MonkeyPatch) -> None:
    process(place, 41, "R")
    monkeypatch.setattr(processes, "gpu_users", refused)

    assert told(stuck(place)) == []


def test_what_is_closed_while_it_is_looked_at_hides_nothing_else(
    place: CheckContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_gone(link: Path) -> Path:
        if link.name == "3":
            raise FileNotFoundError(errno.ENOENT, "gone")
        return Path("/dev/nvidia0")

    process(place, 41, "D")
    process(place, 42, "D")
    (place.proc / "42/fd/4").symlink_to("/dev/nvidia0")
    monkeypatch.setattr("nodeheal.agent.checks.gpu_processes.Path.readlink", is_gone)
    monkeypatch.setattr("nodeheal.agent.checks.gpu_processes.os.scandir", in_order)

    look = stuck(place)

    assert ("(42)" in look.problems[0].evidence, "(41)" in look.problems[0].evidence) == (True, False)


@contextmanager
def in_order(folder: Path) -> Iterator[list[Path]]:
    """As scandir does, the first first."""

    class Entry:
        def __init__(self, path: Path) -> None:
            self.path = str(path)

    yield [Entry(path) for path in sorted(folder.iterdir())]  # type: ignore[misc]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "41 (x) D 1 2 3",
        "self (x) D 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 9",
        "41 (x) D 1 1 1 0 -1 flags 0 0 0 0 0 0 0 0 20 0 1 0 5 9",
        "41 (x) D 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 never 9",
    ],
)
def test_what_is_no_process_is_not_counted(place: CheckContext, line: str) -> None:
    process(place, 42, "S")
    write(place.proc, "41/stat", line)
    write(place.proc, "self/stat", (place.proc / "42/stat").read_text())

    assert processes.CHECK.look(place, {}).summary == "1 processes"


def test_the_first_that_are_stuck_are_named_and_the_rest_counted(place: CheckContext) -> None:
    for pid in range(1, processes.TOLD + 2):
        process(place, pid, "D")
    more = stuck(place).problems[0].evidence
    process(place, 1, "S")

    all_of_them = stuck(place).problems[0].evidence

    assert (more.endswith(f"({processes.TOLD}) and 1 more"), more.count("python3")) == (True, processes.TOLD)
    assert (all_of_them.endswith(f"({processes.TOLD + 1})"), all_of_them.count("python3")) == (True, processes.TOLD)


def test_one_that_ends_while_it_is_looked_at_holds_nothing(place: CheckContext) -> None:
    process(place, 41, "D")
    (place.proc / "41/fd/3").unlink()
    (place.proc / "41/fd").rmdir()

    assert (told(stuck(place)), stuck(place).unclear) == ([], "")


@pytest.mark.parametrize(("count", "problems"), [(499, 0), (500, 1)])
def test_many_dead_processes_are_a_problem(place: CheckContext, count: int, problems: int) -> None:
    process(place, count + 1, "S")
    for pid in range(1, count + 1):
        process(place, pid, "Z")

    look = processes.CHECK.look(place, {})

    assert len(look.problems) == problems
    assert all(f"and {count - processes.TOLD} more" in one.evidence for one in look.problems)


def test_the_processes_of_this_machine_can_be_read(place: CheckContext) -> None:
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        look = processes.CHECK.look(replace(place, proc=Path("/proc")), {})
    finally:
        sleeper.kill()
        sleeper.wait()

    assert int(look.summary.split()[0]) >= 2


# RAM -----------------------------------------------------------------------------------------------------------------


def edac(place: CheckContext, corrected: object, uncorrected: object) -> None:
    write(place.sys, f"{ram_ecc.CONTROLLERS}/mc0/ce_count", f"{corrected}\n")
    write(place.sys, f"{ram_ecc.CONTROLLERS}/mc0/ue_count", f"{uncorrected}\n")


@pytest.mark.parametrize(
    ("corrected", "uncorrected", "codes"),
    [
        (RAM_CORRECTED - 1, 2, []),
        (RAM_CORRECTED, 2, [("ram_ecc", "mc0")]),
        (0, 3, [("edac_ue", "mc0")]),
        (0, 2 + RAM_CORRECTED, [("edac_ue", "mc0")]),
    ],
)
def test_what_the_memory_controllers_count_from_look_to_look_is_told(
    place: CheckContext, corrected: int, uncorrected: int, codes: list[tuple[str, str]]
) -> None:
    edac(place, 0, 2)
    first = ram_ecc.CHECK.look(place, {})
    edac(place, corrected, uncorrected)

    second = ram_ecc.CHECK.look(place, first.state)

    assert (told(first), told(second), second.unclear) == ([], codes, "")
    assert told(ram_ecc.CHECK.look(place, second.state)) == []


def test_memory_that_no_controller_counts_is_not_looked_at(place: CheckContext) -> None:
    without = ram_ecc.CHECK.why_not(place)
    edac(place, 0, 0)

    assert (bool(without), ram_ecc.CHECK.why_not(place)) == (True, "")


def test_a_counter_that_cannot_be_read_is_named(place: CheckContext) -> None:
    edac(place, "many", 0)

    assert ram_ecc.CHECK.look(place, {}).unclear == "cannot be read: mc0/ce_count"


def test_a_counter_that_cannot_be_read_once_keeps_its_number(place: CheckContext) -> None:
    edac(place, 900, 3)
    first = ram_ecc.CHECK.look(place, {})
    edac(place, "", "")
    blind = ram_ecc.CHECK.look(place, first.state)
    edac(place, 900 + RAM_CORRECTED, 4)

    last = ram_ecc.CHECK.look(place, blind.state)

    assert told(blind) == []
    assert told(last) == [("ram_ecc", "mc0"), ("edac_ue", "mc0")]
    assert [one.count for one in last.happened] == [RAM_CORRECTED, 1]


# EFA and InfiniBand --------------------------------------------------------------------------------------------------


def port(place: CheckContext, *, state: str = "4: ACTIVE", **counters: int) -> None:
    write(place.sys, f"{PORT}/state", f"{state}\n")
    for name, count in {"rx_drops": 0, **counters}.items():
        write(place.sys, f"{PORT}/hw_counters/{name}", f"{count}\n")


def test_an_active_port_is_fine_and_a_port_that_is_down_is_not(place: CheckContext) -> None:
    port(place)
    fine = rdma.CHECK.look(place, {})
    port(place, state="1: DOWN")

    down = rdma.CHECK.look(place, {})

    assert (told(fine), fine.unclear) == ([], "")
    assert told(down) == [("LINK_DOWN", "rdmap79s0")]


@pytest.mark.parametrize(
    ("before", "after", "codes"),
    [
        ({"rx_drops": 5}, {"rx_drops": 5 + RDMA_MANY}, ["rx_drops"]),
        ({"rx_drops": 5}, {"rx_drops": 4 + RDMA_MANY}, []),
        ({"rx_drops": 9 * RDMA_MANY}, {"rx_drops": 0}, []),
        ({"link_downed": 3}, {"link_downed": 4}, ["link_downed"]),
        ({"tx_bytes": 3}, {"tx_bytes": 3_000_000}, []),
    ],
)
def test_errors_that_grow_are_told_and_old_ones_are_not(
    place: CheckContext, before: dict[str, int], after: dict[str, int], codes: list[str]
) -> None:
    port(place, **before)  # type: ignore[arg-type]
    first = rdma.CHECK.look(place, {})
    port(place, **after)  # type: ignore[arg-type]

    second = rdma.CHECK.look(place, first.state)

    assert (told(first), [code for code, _ in told(second)]) == ([], codes)


@pytest.mark.parametrize(("name", "family"), [("rx_drops", Family.efa), ("link_downed", Family.ib)])
def test_whose_error_it_is_is_said(place: CheckContext, name: str, family: Family) -> None:
    port(place, **{name: 0})  # type: ignore[arg-type]
    first = rdma.CHECK.look(place, {})
    port(place, **{name: RDMA_MANY})  # type: ignore[arg-type]

    look = rdma.CHECK.look(place, first.state)

    assert [one.finding.family for one in (*look.problems, *look.happened)] == [family]


def test_a_node_without_an_adapter_is_not_looked_at(place: CheckContext) -> None:
    without = rdma.CHECK.why_not(place)
    port(place)

    assert (bool(without), rdma.CHECK.why_not(place)) == (True, "")


def test_an_error_counter_that_cannot_be_read_once_keeps_its_number(place: CheckContext) -> None:
    port(place, rx_drops=5)
    first = rdma.CHECK.look(place, {})
    write(place.sys, f"{PORT}/hw_counters/rx_drops", "")
    blind = rdma.CHECK.look(place, first.state)
    port(place, rx_drops=5 + RDMA_MANY)

    assert [code for code, _ in told(rdma.CHECK.look(place, blind.state))] == ["rx_drops"]


def test_an_adapter_without_its_driver_is_found_on_the_bus(place: CheckContext) -> None:
    for name in ("0000:4f:00.0", "0000:50:00.0"):
        write(place.sys, f"bus/pci/devices/{name}/vendor", "0x1d0f\n")
        write(place.sys, f"bus/pci/devices/{name}/device", "0xefa2\n")
    write(place.sys, "bus/pci/devices/0000:4f:00.0/driver/uevent", "")
    write(place.sys, "bus/pci/devices/0000:00:01.0/vendor", "0x1d0f\n")
    write(place.sys, "bus/pci/devices/0000:00:01.0/device", "0xec20\n")
    write(place.sys, "bus/pci/devices/0000:00:02.0/vendor", "0x8086\n")
    write(place.sys, "bus/pci/devices/0000:00:02.0/device", "0xefa2\n")
    write(place.sys, "bus/pci/devices/0000:00:03.0/class", "0x060000\n")

    assert rdma.CHECK.why_not(place) == ""
    assert told(rdma.CHECK.look(place, {})) == [("DRIVER_UNBOUND", "0000:50:00.0")]


def test_adapters_without_a_port_are_never_fine(place: CheckContext) -> None:
    write(place.sys, "bus/pci/devices/0000:4f:00.0/vendor", "0x1d0f\n")
    write(place.sys, "bus/pci/devices/0000:4f:00.0/device", "0xefa2\n")
    write(place.sys, "bus/pci/devices/0000:4f:00.0/driver/uevent", "")

    assert rdma.CHECK.look(place, {}).unclear


def test_a_port_that_cannot_be_read_is_never_fine(place: CheckContext) -> None:
    port(place, state="")

    assert rdma.CHECK.look(place, {}).unclear


# Progress ------------------------------------------------------------------------------------------------------------


class Job:
    """A job that touches its file, and a machine whose monotonic clock the test moves."""

    def __init__(self, place: CheckContext, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place, self.state, self.now = place, dict[str, object](), 1000.0
        self.file = Path(place.config.progress_dir) / "llama.json"
        monkeypatch.setattr("nodeheal.agent.checks.progress.time.monotonic", lambda: self.now)

    def steps(self, content: str = '{"limit_seconds": 60}') -> None:
        self.file.write_text(content)
        os.utime(self.file, (self.now, self.now))

    def look_after(self, seconds: float) -> NodeCheckResult:
        self.now += seconds
        look = progress.CHECK.look(self.place, self.state)
        self.state = dict(look.state)
        return look


@pytest.fixture
def job(place: CheckContext, monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(place, monkeypatch)


def test_a_job_without_a_step_within_its_limit_hangs(job: Job) -> None:
    job.steps()

    looks = [told(job.look_after(seconds)) for seconds in (5, 60, 1)]
    job.steps()

    assert looks == [[], [], [("training_hang", "llama")]]
    assert told(job.look_after(1)) == []


def test_the_time_of_day_may_jump(job: Job) -> None:
    job.steps()
    os.utime(job.file, (0, 0))  # the clock was set since: the file looks decades old

    assert [told(job.look_after(seconds)) for seconds in (1, 59)] == [[], []]


def test_a_file_that_its_job_has_left_behind_is_forgotten_in_time(job: Job) -> None:
    job.steps()
    job.look_after(0)

    assert told(job.look_after(60 * progress.FORGOTTEN_AFTER_LIMITS)) == []


def test_the_age_of_a_jobs_last_step_is_measured_until_its_file_is_forgotten(job: Job) -> None:
    job.steps()

    ages = [job.look_after(seconds).gauges for seconds in (0, 45, 60 * progress.FORGOTTEN_AFTER_LIMITS)]

    assert ages == [{"training_step_age_seconds:llama": 0.0}, {"training_step_age_seconds:llama": 45.0}, {}]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"limit_seconds": true}', '{"limit_seconds": 9}', "[" * 4096])
def test_a_file_that_says_no_limit_is_named(job: Job, content: str) -> None:
    job.steps(content)

    assert str(job.file) in job.look_after(0).doubts["llama"]


def test_a_file_that_is_not_understood_leaves_the_other_jobs_alone(job: Job) -> None:
    job.steps()
    job.file.with_name("bert.json").write_text("no limit")
    job.look_after(5)

    hung = job.look_after(61)

    assert told(hung) == [("training_hang", "llama")]
    assert (hung.unclear, set(hung.doubts)) == ("", {"bert"})


def test_a_file_that_may_not_be_read_is_named_and_one_that_has_just_gone_is_not(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.steps()
    errors = iter([PermissionError(errno.EACCES, "Permission denied"), FileNotFoundError(errno.ENOENT, "gone")])

    def refuses(*_: object) -> int:
        raise next(errors)

    monkeypatch.setattr("nodeheal.agent.checks.progress.open_file", refuses)

    assert [job.look_after(0).why_unclear for _ in range(2)] == [f"{job.file}: Permission denied", ""]


def test_of_too_many_files_the_newest_are_looked_at_and_the_rest_are_said(job: Job) -> None:
    for number in range(progress.FILES):
        newer = job.file.with_name(f"job-{number}.json")
        newer.write_text('{"limit_seconds": 60}')
    job.steps()  # the oldest of all, by its time

    look = job.look_after(0)

    assert (len(look.state), "llama.json" in look.state) == (progress.FILES, False)
    assert look.unclear.startswith("1 files of jobs are not checked")


def test_all_that_can_be_told_of_jobs_fits_into_an_answer(job: Job) -> None:
    for number in range(progress.FILES):
        job.file.with_name(f"{number:0250}.json").write_text('{"limit_seconds": 60}')
    job.look_after(0)

    look = job.look_after(61)

    assert len(look.problems) == progress.FILES
    assert len(dumped(ProcessAnswer("progress", look))) < ANSWER_BYTES


def test_other_files_are_no_jobs(job: Job) -> None:
    job.steps()
    job.file.with_name("README").write_text("no job")

    look = job.look_after(0)

    assert (look.summary, look.why_unclear) == ("1 jobs report their progress", "")


def test_a_folder_that_may_not_be_read_is_not_taken_for_an_empty_one(
    place: CheckContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeheal.agent.checks.progress.Path.iterdir", refused)

    with pytest.raises(PermissionError):
        progress.CHECK.look(place, {})


def test_a_long_name_is_told_by_its_beginning(job: Job) -> None:
    job.file = job.file.with_name("x" * 200 + ".json")
    job.steps()
    job.look_after(0)

    assert told(job.look_after(61)) == [("training_hang", "x" * progress.JOB_CHARACTERS)]


@pytest.mark.parametrize(("limit", "taken"), [("10", 10.0), ("9.99", None), ("999999", 999999.0), ("1e6", None)])
def test_a_limit_has_bounds(limit: str, taken: float | None) -> None:
    assert progress.limit_of(b'{"limit_seconds": %s}' % limit.encode()) == taken


@pytest.mark.parametrize("known", [7, [], ["x"], [1, 2, 3], [1000.0, "x"], None])
def test_what_is_remembered_of_a_job_and_not_understood_begins_anew(job: Job, known: object) -> None:
    job.steps()
    job.state = {"llama.json": known}

    assert told(job.look_after(0)) == []


def test_a_job_needs_nothing_but_to_touch_the_file_that_it_was_given(job: Job) -> None:
    job.file = job.file.with_name(Path(names.progress_file("llama", 2, 60)).name)
    job.steps("")

    assert [told(job.look_after(seconds)) for seconds in (5, 60, 1)] == [[], [], [("training_hang", "llama/2")]]


def test_what_such_a_file_declares_goes_before_its_name(job: Job) -> None:
    job.file = job.file.with_name("llama.2.600.json")
    job.steps()

    assert [told(job.look_after(seconds)) for seconds in (5, 61)] == [[], [("training_hang", "llama/2")]]


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("llama", ("llama", None)),
        ("a.b.7.900", ("a.b/7", 900.0)),
        ("a.7.1", ("a/7", 10.0)),
        ("a.x.900", ("a.x.900", None)),
    ],
)
def test_a_files_name_says_whose_it_is(stem: str, name: tuple[str, float | None]) -> None:
    assert progress.name_of(stem) == name


def test_no_folder_is_no_job(place: CheckContext) -> None:
    Path(place.config.progress_dir).rmdir()

    assert progress.CHECK.look(place, {}).summary == "0 jobs report their progress"


# All of them ---------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=300))
def test_any_bytes_can_be_read(content: bytes) -> None:
    text = content.decode("utf-8", "replace")

    memory.parse_pressure(text), memory.parse_used_percent(text), processes.parse_stat(text)
    progress.limit_of(content)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_what_a_check_calls_a_hang_is_in_the_catalog(check: NodeCheck) -> None:
    assert check.hang is None or find(check.hang.family, check.hang.code, check.hang.subcode)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_node_on_which_nothing_can_be_read_breaks_no_check(check: NodeCheck, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    place = CheckContext(CONFIG, run_tool, proc=nowhere, sys=nowhere, dev=nowhere, etc=nowhere)
    state: State = {"writable": 7, "patience": "x", "waiting": None}

    assert check.why_not(place) or isinstance(_looked(check, place, state), NodeCheckResult | None)


def _looked(check: NodeCheck, place: CheckContext, state: State) -> NodeCheckResult | None:
    """None: the files were gone, which is told as a look that broke."""
    try:
        return check.look(place, state)
    except OSError:
        return None


def test_a_link_that_went_down_once_is_told_without_a_second_look_to_confirm_it(place: CheckContext) -> None:
    write(place.sys, f"{PORT}/state", "4: ACTIVE\n")
    write(place.sys, f"{PORT}/counters/link_downed", "1\n")
    first = rdma.CHECK.look(place, {})
    write(place.sys, f"{PORT}/counters/link_downed", "2\n")

    second = rdma.CHECK.look(place, first.state)

    assert [one.finding.code for one in second.happened] == ["link_downed"]
    assert second.problems == ()


def test_a_pipe_among_the_files_of_progress_is_not_waited_for(place: CheckContext, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "job.json")

    look = progress.CHECK.look(replace(place, config=replace(place.config, progress_dir=str(tmp_path))), {})

    assert "job.json: not a regular file" in look.doubts["job"]


def test_what_is_remembered_of_stuck_processes_is_bounded(place: CheckContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "REMEMBERED", 2)
    for pid in (11, 12, 13):
        write(place.proc, f"{pid}/stat", f"{pid} (x) D " + "0 " * 18 + "77\n")

    state = processes.CHECK.look(place, {}).state

    assert len(state["waiting"]) == 2  # type: ignore[arg-type]
