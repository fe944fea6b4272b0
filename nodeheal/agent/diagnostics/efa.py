"""Diagnoses EFA: libfabric offers it, a device exists, its ports are active. Error counters survive reboots, so they
prove nothing.
"""

import sys

from nodeheal.agent.diagnostics.bench import Bench, Output
from nodeheal.parsers.efa_tools import parse_efa
from nodeheal.parsers.finding import ToolReport
from nodeheal.parsers.tool_report import worst_of

SECONDS = 60.0


def check(bench: Bench) -> tuple[ToolReport, Output]:
    """Run fi_info, and read the kernel's port states."""
    provided = bench.run(["fi_info", "-p", "efa"], SECONDS)
    reports = [provided.no_answer("fi_info") or parse_efa(provided.text + provided.errors)]
    ports = bench.run([sys.executable, "-m", "nodeheal.agent.evidence.host_snapshot", "ports"], SECONDS)
    reports.append(ports.no_answer("the ports") or parse_efa(ports.text))
    return worst_of(reports), ports
