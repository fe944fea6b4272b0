"""How busy the host is, out of what the kernel counts."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.agent.checks import host_load
from nodeheal.agent.checks.check import CheckContext, NodeCheckResult, State
from nodeheal.agent.checks.host_load import OLDEST_SECONDS, gauges, parse_cpu, parse_disks, parse_network
from nodeheal.agent.checks.tools import run_tool
from tests.support.agent_fakes import CONFIG

NETWORK = """Inter-|   Receive                                                |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo: 900 1 0 0 0 0 0 0 900 1 0 0 0 0 0 0
  ens5:{received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0
 bond0: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0
"""
DISKS = """ 259       0 nvme0n1 10 0 {read} 5 20 0 {written} 9 0 0 0
 259       1 nvme0n1p1 10 0 {read} 5 20 0 {written} 9 0 0 0
 253       0 dm-0 10 0 {read} 5 20 0 {written} 9 0 0 0
"""


@pytest.fixture
def place(tmp_path: Path) -> CheckContext:
    for device in ("class/net/ens5/device", "class/net/bond0", "class/net/lo", "block/nvme0n1/device", "block/dm-0"):
        (tmp_path / "sys" / device).mkdir(parents=True)
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal:       1000 kB\nMemFree: 10 kB\nMemAvailable:    250 kB\n")
    config = replace(CONFIG, cloudwatch_metrics="nodes")
    return CheckContext(config, run_tool, proc=tmp_path / "proc", sys=tmp_path / "sys")


def look(
    place: CheckContext, state: State, cpu: str, received: int, sent: int, read: int, written: int
) -> NodeCheckResult:
    (place.proc / "stat").write_text(f"cpu  {cpu}\ncpu0 {cpu}\n")
    (place.proc / "net/dev").write_text(NETWORK.format(received=received, sent=sent))
    (place.proc / "diskstats").write_text(DISKS.format(read=read, written=written))
    return host_load.CHECK.look(place, state)


def aged(state: State, seconds: float) -> State:
    """As if the look had been so long ago."""
    return {**state, "at": time.monotonic() - seconds}


def test_what_grew_since_the_last_look_becomes_rates_of_hardware_counted_once(place: CheckContext) -> None:
    first = look(place, {}, "100 0 50 800 50 0 0 0 0 0", 1000, 2000, 10, 20)

    second = look(place, aged(first.state, 10), "180 0 60 900 60 0 0 0 70 0", 6000, 2000, 10, 40)

    assert first.gauges == {"memory_used_percent": 75.0}
    assert second.gauges.pop("network_receive_bytes_per_second") == pytest.approx(500, rel=0.05)  # type: ignore[attr-defined]
    assert second.gauges.pop("disk_write_bytes_per_second") == pytest.approx(1024, rel=0.05)  # type: ignore[attr-defined]
    assert second.gauges == {
        "cpu_used_percent": 45.0,  # 90 of 200 ticks; waiting for a disk is no work, a unmanaged_task's time is a user's
        "memory_used_percent": 75.0,
        "network_transmit_bytes_per_second": 0.0,
        "disk_read_bytes_per_second": 0.0,
    }
    assert (second.problems, second.unclear) == ((), "")


@pytest.mark.parametrize("seconds", [OLDEST_SECONDS + 1, -5])
def test_a_look_too_long_ago_or_of_another_clock_is_nothing_to_compare_with(
    place: CheckContext, seconds: float
) -> None:
    first = look(place, {}, "1 0 0 9 0 0 0 0", 1, 1, 1, 1)

    again = look(place, aged(first.state, seconds), "2 0 0 99 0 0 0 0", 2, 2, 2, 2)

    assert again.gauges == {"memory_used_percent": 75.0}


def test_a_device_that_counts_anew_or_is_new_is_left_out() -> None:
    before = {"network_receive": {"a": 100, "b": 500}}

    assert gauges(before, {"network_receive": {"a": 160, "b": 3, "c": 10**12}}, 60) == {
        "network_receive_bytes_per_second": 1.0
    }
    assert gauges(before, {"network_receive": {"c": 1}}, 60) == {}


@pytest.mark.parametrize(
    "state", [{"at": "x"}, {"at": 1.0, "counted": 7}, {"at": 1.0, "counted": {"cpu": {"busy": "1"}, "disk_read": [1]}}]
)
def test_what_another_version_has_left_behind_is_no_reason_to_break(place: CheckContext, state: State) -> None:
    state = aged(state, 10) if state["at"] == 1.0 else state

    assert look(place, state, "1 0 0 9 0 0 0 0", 1, 1, 1, 1).gauges == {"memory_used_percent": 75.0}


def test_a_kernel_that_shows_none_of_it_is_measured_as_far_as_it_goes(place: CheckContext) -> None:
    (place.proc / "meminfo").unlink()

    seen = host_load.CHECK.look(place, {})

    assert (seen.gauges, seen.summary) == ({}, "no earlier reading to compare with")


def test_this_machine_can_be_measured() -> None:
    here = CheckContext(CONFIG, run_tool)
    first = host_load.CHECK.look(here, {})

    second = host_load.CHECK.look(here, aged(first.state, 60))

    assert 0 <= second.gauges["memory_used_percent"] <= 100


def test_nobody_looks_where_nobody_wants_to_know(place: CheckContext) -> None:
    off = replace(place, config=CONFIG)

    assert "cloudwatch_metrics" in host_load.CHECK.why_not(off)
    assert not host_load.CHECK.why_not(place)
    assert not host_load.CHECK.why_not(replace(place, config=replace(CONFIG, prometheus_port=9100)))


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    assert [type(read(text)) for read in (parse_cpu, parse_network, parse_disks)] == [dict, dict, dict]
