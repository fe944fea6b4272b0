"""The limits of the checks that an operator can set: each one is read, bounded, and used by its check."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeheal.agent.checks import clock_skew, disk, memory, mounts, nvidia_smi, processes, ram_ecc, rdma
from nodeheal.agent.checks.check import CheckContext
from nodeheal.agent.checks.gpu_judgement import judge
from nodeheal.agent.checks.gpu_reading import GpuReading
from nodeheal.agent.checks.registry import CHECKS
from nodeheal.agent.checks.tools import run_tool
from nodeheal.agent.diagnostics.bench import Output
from nodeheal.agent.runtime import probe, thresholds
from nodeheal.agent.runtime.config import AgentConfig, ConfigError, parse
from nodeheal.agent.runtime.thresholds import THRESHOLDS, Threshold, default_limit
from tests.support.agent_fakes import CONFIG

MINIMAL: dict[str, Any] = {
    "node_id": "mi-0a1b2c3d4e5f67890",
    "cluster": "training",
    "pool": "h100",
    "provider": "hybrid",
    "scheduler": "ECS",
    "region": "eu-central-1",
}
GPU = "0000:10:00.0"
BY_NAME = {one.name: one for one in THRESHOLDS}


def with_limits(**limits: float) -> AgentConfig:
    return replace(CONFIG, thresholds=limits)


def disk_is_full(config: AgentConfig, folder: Path) -> bool:
    mount = disk.MountEntry("/dev/sda1", "/", "ext4", frozenset({"rw"}))
    return bool(list(disk.judge([mount], (), {"/": 90.0}, config.limit(thresholds.DISK_FULL))))


def mount_codes(config: AgentConfig, folder: Path, answer: Output) -> list[str]:
    (folder / "mounts").write_text("fs:/x /fsx lustre rw 0 0\n")
    place = CheckContext(replace(config, mounts=("/fsx",)), lambda *_: answer, proc=folder)
    return [problem.finding.code for problem in mounts.CHECK.look(place, {}).problems]


def mount_is_full(config: AgentConfig, folder: Path) -> bool:
    return mount_codes(config, folder, Output("4096 100 20 20 0 0", "", probe.Ran(exit_code=0))) == ["mount_full"]


def mount_hangs(config: AgentConfig, folder: Path) -> bool:
    """Whether a file system that takes five seconds is given up."""
    (folder / "mounts").write_text("fs:/x /fsx lustre rw 0 0\n")

    def stat(_: Sequence[str], seconds: float) -> Output:
        hung = f"no answer within {seconds:g} s" if seconds < 5 else ""
        return Output("" if hung else "4096 100 50 50 0 0", "", probe.Ran(exit_code=None if hung else 0, error=hung))

    look = mounts.CHECK.look(CheckContext(replace(config, mounts=("/fsx",)), stat, proc=folder), {})
    return [problem.finding.code for problem in look.problems] == ["mount_hung"]


def memory_is_short(config: AgentConfig, folder: Path) -> bool:
    (folder / "pressure").mkdir()
    (folder / "pressure/memory").write_text("full avg10=0.00 avg60=10.00 avg300=0.00 total=1\n")
    (folder / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable: 50 kB\n")
    return bool(memory.CHECK.look(CheckContext(config, run_tool, proc=folder), {}).problems)


def zombies_are_many(config: AgentConfig, folder: Path) -> bool:
    for pid in range(1, 11):
        (folder / str(pid)).mkdir()
        (folder / str(pid) / "stat").write_text(f"{pid} (x) Z " + " ".join(["0"] * 30))
    return bool(processes.CHECK.look(CheckContext(config, run_tool, proc=folder), {}).problems)


def clock_is_wrong(config: AgentConfig, folder: Path) -> bool:
    return bool(clock_skew.judge(10.0, config.limit(thresholds.CLOCK_WRONG)).problems)


def memory_corrects_many(config: AgentConfig, folder: Path) -> bool:
    controller = folder / ram_ecc.CONTROLLERS / "mc0"
    controller.mkdir(parents=True)
    (controller / "ce_count").write_text("50\n")
    (controller / "ue_count").write_text("0\n")
    before = {"mc0/ce_count": 0, "mc0/ue_count": 0}
    return bool(ram_ecc.CHECK.look(CheckContext(config, run_tool, sys=folder), before).happened)


def adapter_errs(config: AgentConfig, folder: Path) -> bool:
    port = folder / "class/infiniband/rdmap79s0/ports/1"
    (port / "hw_counters").mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    (port / "hw_counters/rx_drops").write_text("500\n")
    before = {"rdmap79s0/ports/1/hw_counters/rx_drops": 0}
    return bool(rdma.CHECK.look(CheckContext(config, run_tool, sys=folder), before).problems)


def gpu_codes(config: AgentConfig, reading: GpuReading, seconds: float) -> list[str]:
    """What the second of two looks reports."""
    state = judge([reading], {}, 1000.0, config.limit).state
    return [one.finding.code for one in judge([reading], state, 1000.0 + seconds, config.limit).problems]


def gpu_is_hot(config: AgentConfig, folder: Path) -> bool:
    hot = GpuReading(0, GPU, temperature_celsius=80, temperature_limit_celsius=85)
    hot_memory = GpuReading(0, GPU, memory_celsius=90, memory_limit_celsius=95)
    said = [gpu_codes(config, reading, 60.0) for reading in (hot, hot_memory)]
    assert said[0] == said[1]
    return said[0] == ["TEMPERATURE_HIGH"]


def heat_lasts(config: AgentConfig, folder: Path) -> bool:
    hot = GpuReading(0, GPU, temperature_celsius=90, temperature_limit_celsius=85)
    return gpu_codes(config, hot, 30.0) == ["TEMPERATURE_HIGH"]


def fabric_is_late(config: AgentConfig, folder: Path) -> bool:
    waits = GpuReading(0, GPU, health={"fabric/state": "In Progress"})
    return gpu_codes(config, waits, 100.0) == ["FABRIC_NOT_READY"]


def clocks_are_low(config: AgentConfig, folder: Path) -> bool:
    slow = GpuReading(0, GPU, utilisation_percent=90, clock_mhz=1200, clock_most_mhz=2000, clock_reasons=0)
    return gpu_codes(config, slow, 60.0) == ["CLOCKS_LOW"]


def links_err(config: AgentConfig, folder: Path) -> bool:
    before = judge([GpuReading(0, GPU, link_errors={"crc_flit": 0})], {}, 1000.0, config.limit).state
    now = judge([GpuReading(0, GPU, link_errors={"crc_flit": 500})], before, 1010.0, config.limit)
    return [one.finding.code for one in now.problems] == ["NVLINK_ERRORS"]


def nvidia_smi_hangs(config: AgentConfig, folder: Path) -> bool:
    """Whether an nvidia-smi that takes a minute is given up."""

    def slow(_: Sequence[str], seconds: float) -> Output:
        hung = f"no answer within {seconds:g} s" if seconds < 60 else ""
        return Output("", "", probe.Ran(exit_code=None if hung else 0, error=hung))

    look = nvidia_smi.CHECK.look(CheckContext(config, slow), {})
    return [problem.finding for problem in look.problems] == [nvidia_smi.HANG]


# By threshold: another value that makes the same node a finding, and whether it is one.
SCENES: dict[str, tuple[float, Callable[[AgentConfig, Path], bool]]] = {
    "disk_full_percent": (85.0, disk_is_full),
    "mount_full_percent": (75.0, mount_is_full),
    "mount_answer_seconds": (2.0, mount_hangs),
    "memory_stalled_percent": (5.0, memory_is_short),
    "zombie_processes": (10.0, zombies_are_many),
    "clock_wrong_seconds": (10.0, clock_is_wrong),
    "ram_corrected_errors": (50.0, memory_corrects_many),
    "rdma_errors": (500.0, adapter_errs),
    "gpu_temperature_margin_celsius": (10.0, gpu_is_hot),
    "gpu_lasting_seconds": (30.0, heat_lasts),
    "gpu_fabric_seconds": (90.0, fabric_is_late),
    "gpu_low_clock_percent": (70.0, clocks_are_low),
    "nvlink_checksum_errors": (50.0, links_err),
    "nvidia_smi_seconds": (30.0, nvidia_smi_hangs),
}


@pytest.mark.parametrize("name", SCENES)
def test_the_limit_that_is_configured_is_the_one_that_is_used(name: str, tmp_path: Path) -> None:
    value, is_finding = SCENES[name]
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()

    assert not is_finding(CONFIG, tmp_path / "a")
    assert is_finding(with_limits(**{name: value}), tmp_path / "b")


def test_every_threshold_has_a_scene_and_stands_in_the_table() -> None:
    written = [one for one in vars(thresholds).values() if isinstance(one, Threshold)]

    assert sorted(one.name for one in written) == sorted(BY_NAME) == sorted(SCENES)


@pytest.mark.parametrize("one", THRESHOLDS, ids=lambda one: one.name)
def test_a_threshold_says_what_it_is_in_full(one: Threshold) -> None:
    assert one.least <= one.default <= one.most
    assert one.check in {check.name for check in CHECKS}
    assert all((one.unit, one.about, one.why)) and one.why.endswith(".")
    assert default_limit(one) == CONFIG.limit(one) == one.default


@pytest.mark.parametrize("one", THRESHOLDS, ids=lambda one: one.name)
def test_the_bounds_are_taken_and_what_is_beyond_is_refused(one: Threshold) -> None:
    for value in (one.least, one.most):
        assert parse({**MINIMAL, "thresholds": {one.name: value}}).limit(one) == value
    for value in (one.least - 1, one.most + 1):
        with pytest.raises(ConfigError) as refused:
            parse({**MINIMAL, "thresholds": {one.name: value}})
        allowed = f"must be {one.unit}, {one.least:.12g} to {one.most:.12g}"
        assert f"'thresholds.{one.name}' {allowed}" in str(refused.value)


@pytest.mark.parametrize("value", ["98", True, None, [98], float("nan"), float("inf")])
def test_only_numbers_are_limits(value: object) -> None:
    with pytest.raises(ConfigError, match=r"'thresholds\.disk_full_percent' must be percent, 50 to 100"):
        parse({**MINIMAL, "thresholds": {"disk_full_percent": value}})


def test_a_misspelt_threshold_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"'thresholds\.disk_full'; did you mean 'thresholds\.disk_full_percent'"):
        parse({**MINIMAL, "thresholds": {"disk_full": 90}})


def test_thresholds_are_a_table() -> None:
    with pytest.raises(ConfigError, match="'thresholds' must be a table of numbers"):
        parse({**MINIMAL, "thresholds": 95})
