"""What is read of /proc and /sys, against trees of the test's own."""

from pathlib import Path

import pytest

from nodeheal.agent.evidence import host_snapshot


@pytest.fixture(autouse=True)
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(host_snapshot, "PROC", tmp_path / "proc")
    monkeypatch.setattr(host_snapshot, "SYSTEM", tmp_path / "sys")
    process(tmp_path, "42", "python", "S (sleeping)", holds="/dev/nvidia0")
    process(tmp_path, "7", "dcgm", "D (disk sleep)")
    return tmp_path


def process(root: Path, pid: str, name: str, state: str, holds: str = "") -> None:
    folder = root / "proc" / pid
    (folder / "fd").mkdir(parents=True)
    (folder / "status").write_text(f"Name:\t{name}\nState:\t{state}\nPPid:\t1\nUid:\t1000\t1000\n")
    (folder / "wchan").write_text("nv_ioctl")
    (folder / "stack").write_text("[<0>] nv_ioctl+0x1")
    (folder / "cmdline").write_text(f"{name}\0--token\0secret")
    if holds:
        (folder / "fd" / "3").symlink_to(holds)


def file(root: Path, path: str, text: str) -> None:
    made = root / "sys" / path
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_text(text)


def test_a_process_is_listed_with_the_devices_that_it_holds_and_without_its_arguments() -> None:
    told = list(host_snapshot.processes())

    assert told[1:] == [
        "7\t1\tD (disk sleep)\t1000\tnv_ioctl\tdcgm\t",
        "42\t1\tS (sleeping)\t1000\tnv_ioctl\tpython\t/dev/nvidia0",
    ]
    assert "secret" not in "".join(told)


def test_only_a_process_that_cannot_be_interrupted_shows_its_stack() -> None:
    assert list(host_snapshot.stuck()) == ["== 7 dcgm", "[<0>] nv_ioctl+0x1"]


def test_counters_and_port_states_are_told_by_their_paths(trees: Path) -> None:
    file(trees, "class/infiniband/rdmap0/ports/1/hw_counters/rx_drops", "3\n")
    file(trees, "class/infiniband/rdmap0/ports/1/state", "4: ACTIVE\n")
    file(trees, "devices/virtual/neuron_device/neuron0/core_count", "2\n")

    assert list(host_snapshot.ports()) == [f"{trees}/sys/class/infiniband/rdmap0/ports/1/state: 4: ACTIVE"]
    assert any(line.endswith("rx_drops: 3") for line in host_snapshot.network())
    assert list(host_snapshot.neuron()) == [f"{trees}/sys/devices/virtual/neuron_device/neuron0/core_count: 2"]


def test_a_counter_that_cannot_be_read_says_so(trees: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file(trees, "class/infiniband/rdmap0/ports/1/state", "4: ACTIVE\n")
    monkeypatch.setattr(Path, "open", lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))

    assert next(host_snapshot.ports()).endswith("(Input/output error)")


def test_it_is_asked_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    host_snapshot.main("stuck")

    assert capsys.readouterr().out.startswith("== 7 dcgm\n")


def test_what_the_host_tells_of_heat_and_errors(trees: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file(trees, "devices/system/cpu/cpu3/thermal_throttle/core_throttle_count", "7")
    file(trees, "devices/system/cpu/cpu3/thermal_throttle/core_power_limit_count", "9")
    file(trees, "devices/system/edac/mc/mc0/ue_count", "1")
    file(trees, "class/thermal/thermal_zone0/trip_point_1_type", "critical")

    host_snapshot.main("host")

    told = [line.removeprefix(f"{trees}/sys/") for line in capsys.readouterr().out.splitlines()]
    assert told == [
        "devices/system/cpu/cpu3/thermal_throttle/core_throttle_count: 7",
        "devices/system/edac/mc/mc0/ue_count: 1",
        "class/thermal/thermal_zone0/trip_point_1_type: critical",
    ]
