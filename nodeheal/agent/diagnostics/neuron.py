"""Diagnoses Trainium and Inferentia: all devices are present, their error counters are zero, their cores reach one
another.
"""

import sys
from dataclasses import replace

from nodeheal.agent.diagnostics.bench import Bench, Output
from nodeheal.contract.vocabulary import Verdict
from nodeheal.parsers.finding import ToolReport
from nodeheal.parsers.measures import collective_bandwidth
from nodeheal.parsers.neuron_tools import parse_neuron
from nodeheal.parsers.tool_report import unknown, worst_of

LIST_SECONDS, COUNTERS_SECONDS, COLLECTIVE_SECONDS = 60.0, 60.0, 600.0
COLLECTIVE_LEVEL = 2  # it compiles and runs a program, which a run of seconds has no time for


def check(bench: Bench) -> tuple[ToolReport, Output]:
    """Run all parts; the output is that of the last tool."""
    listed = bench.run(["neuron-ls", "--json-output"], LIST_SECONDS)
    reports = [listed.no_answer("neuron-ls") or parse_neuron(listed.text, bench.accelerators)]
    counters = bench.run([sys.executable, "-m", "nodeheal.agent.evidence.host_snapshot", "neuron"], COUNTERS_SECONDS)
    reports.append(counters.no_answer("the counters") or parse_neuron(counters.text, bench.accelerators))
    if bench.level < COLLECTIVE_LEVEL:
        return worst_of(reports), counters
    collective = bench.run(["nccom-test", "-r", "2", "allr"], COLLECTIVE_SECONDS)
    if collective.is_installed:
        reports.append(_read_collective(collective))
    return worst_of(reports), collective


def _read_collective(output: Output) -> ToolReport:
    """Parse the bandwidth, which is the proof. Without one, either the cores or the tool may be at fault: UNKNOWN."""
    silent = output.no_answer("nccom-test")
    if silent is not None:
        return silent
    measured = collective_bandwidth(output.text)
    if not measured or output.ran.exit_code != 0:
        return unknown(f"nccom-test ended with {output.ran.exit_code} and no bandwidth")
    return replace(ToolReport(Verdict.OK, reason="an all-reduce went through"), measured=measured)
