"""The host's processors and memory under load: stress-ng, which checks its own results."""

from dataclasses import replace

from nodeheal.agent.diagnostics.bench import Bench, Output
from nodeheal.contract.evidence.finding import Report
from nodeheal.contract.evidence.measures import heat
from nodeheal.contract.evidence.tool_report import first_line, unknown
from nodeheal.contract.vocabulary import Verdict

LOAD_SECONDS = {1: 10, 2: 60, 3: 300, 4: 900}
GRACE_SECONDS = 120.0
STRESSOR_FAILED = 2  # its manual: one or more stressors failed; everything else is about the tool itself


def check(bench: Bench) -> tuple[Report, Output]:
    """Every processor computes and checks, a tenth of the memory is written and read back."""
    seconds = LOAD_SECONDS[bench.level]
    load = ("--cpu", "0", "--vm", "2", "--vm-bytes", "10%", "--verify", "--tz", "--timeout", f"{seconds}s")
    output = bench.run(["stress-ng", *load], seconds + GRACE_SECONDS)
    silent = output.no_answer("stress-ng")
    if silent is not None:
        return silent, output
    measured = heat(output.text + output.errors)
    if output.ran.exit_code == STRESSOR_FAILED:
        wrong = [line for line in (output.text + output.errors).splitlines() if "fail:" in line]
        return Report(Verdict.FAILED, ("stress",), reason=f"stress-ng: {first_line(wrong[0] if wrong else '')}"), output
    if output.ran.exit_code != 0:
        return unknown(f"stress-ng ended with {output.ran.exit_code}: {first_line(output.errors)}"), output
    return replace(Report(Verdict.OK, reason=f"{seconds} s of load"), measured=measured), output
