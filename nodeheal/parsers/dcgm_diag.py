"""Parses the output of `dcgmi diag -j`, of DCGM 3 and 4. Pure: text in, a report out.

Nothing untested counts as healthy: no result, a cut-off one, an error, skipped tests only, a missing GPU. A test has
failed only by an error that is known to be one of the hardware. Any other "Fail", and a "Pass" with an error, is a test
not done: UNKNOWN, with the tests to run once more in `undone_tests`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.parsers.dcgm_errors import (
    NAMES,
    ErrorKind,
    error_finding,
    is_left_out,
    kind_of,
    names_in,
    names_of,
    says_not_done,
)
from nodeheal.parsers.finding import Finding, ToolReport
from nodeheal.parsers.nvlinks import LEFT_OUT, NvLinks
from nodeheal.parsers.tool_report import (
    ReportedFault,
    fault,
    first_line,
    first_object,
    rest_after_first_object,
    sum_up,
    unknown,
    worst_of,
)

UNNAMED, NOT_DONE, COUNT = "DIAG_UNNAMED", "DIAG_NOT_DONE", "DIAG_ACCELERATOR_COUNT"

CODES = frozenset(f"dcgm/{code}" for code in (*NAMES, UNNAMED, NOT_DONE, COUNT))

_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")  # DCGM 4, DCGM 3
_ITERATIONS, _OVERALL, _DEPLOYMENT = "iterations", "Overall Result", "Deployment"
_GPU_TABLES = ("GPU Device IDs", "GPU Device Serials")
_NO_MIG = re.compile(
    r"Cannot run diagnostic: [^\"]{0,200}\bMIG\b|\bMIG configuration is incompatible with the diagnostic"
)
_ERROR_KEYS = ("runtime_error", "global_errors", "error")
_GRAVE_SEVERITIES = (2, 6)  # DCGM's own: isolate, reset
_WEIGHTS = {ErrorKind.HARDWARE: Verdict.FAILED, ErrorKind.SETTING: Verdict.DEGRADED}
_PASS, _FAIL, _WARN, _SKIP = ("pass", "passed"), ("fail", "failed"), ("warn", "warning"), ("skip", "skipped")
_GPU_IN_TEXT = re.compile(r"\bGPU (\d{1,4})\b")
_PCIE = "pcie"  # the test that looks at NVLinks, unless it is asked not to: PCIE_STR_TEST_NVLINK_STATUS of DCGM
_WITHOUT_NVLINKS = "run the test without them: dcgmi diag -r pcie -p pcie.test_nvlink_status=false"
_NAMING_KEYS = ("pci_bus_id", "pci_address", "uuid", "gpu_uuid")


@dataclass(frozen=True)
class _Warning:
    names: tuple[str, ...]
    text: str
    severity: object


@dataclass(frozen=True)
class _Result:
    test: str
    status: str
    gpus: frozenset[str]
    entity: str | None  # what else was tested: a switch, a CPU
    warnings: tuple[_Warning, ...]
    is_deployment: bool = False

    def verdict(self, links: NvLinks) -> Verdict:
        """What it proves."""
        kinds = [kind_of(name, links) for warning in self.warnings for name in warning.names or (UNNAMED,)]
        if self.status in _WARN:
            return Verdict.DEGRADED
        if self.status not in _FAIL:
            return Verdict.UNKNOWN if self.status in _PASS and self.warnings else Verdict.OK
        if ErrorKind.HARDWARE in kinds:
            return Verdict.FAILED
        return Verdict.DEGRADED if set(kinds) == {ErrorKind.SETTING} else Verdict.UNKNOWN


def parse_diagnostic(output: str, accelerators: int = 0, links: NvLinks = NvLinks.UNKNOWN) -> ToolReport:
    """Parse everything that dcgmi wrote, on a node with this many accelerators (0: unknown) and these NVLinks."""
    document = first_object(output)
    rounds = document.get(_ITERATIONS)
    if isinstance(rounds, list):  # dcgmi diag --iterations: a document for each
        judged = [_parse(iteration, accelerators, links) for iteration in _dicts(rounds)]
        is_whole = len(judged) == len(rounds) and not rest_after_first_object(output)
        has_passed = str(document.get(_OVERALL)).lower() in _PASS
        doubt = [] if is_whole and has_passed else [unknown("DCGM does not say that every iteration has passed")]
        return worst_of([*judged, *doubt])
    return _parse(document, accelerators, links, rest_after_first_object(output))


def _parse(document: dict[str, object], accelerators: int, links: NvLinks, rest: str = "") -> ToolReport:
    root = next((candidate for candidate in (document.get(key) for key in _ROOTS) if isinstance(candidate, dict)), None)
    if root is None:
        return unknown("the output is not a complete DCGM diagnostic")
    names = _entity_names(document)
    results = list(_results(root))
    faults = [defect for result in results for defect in _faults(result, names, links)]
    for source in (document, root):
        for key in _ERROR_KEYS:
            if source.get(key):
                doubt = f"DCGM reports {key}: {str(source[key])[:300]}"
                return sum_up([*_global_faults(source[key], links), *faults], "", doubt=doubt)
    if rest:  # another run, or the output of one that was killed: the first document may be outdated
        return sum_up(faults, "", doubt=f"there is text after the diagnostic: {first_line(rest)}")
    report = _judge(results, faults, accelerators, _listed(document, root), links)
    undone = tuple(test for test in _tests(Verdict.UNKNOWN, results, links) if test not in report.failed_tests)
    return replace(report, undone_tests=undone, reason="; ".join([report.reason, *_left_out(results, undone, links)]))


def _tests(verdict: Verdict, results: list[_Result], links: NvLinks) -> tuple[str, ...]:
    return tuple(sorted({result.test for result in results if result.verdict(links) is verdict}))


def _left_out(results: list[_Result], undone: Sequence[str], links: NvLinks) -> list[str]:
    """Return what is left out on a machine without NVLinks, and what to do where a test was not done because of it."""
    named = [(result, name) for result in results for warning in result.warnings for name in warning.names]
    tests = [result.test for result, name in named if is_left_out(name, links)]
    again = [_WITHOUT_NVLINKS for test in tests if test in undone and test.lower() == _PCIE]
    return [LEFT_OUT, *again[:1]] if tests else []


def cannot_under_mig(output: str) -> bool:
    """Whether DCGM refuses the diagnostic because GPUs are split into MIG instances: NvidiaValidationSuite.cpp."""
    return _NO_MIG.search(output) is not None


def _listed(document: dict[str, object], root: dict[str, object]) -> int:
    """Return the number of GPUs in the document's own table: DCGM 4's entities, DCGM 3's device ids and serials."""
    groups = [group for group in _dicts(document.get("entity_groups")) if group.get("entity_group") == "GPU"]
    tables = [source.get(key) for source in (document, root) for key in _GPU_TABLES]
    entities = [sum(1 for _ in _dicts(group.get("entities"))) for group in groups]
    return max([0, *entities, *(len(table) for table in tables if isinstance(table, (list, dict)))])


def _judge(
    results: list[_Result], faults: list[ReportedFault], accelerators: int, listed: int, links: NvLinks
) -> ToolReport:
    verdicts = (Verdict.FAILED, Verdict.UNKNOWN, Verdict.DEGRADED)
    failed, undone, warned = (_tests(verdict, results, links) for verdict in verdicts)
    total = sum_up(faults, "")
    if failed:
        return ToolReport(
            Verdict.FAILED, failed, total.failed_components, total.findings, f"failed: {', '.join(failed)}"
        )
    named = frozenset(gpu for result in results for gpu in result.gpus)
    names = frozenset(gpu for result in results if result.status in _PASS + _FAIL + _WARN for gpu in result.gpus)
    is_of_all = not names and _are_of_all(results)
    tested = listed if is_of_all else len(names)
    there = max(len(named), listed)
    if there < accelerators and not (is_of_all and not listed):
        # A GPU that fell off the bus is not tested, and the remaining ones pass.
        missing = sum_up([_missing(there, accelerators), *faults], "")
        reason = f"{there} of {accelerators} GPUs were tested"
        return ToolReport(Verdict.FAILED, ("accelerator_count",), missing.failed_components, missing.findings, reason)
    strange = sorted({result.status for result in results if result.status not in _PASS + _FAIL + _WARN + _SKIP})
    if strange:
        return sum_up(faults, "", doubt=f"unknown test status: {', '.join(strange)}"[:300])
    if tested < there:
        return sum_up(faults, "", doubt=f"{tested} of {there} GPUs were tested")
    if undone and not warned:
        reason = f"not done, neither passed nor failed: {', '.join(undone)}"
        return ToolReport(Verdict.UNKNOWN, findings=total.findings, reason=reason, is_only_undone=True)
    if undone or not any(result.status in _PASS for result in results) or not (names or is_of_all):
        return sum_up(faults, "", doubt=f"not done: {', '.join(undone)}" if undone else "no test of any GPU has passed")
    if warned:
        return ToolReport(Verdict.DEGRADED, (), (), total.findings, f"warnings: {', '.join(warned)}")
    if not tested:
        return ToolReport(Verdict.OK, reason="every GPU that DCGM sees passed; it does not report their number")
    return ToolReport(Verdict.OK, reason=f"{tested} GPUs passed")


def _are_of_all(results: list[_Result]) -> bool:
    """Whether these are DCGM 3's tests of level 1: each covers all GPUs that it sees, and names none.

    The tests of higher levels name their GPUs. Where one of those was only skipped, nothing is proven.
    """
    return bool(results) and all(result.is_deployment for result in results)


def _missing(tested: int, accelerators: int) -> ReportedFault:
    return fault(Verdict.FAILED, Family.dcgm, COUNT, None, f"{tested} of {accelerators} GPUs were tested")


def _faults(result: _Result, names: dict[str, str], links: NvLinks) -> Iterator[ReportedFault]:
    if result.status in _FAIL + _WARN:
        warnings = result.warnings or (_Warning((), f"{result.test}: {result.status}", None),)
    else:
        warnings = result.warnings if result.status in _PASS else ()
    for warning in warnings:
        for component in _components(result, warning, names):
            for code in warning.names or (NOT_DONE if says_not_done(warning.text) else UNNAMED,):
                finding = error_finding(code, component, f"{result.test}: {warning.text}", links)
                if finding is not None:
                    yield _fault(result.status, finding, kind_of(code, links))


def _fault(status: str, finding: Finding, kind: ErrorKind) -> ReportedFault:
    if status in _PASS:
        return ReportedFault(Verdict.UNKNOWN, replace(finding, verdict=Verdict.UNKNOWN))
    return ReportedFault(
        finding.verdict or (Verdict.DEGRADED if status in _WARN else _WEIGHTS.get(kind, Verdict.UNKNOWN)), finding
    )


def _components(result: _Result, warning: _Warning, names: dict[str, str]) -> list[str | None]:
    """Return where it failed: one result may cover all GPUs, and its text then names the GPU."""
    named_gpus = sorted(set(_GPU_IN_TEXT.findall(warning.text)), key=int)
    gpus = sorted(result.gpus, key=int) if len(result.gpus) == 1 else named_gpus
    return [names.get(gpu, f"GPU {gpu}") for gpu in gpus] or [result.entity]


def _global_faults(errors: object, links: NvLinks) -> Iterator[ReportedFault]:
    """Return faults in DCGM's global errors, which may name broken hardware."""
    listed = errors if isinstance(errors, list) else [errors]
    for warning in _warnings(listed):
        match = _GPU_IN_TEXT.search(warning.text)
        for code in warning.names:
            is_grave = warning.severity in _GRAVE_SEVERITIES and kind_of(code, links) is ErrorKind.HARDWARE
            finding = error_finding(code, match[0] if match else None, warning.text, links)
            if finding is not None:
                yield ReportedFault(Verdict.FAILED if is_grave else Verdict.UNKNOWN, finding)


def _results(root: dict[str, object]) -> Iterator[_Result]:
    for category in _dicts(root.get("test_categories")):
        is_deployment = category.get("category") == _DEPLOYMENT
        for test in _dicts(category.get("tests")):
            name = str(test.get("name") or "unnamed test")[:100]
            results, summary = list(_dicts(test.get("results"))), test.get("test_summary")
            yield from (replace(_result(name, result), is_deployment=is_deployment) for result in results)
            if isinstance(summary, dict) and not _repeats(summary, results):
                yield _result(name, summary)


def _repeats(summary: dict[str, object], results: Sequence[dict[str, object]]) -> bool:
    return _status(summary) in _FAIL + _WARN and _status(summary) in [_status(result) for result in results]


def _result(test: str, raw: dict[str, object]) -> _Result:
    warnings = raw.get("warnings", raw.get("warning"))
    parsed_warnings = tuple(_warnings(warnings if isinstance(warnings, list) else [warnings]))
    group = raw.get("entity_group")
    entity = f"{group} {raw.get('entity_id')}"[:60] if group else None
    return _Result(test, _status(raw), _gpus(raw), entity, parsed_warnings)


def _warnings(raw: Sequence[object]) -> Iterator[_Warning]:
    """Return warnings: DCGM 4 gives objects with an id, DCGM 3 sentences."""
    for entry in raw:
        if isinstance(entry, dict):
            text = str(entry.get("warning") or entry.get("message") or entry.get("error") or "")
            named = names_of(entry.get("error_id", entry.get("error_code")), text)
            if named or text.strip():
                yield _Warning(named, text[:1000], entry.get("error_severity"))
        elif isinstance(entry, str) and entry:
            yield _Warning(names_in(entry), entry[:1000], None)


def _status(raw: dict[str, object]) -> str:
    return str(raw.get("status") or "no status")[:100].lower()


def _gpus(raw: dict[str, object]) -> frozenset[str]:
    if raw.get("entity_group") == "GPU":  # DCGM 4
        listed = str(raw.get("entity_id"))
    else:
        listed = str(raw.get("gpu_ids", raw.get("gpu_id", "")))  # DCGM 3: "0,1,2,3", "0" or 0
    return frozenset(gpu.strip() for gpu in listed.split(",") if re.fullmatch(r"\s*\d{1,4}\s*", gpu))


def _entity_names(document: dict[str, object]) -> dict[str, str]:
    """Return the names of GPUs in the document's own table, by DCGM's number, where it has an address or a UUID."""
    names = {}
    for group in _dicts(document.get("entity_groups")):
        if group.get("entity_group") == "GPU":
            for entity in _dicts(group.get("entities")):
                name = next((str(entity[key]) for key in _NAMING_KEYS if entity.get(key)), None)
                if name:
                    names[str(entity.get("entity_id"))] = name[:100]
    return names


def _dicts(value: object) -> Iterator[dict[str, object]]:
    """Return the objects of a list; DCGM 3 leaves nulls between them."""
    yield from (entry for entry in value if isinstance(entry, dict)) if isinstance(value, list) else ()
