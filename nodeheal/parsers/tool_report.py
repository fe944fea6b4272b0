"""Combines the faults in one tool's output into a report. Pure, standard library.

A fault counts whatever else is wrong with the output. What was not seen is never healthy.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.parsers.finding import Finding, ToolReport

# Tools print short lines; a longer one is somebody else's text.
MESSAGE_CHARACTERS = 500

GRAVITY = (Verdict.OK, Verdict.DEGRADED, Verdict.UNKNOWN, Verdict.FAILED)
# Those of monitoring plugins.
EXIT_CODES = {Verdict.OK: 0, Verdict.DEGRADED: 1, Verdict.FAILED: 2, Verdict.UNKNOWN: 3}


@dataclass(frozen=True)
class ReportedFault:
    """One finding, its verdict by the tool, and the check that found it (empty: named like the finding's code)."""

    verdict: Verdict
    finding: Finding
    test: str = ""


def fault(
    verdict: Verdict,
    family: Family,
    code: str,
    component: str | None,
    message: str,
    subcode: str | None = None,
    pid: int | None = None,
) -> ReportedFault:
    """Create a fault whose check is named like its code."""
    return ReportedFault(verdict, Finding(family, code, component, message[:MESSAGE_CHARACTERS], subcode, pid))


def sum_up(faults: Iterable[ReportedFault], healthy: str, doubt: str = "", unproven: str = "") -> ToolReport:
    """Combine all faults into one report.

    `healthy` is the reason without faults. A `doubt` says why the output cannot be trusted (cut off, not understood):
    the verdict is then UNKNOWN unless something has failed. `unproven` says why an output without faults does not make
    the node healthy.
    """
    kept = _first_of_each(faults)
    verdict = max((entry.verdict for entry in kept), key=GRAVITY.index, default=Verdict.OK)
    if doubt and verdict is not Verdict.FAILED:
        verdict = Verdict.UNKNOWN
    if unproven and verdict is Verdict.OK:
        verdict, doubt = Verdict.UNKNOWN, unproven
    failed = [entry for entry in kept if entry.verdict is Verdict.FAILED]
    return ToolReport(
        verdict,
        tuple(sorted({entry.test or entry.finding.code for entry in failed})),
        tuple(dict.fromkeys(entry.finding.component for entry in failed if entry.finding.component)),
        tuple(entry.finding for entry in kept),
        "; ".join(part for part in (_told(kept), doubt) if part) or healthy,
    )


def worst_of(reports: Sequence[ToolReport]) -> ToolReport:
    """Combine several reports: the worst verdict, with all reasons. None at all is UNKNOWN."""
    if not reports:
        return unknown("nothing was checked")
    measured: dict[str, float] = {}
    for report in reports:
        measured |= report.measured
    return ToolReport(
        max((report.verdict for report in reports), key=GRAVITY.index),
        tuple(dict.fromkeys(test for report in reports for test in report.failed_tests)),
        tuple(dict.fromkeys(name for report in reports for name in report.failed_components)),
        tuple(finding for report in reports for finding in report.findings),
        "; ".join(report.reason for report in reports if report.reason),
        measured,
        tuple(dict.fromkeys(test for report in reports for test in report.undone_tests)),
    )


def unknown(reason: str) -> ToolReport:
    """Return a report that nothing is known."""
    return ToolReport(Verdict.UNKNOWN, reason=reason)


def first_object(output: str) -> dict[str, object]:
    """Return the first JSON object of an output, or an empty one. Tools print warnings before it and rarely
    after it.
    """
    start = output.find("{")
    if start < 0:
        return {}
    try:
        document, _ = json.JSONDecoder().raw_decode(output[start:])
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def rest_after_first_object(output: str) -> str:
    """Return the text after the first JSON object; empty where there is none."""
    start = output.find("{")
    try:
        _, end = json.JSONDecoder().raw_decode(output[start:]) if start >= 0 else ({}, 0)
    except (ValueError, RecursionError):
        return ""
    return output[start + end :].strip() if start >= 0 else ""


def first_line(output: str) -> str:
    """Return the beginning of an unreadable output, short enough for a reason."""
    lines = output.split("\n", 20)
    return next((line.strip()[:200] for line in lines if line.strip()), "")


def _first_of_each(faults: Iterable[ReportedFault]) -> list[ReportedFault]:
    """Return one fault for each code, sub-code and component, the gravest, at its first position."""
    kept: dict[tuple[object, ...], ReportedFault] = {}
    for entry in faults:
        finding = entry.finding
        key = (finding.family, finding.code, finding.subcode, finding.component, finding.pid)
        if key not in kept or GRAVITY.index(entry.verdict) > GRAVITY.index(kept[key].verdict):
            kept[key] = entry
    return list(kept.values())


def _told(faults: Sequence[ReportedFault]) -> str:
    labels = dict.fromkeys(_name(entry) for entry in sorted(faults, key=lambda entry: -GRAVITY.index(entry.verdict)))
    shown = list(labels)[:8]
    return ", ".join(shown) + (f" and {len(labels) - len(shown)} more" if len(labels) > len(shown) else "")


def _name(entry: ReportedFault) -> str:
    finding = entry.finding
    code = f"{finding.code}/{finding.subcode}" if finding.subcode else finding.code
    return f"{code} on {finding.component}" if finding.component else code
