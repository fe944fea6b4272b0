"""Measures the agent's cost on a node, and its latency."""

import os
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from bench.gpus import eight_gpus
from bench.memory import resident_bytes
from bench.node import Device, Furnished, Journal, LogFile, device, running_agent
from nodeheal.agent.checks.kernel_log import KernelLogCheck
from nodeheal.agent.checks.registry import CHECKS
from nodeheal.agent.checks.repeats import WINDOW_SECONDS
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.config import KernelLog
from tests.support.agent_fakes import IDENTITY, eventually

ALL = tuple(check.name for check in CHECKS)
SETTLE_SECONDS = 15.0  # until then every check has run once
GPU_HELPERS = 2  # the streams of gpu_state and of dcgm_counters
HEARTBEAT_SECONDS = 5.0  # so that this connection exists, too; only while memory is measured
FAULTS = 200
STORM_LINES_PER_SECOND, STORM_SECONDS = 10_000, 10
FAULT = "NVRM: Xid (PCI:0000:{:02x}:00): 79, pid=1, name=bench, GPU has fallen off the bus."
# Declared or observed figures of others, in MiB; see docs/agent.md for the sources.
OTHERS_RSS_MIB = {
    "dcgm-exporter, median seen": 484,
    "gpud, requested": 256,
    "node-problem-detector, kernel monitor only": 43,
    "EKS node monitoring agent, requested": 30,
}


def measure_agent(idle_seconds: float) -> dict[str, float]:
    """Return all figures, each with its unit in its name."""
    return {
        **_footprint(idle_seconds),
        **_to_finding(),
        **_to_wire(""),
        **_loaded(),
        **_storm(),
        **_storm_in_a_file(),
        **_storm_in_the_journal(),
    }


def _footprint(idle_seconds: float) -> dict[str, float]:
    """Measure memory with connections to the bus and to the heartbeat table; processor time as shipped."""
    all_of_it, own = _memory(None)
    with running_agent(ALL) as (agent, _, _bus):
        time.sleep(SETTLE_SECONDS)
        idle_percent = _idle_percent(agent, idle_seconds)
        all_of_it, own = max((all_of_it, own), _resident(agent))
    return {
        "rss_mib": all_of_it,
        "rss_of_the_agent_alone_mib": own,
        **_with_gpus(idle_seconds),
        "idle_cpu_percent": idle_percent,
        "idle_measured_s": idle_seconds,
    }


def _idle_percent(agent: psutil.Process, seconds: float) -> float:
    """Measure the processor time of the agent and of the helpers that stay, in percent of a core."""
    processes = [agent, *_helpers(agent)]
    before = _cpu_seconds(processes)
    time.sleep(seconds)
    return round(100 * (_cpu_seconds(processes) - before) / seconds, 3)


def _with_gpus(idle_seconds: float) -> dict[str, float]:
    """Measure a node whose GPU library and whose `dcgmi dmon` stay open, each in a process; the memory of the real
    driver's library, and the cost of the real dcgmi, are not known.
    """
    if shutil.which("gcc") is None:
        return {}
    with eight_gpus() as gpus:
        rss_mib = _memory(gpus)[0]
        with running_agent(ALL, furnished=gpus) as (agent, _, _bus):
            time.sleep(SETTLE_SECONDS)
            idle_percent = _idle_percent(agent, idle_seconds)
    return {"rss_with_8_gpus_mib": rss_mib, "idle_cpu_with_8_gpus_percent": idle_percent}


def _helpers(agent: psutil.Process) -> list[psutil.Process]:
    """Return the agent's own processes beside it, without the tools that they run."""
    return [one for one in agent.children(recursive=True) if one.name().startswith("python")]


def _memory(gpus: Furnished | None) -> tuple[float, float]:
    """Return the memory of the agent with its helpers, between two checks, and of the agent alone; in MiB."""
    with running_agent(ALL, every_seconds=HEARTBEAT_SECONDS, furnished=gpus) as (agent, _, bus):
        time.sleep(SETTLE_SECONDS)
        eventually(lambda: bus.table.beats)
        return _resident(agent, helpers=GPU_HELPERS if gpus else 0)


def _resident(agent: psutil.Process, helpers: int = 0) -> tuple[float, float]:
    """Return the memory while this many helpers exist: a running check is one more process, for a moment."""
    found: list[psutil.Process] = []

    def are_at_rest() -> bool:
        found[:] = _helpers(agent)
        return len(found) == helpers

    eventually(are_at_rest)
    return round(resident_bytes([agent, *found]) / 2**20, 1), round(agent.memory_info().rss / 2**20, 1)


def _cpu_seconds(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:4]) for process in processes)


def _to_finding() -> dict[str, float]:
    """Measure from a line to the finding, within one process: poll, read, parse."""
    with device() as (kmsg, path):
        check = KernelLogCheck([KernelLog("kmsg", str(path))], IDENTITY, "boot-1", Clock(), {})
        news = select.poll()
        news.register(check.descriptors()[0], select.POLLIN)
        took = []
        for number in range(FAULTS):
            written = time.perf_counter()
            kmsg.says(FAULT.format(number))
            while not check.poll():
                news.poll()
            took.append(1000 * (time.perf_counter() - written))
        check.close()
    return _spread("finding", took)


def _to_wire(prefix: str) -> dict[str, float]:
    """Measure from a line to its acceptance by the bus, through the disk."""
    with running_agent(()) as (_, kmsg, bus):
        time.sleep(1.0)
        took = []
        for number in range(FAULTS):
            accepted = len(bus.accepted)
            written = time.perf_counter()
            kmsg.says(FAULT.format(number))
            while len(bus.accepted) == accepted:
                time.sleep(0.0005)
            took.append(1000 * (time.perf_counter() - written))
            time.sleep(0.02)
    return _spread(f"{prefix}latency", took)


def _loaded() -> dict[str, float]:
    """Measure from a line to the bus while every core computes."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        return _to_wire("loaded_")
    finally:
        for process in busy:
            process.kill()
            process.wait()


def _storm() -> dict[str, float]:
    """Measure a storm of one fault and ordinary lines; whether each fault was counted."""
    with running_agent(()) as (agent, kmsg, bus):
        time.sleep(1.0)
        same = _pour(agent, kmsg, FAULT.format(1))
        time.sleep(WINDOW_SECONDS + 5.0)  # a folded fault is reported when its minute is over
        counted = sum(detail["count"] for detail in bus.details())
    with running_agent(()) as (agent, kmsg, _):
        time.sleep(1.0)
        ordinary = _pour(agent, kmsg, "docker0: port 3(veth1f2e3d4) entered forwarding state")
    return {
        "storm_of_faults_cpu_percent": same,
        "storm_of_ordinary_lines_cpu_percent": ordinary,
        "storm_lines_missed": STORM_LINES_PER_SECOND * STORM_SECONDS - counted,
    }


def _storm_in_a_file() -> dict[str, float]:
    """Measure a storm in the file of a syslog daemon: each line with its own times."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        log = LogFile(Path(directory) / "messages")
        with running_agent((), {"kind": "file", "path": str(log.path)}) as (agent, _, _bus):
            time.sleep(1.0)
            took = _pour(agent, log, FAULT.format(1))
        log.close()
    return {"storm_file_cpu_percent": took}


def _storm_in_the_journal() -> dict[str, float]:
    """Measure a storm as journalctl prints it. The cost of journald and journalctl is not included."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        journal = Journal(Path(directory))
        with running_agent((), {"kind": "journald"}, furnished=journal.furnished) as (agent, _, bus):
            time.sleep(1.0)
            took = _pour(agent, journal, FAULT.format(1))
            time.sleep(WINDOW_SECONDS + 5.0)
            counted = sum(detail["count"] for detail in bus.details())
        journal.close()
    missed = STORM_LINES_PER_SECOND * STORM_SECONDS - counted
    return {"storm_journal_cpu_percent": took, "storm_journal_lines_missed": missed}


def _pour(agent: psutil.Process, device: "Device | LogFile | Journal", text: str) -> float:
    """Return the percentage of a core that the agent uses for these lines."""
    before, began, said = _cpu_seconds([agent]), time.monotonic(), 0
    while said < STORM_LINES_PER_SECOND * STORM_SECONDS:
        due = int((time.monotonic() - began) * STORM_LINES_PER_SECOND)
        for _ in range(min(due, STORM_LINES_PER_SECOND * STORM_SECONDS) - said):
            device.says(text)
            said += 1
        time.sleep(0.001)
    seconds = time.monotonic() - began
    return round(100 * (_cpu_seconds([agent]) - before) / seconds, 1)


def _spread(name: str, took_ms: list[float]) -> dict[str, float]:
    hundredths = statistics.quantiles(took_ms, n=100, method="inclusive")
    return {f"{name}_p50_ms": round(hundredths[49], 2), f"{name}_p99_ms": round(hundredths[98], 2)}
