"""Reads what `dcgmi diag -j` prints, of DCGM 3 and 4. Pure: text in, a verdict out.

Nothing counts as healthy that was not tested: no result, a cut-off one, an error, skipped tests only, a missing GPU.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from nodeheal.contract.vocabulary import Verdict

_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")  # DCGM 4, DCGM 3
_ERROR_KEYS = ("runtime_error", "global_errors", "error")
# DCGM's own severity of a finding that is about a setting (persistence mode off), not about hardware.
_CONFIG_SEVERITY = 5
_PASS, _FAIL, _WARN, _SKIP = ("pass", "passed"), ("fail", "failed"), ("warn", "warning"), ("skip", "skipped")


@dataclass(frozen=True)
class Diagnosis:
    """What the diagnostic says about the node, and which tests failed."""

    verdict: Verdict
    failed_tests: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class _Result:
    test: str
    status: str
    gpus: frozenset[str]
    is_about_settings: bool


def parse_diagnostic(output: str, accelerators: int = 0) -> Diagnosis:
    """The verdict on a node that has so many accelerators (0: unknown), from everything that dcgmi wrote to stdout."""
    document = _document(output)
    root = next((document[key] for key in _ROOTS if isinstance(document.get(key), dict)), None)
    if root is None:
        return Diagnosis(Verdict.UNKNOWN, reason="the output is not a complete DCGM diagnostic")
    for source in (document, root):
        for key in _ERROR_KEYS:
            if source.get(key):
                return Diagnosis(Verdict.UNKNOWN, reason=f"DCGM reports {key}: {source[key]}")
    return _judge(list(_results(root)), accelerators)


def _judge(results: list[_Result], accelerators: int) -> Diagnosis:
    failed = tuple(sorted({result.test for result in results if _counts_as_failed(result)}))
    if failed:
        return Diagnosis(Verdict.FAILED, failed, f"failed: {', '.join(failed)}")
    tested = frozenset(gpu for result in results if result.status in _PASS + _FAIL + _WARN for gpu in result.gpus)
    if not any(result.status in _PASS for result in results) or not tested:
        return Diagnosis(Verdict.UNKNOWN, reason="no test of any GPU has passed")
    if len(tested) < accelerators:
        # A GPU that fell off the bus is not tested, and those that are left pass.
        return Diagnosis(Verdict.FAILED, ("accelerator_count",), f"{len(tested)} of {accelerators} GPUs were tested")
    strange = sorted({result.status for result in results if result.status not in _PASS + _FAIL + _WARN + _SKIP})
    if strange:
        return Diagnosis(Verdict.UNKNOWN, reason=f"unknown test status: {', '.join(strange)}")
    warned = sorted({result.test for result in results if result.status in _WARN + _FAIL})
    if warned:
        return Diagnosis(Verdict.DEGRADED, reason=f"warnings: {', '.join(warned)}")
    return Diagnosis(Verdict.OK, reason=f"{len(tested)} GPUs passed")


def _counts_as_failed(result: _Result) -> bool:
    return result.status in _FAIL and not result.is_about_settings


def _document(output: str) -> dict[str, dict[str, object]]:
    start = output.find("{")  # older versions print warnings first
    try:
        document, _ = json.JSONDecoder().raw_decode(output[start:]) if start >= 0 else ({}, 0)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _results(root: dict[str, object]) -> Iterator[_Result]:
    for category in _dicts(root.get("test_categories")):
        for test in _dicts(category.get("tests")):
            name = str(test.get("name") or "unnamed test")
            summary = test.get("test_summary")
            yield from (_result(name, result) for result in _dicts(test.get("results")))
            if isinstance(summary, dict):
                yield _result(name, summary, like=list(_dicts(test.get("results"))))


def _result(test: str, raw: dict[str, object], like: list[dict[str, object]] | None = None) -> _Result:
    settings = all(_is_about_settings(failed) for failed in like or [raw] if _status(failed) in _FAIL)
    return _Result(test, _status(raw), _gpus(raw), settings)


def _status(raw: dict[str, object]) -> str:
    return str(raw.get("status") or "no status").lower()


def _is_about_settings(raw: dict[str, object]) -> bool:
    warnings = list(_dicts(raw.get("warnings")))
    return bool(warnings) and all(warning.get("error_severity") == _CONFIG_SEVERITY for warning in warnings)


def _gpus(raw: dict[str, object]) -> frozenset[str]:
    if raw.get("entity_group") == "GPU":  # DCGM 4
        return frozenset({str(raw.get("entity_id"))})
    listed = str(raw.get("gpu_ids", raw.get("gpu_id", "")))  # DCGM 3: "0,1,2,3", "0" or 0
    return frozenset(gpu.strip() for gpu in listed.split(",") if gpu.strip().isdigit())


def _dicts(value: object) -> Iterator[dict[str, object]]:
    """The objects of a list; DCGM 3 leaves nulls between them."""
    yield from (entry for entry in value if isinstance(entry, dict)) if isinstance(value, list) else ()
