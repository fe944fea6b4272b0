"""Measures the simulator's speed on one core, and how fast the simulated control plane isolates many nodes."""

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from nodeheal.simulation.latency import LATENCIES
from nodeheal.simulation.mass_failure import run_mass_failure, settings_of
from nodeheal.simulation.report import spread
from nodeheal.simulation.runner import run_pool
from nodeheal.simulation.schedules import run_some
from nodeheal.simulation.setting import Setting

NODES, DAYS, SCHEDULES = 100, 60.0, 50
FLEET, HALF, TENTH = 1_500, 750, 150


def measure_simulator() -> dict[str, float]:
    """Return node-days and random schedules a second of processor time, with jobs and every invariant checked."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:  # its memory is the simulator's alone
        return fresh.submit(_measured).result()


def _measured() -> dict[str, float]:
    node_days = _processor_seconds(lambda: run_pool(Setting(nodes=NODES, days=DAYS)))
    rss_mib = _most_resident_mib()
    schedules = _processor_seconds(lambda: run_some(range(SCHEDULES)))
    return {
        "node_days_per_cpu_second": round(NODES * DAYS / node_days),
        "schedules_per_cpu_second": round(SCHEDULES / schedules, 1),
        "rss_mib": rss_mib,
    }


def _most_resident_mib() -> int:
    """Return the peak memory of this process. getrusage's value would include its parent's, from before exec."""
    status = Path("/proc/self/status").read_text("utf-8")
    [kib] = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return round(int(kib) / 1024)


def measure_mass_failure(latency: str) -> dict[str, float]:
    """Return simulated seconds, at the published quotas, with the breaker raised; and the result at its defaults."""
    measured: dict[str, float] = {}
    for count in (HALF, TENTH):
        both = settings_of(Setting(nodes=FLEET, mass_failure=count, latency=LATENCIES[latency]))
        raised, shipped = run_mass_failure(both["raised"]), run_mass_failure(both["shipped"])
        measured[f"isolated_of_{count}_nodes"] = len(raised.to_isolation)
        measured |= {f"isolated_of_{count}_{mark}_s": round(s, 1) for mark, s in spread(raised.to_isolation).items()}
        measured[f"shipped_isolated_of_{count}_nodes"] = len(shipped.to_isolation)
        measured[f"shipped_pages_of_{count}"] = shipped.pages
        measured["violations"] = measured.get("violations", 0) + len(raised.violations) + len(shipped.violations)
    return measured


def _processor_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
