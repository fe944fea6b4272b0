"""Runs the host under load with stress-ng, which checks its own results, and reads the kernel's heat and error
counters.
"""

import sys
from dataclasses import replace

from nodeheal.agent.diagnostics.bench import Bench, Output
from nodeheal.contract.vocabulary import Verdict
from nodeheal.parsers.finding import ToolReport
from nodeheal.parsers.host_heat import judge_load, read_host
from nodeheal.parsers.measures import heat
from nodeheal.parsers.tool_report import first_line, unknown, worst_of

LOAD_SECONDS = {1: 10, 2: 60, 3: 300, 4: 900}
GRACE_SECONDS, HOST_SECONDS = 120.0, 30.0
# One file, flushed to the disk after each write: /tmp may be in memory, /var/tmp survives a reboot.
DISK = ("--hdd", "1", "--hdd-bytes", "256m", "--hdd-opts", "fsync", "--temp-path", "/var/tmp")
STRESSOR_FAILED = 2  # from its manual: one or more stressors failed; every other code is about the tool itself


def check(bench: Bench) -> tuple[ToolReport, Output]:
    """Load every processor with computations that are checked; write and read back a tenth of the memory and a file.

    Heat and errors are read before and after.
    """
    seconds = LOAD_SECONDS[bench.level]
    load = ("--cpu", "0", "--vm", "2", "--vm-bytes", "10%", *DISK, "--verify", "--tz", "--timeout", f"{seconds}s")
    before = _host(bench)
    output = bench.run(["stress-ng", *load], seconds + GRACE_SECONDS)
    silent = output.no_answer("stress-ng")
    if silent is not None:
        return silent, output
    report = worst_of([_read(output, seconds), judge_load(before, _host(bench))])
    return replace(report, measured=heat(output.text + output.errors)), output


def _read(output: Output, seconds: int) -> ToolReport:
    if output.ran.exit_code == STRESSOR_FAILED:
        wrong = [line for line in (output.text + output.errors).splitlines() if "fail:" in line]
        return ToolReport(Verdict.FAILED, ("stress",), reason=f"stress-ng: {first_line(wrong[0] if wrong else '')}")
    if output.ran.exit_code != 0:
        return unknown(f"stress-ng ended with {output.ran.exit_code}: {first_line(output.errors)}")
    return ToolReport(Verdict.OK, reason=f"{seconds} s of load")


def _host(bench: Bench) -> dict[str, str]:
    """Read the kernel's values. Where there are none, as on most virtual machines, that is no fault and no proof."""
    return read_host(
        bench.run([sys.executable, "-m", "nodeheal.agent.evidence.host_snapshot", "host"], HOST_SECONDS).text
    )
