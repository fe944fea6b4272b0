"""What DCGM's diagnostics say about a node. Only what was tested and passed is healthy."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.contract.evidence.dcgm_diag import parse_diagnostic
from nodeheal.contract.vocabulary import Verdict


def dcgm_3(**statuses: str) -> str:
    """DCGM 3: one result per GPU, or one for all GPUs in the deployment tests; null between the tests."""
    deployment = {"name": "Denylist", "results": [{"gpu_ids": "0,1", "status": "Pass"}]}
    tests = [
        {"name": name, "results": [{"gpu_ids": "0", "status": "Pass"}, {"gpu_ids": "1", "status": status}]}
        for name, status in statuses.items()
    ]
    categories = [{"category": "Deployment", "tests": [deployment, None]}, {"category": "Hardware", "tests": tests}]
    return json.dumps({"DCGM GPU Diagnostic": {"test_categories": categories}})


def dcgm_4(**statuses: str) -> str:
    """DCGM 4: results per entity and a summary per test."""
    return document_4([results_4(name, status) for name, status in statuses.items()])


def results_4(name: str, status: str, **more: Any) -> dict[str, Any]:
    results = [entity("GPU", 0, "Pass"), {**entity("GPU", 1, status), **more}, entity("CPU", 0, "Skip")]
    return {"name": name, "results": results, "test_summary": {"status": status}}


def entity(group: str, number: int, status: str) -> dict[str, Any]:
    return {"entity_group": group, "entity_group_id": 1, "entity_id": number, "status": status}


def document_4(tests: list[dict[str, Any]]) -> str:
    categories = [{"category": "Hardware", "tests": tests}]
    return json.dumps(
        {"DCGM Diagnostic": {"test_categories": categories}, "entity_groups": [], "metadata": {"version": "4.2.3"}}
    )


@pytest.mark.parametrize("written_by", [dcgm_3, dcgm_4])
@pytest.mark.parametrize(
    ("status", "verdict", "failed_tests"),
    [
        ("Pass", Verdict.OK, ()),
        ("PASS", Verdict.OK, ()),
        ("Skip", Verdict.OK, ()),
        ("Warn", Verdict.DEGRADED, ()),
        ("Fail", Verdict.FAILED, ("pcie",)),
        ("FAIL", Verdict.FAILED, ("pcie",)),
        ("Not Run", Verdict.UNKNOWN, ()),
    ],
)
def test_both_generations_are_understood(
    written_by: Any, status: str, verdict: Verdict, failed_tests: tuple[str, ...]
) -> None:
    diagnosis = parse_diagnostic(written_by(memory="Pass", pcie=status))

    assert (diagnosis.verdict, diagnosis.failed_tests) == (verdict, failed_tests)


def test_every_failed_test_is_named_once() -> None:
    diagnosis = parse_diagnostic(dcgm_4(pcie="Fail", memory="Fail", diagnostic="Pass"))

    assert diagnosis.failed_tests == ("memory", "pcie")


def test_warnings_that_older_versions_print_first_are_passed_over() -> None:
    assert parse_diagnostic("WARNING: something\n" + dcgm_3(pcie="Pass") + "\n").verdict is Verdict.OK


@pytest.mark.parametrize(
    "output",
    [
        "",
        "Error: unable to establish a connection to the specified host: localhost",
        dcgm_4(pcie="Pass")[:-20],
        "{}",
        "[]",
        '{"DCGM Diagnostic": null}',
        '{"DCGM Diagnostic": {}}',
        '{"DCGM Diagnostic": {"test_categories": "none"}}',
        '{"DCGM Diagnostic": {"runtime_error": "no GPUs"}}',
        '{"DCGM Diagnostic": {"test_categories": []}, "global_errors": [{"error_id": 1}]}',
        document_4([]),
        document_4([{"name": "memory", "results": [entity("GPU", 0, "Skip")]}]),
        document_4([{"name": "memory", "results": [entity("CPU", 0, "Pass")]}]),
        document_4([{"name": "memory", "results": [{"status": "Pass"}]}]),
        document_4([{"name": "memory", "results": [{"entity_group": "GPU", "entity_id": 0}]}]),
        "{" * 100_000,
    ],
)
def test_silence_is_not_health(output: str) -> None:
    assert parse_diagnostic(output).verdict is Verdict.UNKNOWN


def test_an_error_beside_passed_tests_is_not_health() -> None:
    document = json.loads(dcgm_3(pcie="Pass"))
    document["DCGM GPU Diagnostic"]["runtime_error"] = "the host engine stalled"

    assert parse_diagnostic(json.dumps(document)).verdict is Verdict.UNKNOWN


def test_a_gpu_that_was_not_tested_is_a_failure_though_all_others_pass() -> None:
    diagnosis = parse_diagnostic(dcgm_4(pcie="Pass"), accelerators=3)

    assert (diagnosis.verdict, diagnosis.failed_tests) == (Verdict.FAILED, ("accelerator_count",))
    assert parse_diagnostic(dcgm_4(pcie="Pass"), accelerators=2).verdict is Verdict.OK


def test_a_setting_is_not_broken_hardware() -> None:
    persistence_mode_off = [{"error_id": 29, "error_severity": 5, "warning": "Persistence mode is disabled"}]
    software = results_4("software", "Fail", warnings=persistence_mode_off)

    diagnosis = parse_diagnostic(document_4([software, results_4("memory", "Pass")]))

    assert (diagnosis.verdict, diagnosis.failed_tests) == (Verdict.DEGRADED, ())


def test_a_setting_does_not_excuse_what_else_failed() -> None:
    mixed = [{"error_id": 29, "error_severity": 5}, {"error_id": 3, "error_severity": 2}]

    assert parse_diagnostic(document_4([results_4("software", "Fail", warnings=mixed)])).verdict is Verdict.FAILED


@given(st.text(max_size=300))
def test_no_output_breaks_the_parser_or_passes_for_health(output: str) -> None:
    assert parse_diagnostic(output).verdict is Verdict.UNKNOWN


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["test_categories", "tests", "results", "status", "name", "warnings", "test_summary"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(json_values)
def test_no_shape_of_json_breaks_the_parser(root: object) -> None:
    assert parse_diagnostic(json.dumps({"DCGM Diagnostic": root})).verdict in (Verdict.UNKNOWN, Verdict.FAILED)
