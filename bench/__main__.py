"""`make bench`: the agent's footprint and latency, and the log reader's speed, on this machine."""

import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from bench.kernel_log import measure_kernel_log
from tests.unit.agent.fakes import FakeEventBridge, NodeFolder, eventually, kernel_line
from tests.unit.agent.test_agent_process import AgentProcess

IDLE_SECONDS = 20.0
FAULTS = 30


def main() -> None:
    """Print the measurements as JSON."""
    measured = {"agent": _agent(), "kernel_log": measure_kernel_log(), "cores": os.cpu_count()}
    sys.stdout.write(json.dumps(measured, indent=2) + "\n")


def _agent() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        bus = FakeEventBridge()
        bus.start()
        folder = NodeFolder(Path(directory), bus.url)
        agent = AgentProcess(folder)
        try:
            agent.start()
            eventually(lambda: bus.details("Node Booted"))
            process = psutil.Process(agent.pid)
            time.sleep(1.0)  # what it does at start is not idling
            before = process.cpu_times()
            time.sleep(IDLE_SECONDS)
            after = process.cpu_times()
            busy = after.user + after.system - before.user - before.system
            latencies = [_latency_ms(folder, bus, number) for number in range(FAULTS)]
            resident = process.memory_info().rss
        finally:
            agent.clean_up()
            bus.stop()
    return {
        "resident_mib": round(resident / 2**20, 1),
        "idle_percent_of_a_core": round(100 * busy / IDLE_SECONDS, 3),
        "line_to_bus_median_ms": round(statistics.median(latencies), 1),
        "line_to_bus_max_ms": round(max(latencies), 1),
    }


def _latency_ms(folder: NodeFolder, bus: FakeEventBridge, number: int) -> float:
    """From the write of a fault line, each on another device, to its acceptance by a bus on loopback."""
    time.sleep(random.uniform(0, 0.2))  # anywhere in the agent's polling interval
    accepted = len(bus.details())
    written = time.perf_counter()
    folder.logs(
        kernel_line(f"NVRM: Xid (PCI:0000:{number:02x}:00): 79, pid=1, name=bench, GPU has fallen off the bus.")
    )
    while len(bus.details()) == accepted:
        time.sleep(0.0005)
    return (time.perf_counter() - written) * 1000


if __name__ == "__main__":
    main()
