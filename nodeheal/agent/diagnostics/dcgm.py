"""Runs DCGM's diagnostics of NVIDIA GPUs. A test that was not done runs once more, then a human decides."""

import re
import time
from dataclasses import replace

from nodeheal.agent.checks import nvlink_state
from nodeheal.agent.diagnostics.bench import Bench, Output
from nodeheal.agent.runtime.thresholds import GPU_FABRIC
from nodeheal.contract.check_seconds import LONGEST_SECONDS
from nodeheal.contract.vocabulary import Check, Verdict
from nodeheal.parsers.dcgm_diag import cannot_under_mig, parse_diagnostic
from nodeheal.parsers.dcgm_errors import is_about_nvlinks
from nodeheal.parsers.finding import ToolReport
from nodeheal.parsers.measures import dcgm_bandwidths
from nodeheal.parsers.nvidia_smi import parse_nvidia_smi
from nodeheal.parsers.nvlinks import NvLinks

FABRIC_POLL_SECONDS = 10.0
NVIDIA_SMI_SECONDS = 120.0
# Tests that dcgmi can run by name, under the names in its results.
RUN_BY_NAME = (
    *("context_create", "diagnostic", "eud", "memory", "memory_bandwidth", "memtest", "nvbandwidth"),
    *("pcie", "pulse_test", "targeted_power", "targeted_stress"),
)


def check(bench: Bench) -> tuple[ToolReport, Output]:
    """Run what failed before alone first: if it fails again, the rest need not run."""
    again = ",".join(test for test in bench.first if test in RUN_BY_NAME)
    if again:
        report, output = _run(bench, again)
        if report.verdict is Verdict.FAILED:
            return replace(report, reason=f"{report.reason} (again)"), output
    report, output = _run(bench, str(bench.level))
    # A prolog gives one deadline for everything, in which a second run would look like one that hangs.
    is_undone = report.is_only_undone and bench.deadline_seconds is None
    return _run_again(bench, report) if is_undone else (report, output)


def _run_again(bench: Bench, undone: ToolReport) -> tuple[ToolReport, Output]:
    """Run the tests that were not done once more; all of them where DCGM cannot run one by its name.

    Where one spoke of NVLinks, wait until these are up: only then what it says of them counts.
    """
    is_fabric = any(is_about_nvlinks(finding.code) for finding in undone.findings)
    links = _settled_links(bench) if is_fabric else NvLinks.UNKNOWN
    tests = [re.sub(r"[^a-z0-9]+", "_", test.lower()) for test in undone.undone_tests]
    what = ",".join(tests) if all(test in RUN_BY_NAME for test in tests) else str(bench.level)
    report, output = _run(bench, what, links)
    report = replace(report, reason=f"{report.reason} (once more: {', '.join(undone.undone_tests)})")
    return replace(report, measured={**undone.measured, **report.measured}), output


def _settled_links(bench: Bench) -> NvLinks:
    for _ in range(int(GPU_FABRIC.default / FABRIC_POLL_SECONDS)):
        links = nvlink_state.printed_state(bench.run(nvlink_state.COMMAND, nvlink_state.SECONDS))
        if links is not NvLinks.TRAINING:
            break
        time.sleep(FABRIC_POLL_SECONDS)
    return links


def _run(bench: Bench, what: str, links: NvLinks = NvLinks.UNKNOWN) -> tuple[ToolReport, Output]:
    output = bench.run([*bench.dcgmi, "-r", what, "-j"], LONGEST_SECONDS[Check.dcgm][bench.level])
    if cannot_under_mig(f"{output.text}\n{output.errors}"):
        return _without_dcgm(bench)
    # The exit code adds nothing to the results: dcgmi also returns an error for mere warnings.
    report = output.no_answer("dcgmi") or parse_diagnostic(output.text, bench.accelerators, links)
    if report.verdict is Verdict.UNKNOWN and not output.ran.error:
        report = replace(report, reason=f"{report.reason}; {output.last_words}")
    return replace(report, measured=dcgm_bandwidths(output.text)), output


def _without_dcgm(bench: Bench) -> tuple[ToolReport, Output]:
    """Judge GPUs that are split into MIG instances by nvidia-smi: DCGM's programs need whole GPUs."""
    output = bench.run(["nvidia-smi", "-q", "-x"], NVIDIA_SMI_SECONDS)
    report = output.no_answer("nvidia-smi") or parse_nvidia_smi(output.text + output.errors, bench.accelerators)
    return replace(report, reason=f"DCGM cannot diagnose GPUs in MIG mode; nvidia-smi: {report.reason}"), output
