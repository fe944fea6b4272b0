"""`make bench`: what the agent costs and how fast it is, and the log reader's speed, on this machine."""

import argparse
import json
import os
import platform
import sys
from pathlib import Path

from bench.agent import OTHERS_RSS_MIB, measure_agent
from bench.kernel_log import measure_kernel_log

WRITTEN = Path("build/bench.json")


def main() -> None:
    """Measure, print, and keep as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--idle-seconds", type=float, default=60.0, help="how long an idle agent is watched")
    idle_seconds = parser.parse_args().idle_seconds
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "kernel": platform.release()}
    agent = measure_agent(idle_seconds)
    measured = {"agent": agent, "kernel_log": measure_kernel_log(), "machine": machine}
    WRITTEN.parent.mkdir(exist_ok=True)
    WRITTEN.write_text(json.dumps(measured, indent=2) + "\n", "utf-8")
    sys.stdout.write(json.dumps(measured, indent=2) + "\n" + _beside_others(agent["rss_mib"]))


def _beside_others(rss_mib: float) -> str:
    rows = {"nodeheal-agent, measured here, helpers included": rss_mib, **OTHERS_RSS_MIB}
    return "".join(f"{size:8.1f} MiB  {name}\n" for name, size in sorted(rows.items(), key=lambda row: row[1]))


if __name__ == "__main__":
    main()
