"""Runs DCGM's diagnostics of NVIDIA GPUs."""

from dataclasses import replace

from nodeheal.agent.diagnostics.bench import Bench, Output
from nodeheal.contract.check_seconds import LONGEST_SECONDS
from nodeheal.contract.vocabulary import Check, Verdict
from nodeheal.parsers.dcgm_diag import cannot_under_mig, parse_diagnostic
from nodeheal.parsers.finding import Report
from nodeheal.parsers.measures import dcgm_bandwidths
from nodeheal.parsers.nvidia_smi import parse_nvidia_smi

NVIDIA_SMI_SECONDS = 120.0
# Tests that dcgmi can run by name, under the names in its results.
RUN_BY_NAME = (
    *("context_create", "diagnostic", "eud", "memory", "memory_bandwidth", "memtest", "nvbandwidth"),
    *("pcie", "pulse_test", "targeted_power", "targeted_stress"),
)


def check(bench: Bench) -> tuple[Report, Output]:
    """Run what failed before alone first: if it fails again, the rest need not run."""
    again = ",".join(test for test in bench.first if test in RUN_BY_NAME)
    if again:
        report, output = _run(bench, again)
        if report.verdict is Verdict.FAILED:
            return replace(report, reason=f"{report.reason} (again)"), output
    return _run(bench, str(bench.level))


def _run(bench: Bench, what: str) -> tuple[Report, Output]:
    output = bench.run([*bench.dcgmi, "-r", what, "-j"], LONGEST_SECONDS[Check.dcgm][bench.level])
    if cannot_under_mig(f"{output.text}\n{output.errors}"):
        return _without_dcgm(bench)
    # The exit code adds nothing to the results: dcgmi also returns an error for mere warnings.
    report = output.no_answer("dcgmi") or parse_diagnostic(output.text, bench.accelerators)
    if report.verdict is Verdict.UNKNOWN and not output.ran.error:
        report = replace(report, reason=f"{report.reason}; {output.last_words}")
    return replace(report, measured=dcgm_bandwidths(output.text)), output


def _without_dcgm(bench: Bench) -> tuple[Report, Output]:
    """Judge GPUs that are split into MIG instances by nvidia-smi: DCGM's programs need whole GPUs."""
    output = bench.run(["nvidia-smi", "-q", "-x"], NVIDIA_SMI_SECONDS)
    report = output.no_answer("nvidia-smi") or parse_nvidia_smi(output.text + output.errors, bench.accelerators)
    return replace(report, reason=f"DCGM cannot diagnose GPUs in MIG mode; nvidia-smi: {report.reason}"), output
