"""What DCGM's diagnostics say about a node. Only what was tested and passed is healthy."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.contract.vocabulary import Action, Family, Verdict
from nodeheal.domain.faults.catalog import find
from nodeheal.parsers.dcgm_diag import parse_diagnostic
from nodeheal.parsers.dcgm_errors import ErrorKind, kind_of, name_of
from nodeheal.parsers.finding import ToolReport
from nodeheal.parsers.nvlinks import NvLinks
from tests.support.goldens import SLOW, cut_off, dcgm_4, document_4, entity, golden, names, results_4, warning


def dcgm_3(**statuses: str) -> str:
    """DCGM 3: one result per GPU, or one for all GPUs in the deployment tests; null between the tests."""
    deployment = {"name": "Denylist", "results": [{"gpu_ids": "0,1", "status": "Pass"}]}
    tests = [
        {"name": name, "results": [{"gpu_ids": "0", "status": "Pass"}, result_3(status)]}
        for name, status in statuses.items()
    ]
    categories = [{"category": "Deployment", "tests": [deployment, None]}, {"category": "Hardware", "tests": tests}]
    return json.dumps({"DCGM GPU Diagnostic": {"test_categories": categories}})


def result_3(status: str) -> dict[str, Any]:
    is_failed = status.lower() == "fail"
    return {"gpu_ids": "1", "status": status, **({"warnings": [SLOW]} if is_failed else {})}


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


def found(report: ToolReport) -> list[tuple[str, str | None]]:
    return [(finding.code, finding.component) for finding in report.findings]


def test_an_error_id_becomes_dcgms_name_for_it() -> None:
    sick = results_4("memory", "Fail", warnings=warning(52, "Found 12 faulty memory elements on GPU 1"))

    report = parse_diagnostic(document_4([sick]))

    [finding] = report.findings
    assert (finding.family, finding.code, finding.component) == (Family.dcgm, "DCGM_FR_FAULTY_MEMORY", "GPU 1")
    assert finding.message == "memory: Found 12 faulty memory elements on GPU 1"
    assert report.failed_components == ("GPU 1",)


@pytest.mark.parametrize("test", ["nvbandwidth", "pulse_test", "memory_bandwidth", "software", "a test of ours"])
@pytest.mark.parametrize("warnings", [[], warning(9999, "something new"), [{"warning": "something new"}], [{}]])
def test_a_failure_without_a_known_error_is_no_verdict_whatever_its_test(test: str, warnings: list[Any]) -> None:
    report = parse_diagnostic(document_4([results_4(test, "Fail", warnings=warnings)]))

    assert (report.verdict, report.failed_tests, report.undone_tests) == (Verdict.UNKNOWN, (), (test,))
    assert report.failed_components == ()
    assert found(report) == [("DIAG_UNNAMED", "GPU 1")]
    assert find(Family.dcgm, "DIAG_UNNAMED").action is Action.ESCALATE  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text",
    [
        "The utilization of GPU 1 is greater than 20%. This may affect the results of the memory bandwidth test.",
        "The memory copy utilization for the GPU: 1 is greater than 10%. This may affect the results of the test.",
        "Incompatible CUDA compute capability major version: 13",
        "Free memory is less than 75% of total memory. Skipping memtest.",
        "GPU 1 is in prohibted mode; skipping test.",
    ],
)
def test_a_test_whose_precondition_did_not_hold_was_not_done(text: str) -> None:
    for written in (document_4([results_4("pulse_test", "Fail", warnings=[{"warning": text}])]), sentence_3(text)):
        report = parse_diagnostic(written)

        assert (report.verdict, report.failed_tests, report.undone_tests) == (Verdict.UNKNOWN, (), ("pulse_test",))
        assert found(report) == [("DIAG_NOT_DONE", "GPU 1")]


def sentence_3(text: str, status: str = "Fail") -> str:
    """A document of DCGM 3 whose second GPU has a warning."""
    document = json.loads(dcgm_3(pulse_test=status))
    document["DCGM GPU Diagnostic"]["test_categories"][1]["tests"][0]["results"][1]["warnings"] = [text]
    return json.dumps(document)


def test_every_error_fails_a_test_only_if_it_is_one_of_the_hardware() -> None:
    for number in range(1, 140):
        report = parse_diagnostic(document_4([results_4("pcie", "Fail", warnings=warning(number, "x"))]), 0, NvLinks.UP)

        kind = kind_of(name_of(number) or "", NvLinks.UP)
        assert (report.verdict is Verdict.FAILED) == (kind is ErrorKind.HARDWARE), number
        assert report.verdict is not Verdict.OK


@pytest.mark.parametrize("error", [{"warning": "Couldn't allocate at least 60.0% of GPU memory"}, {"error_id": 52}])
def test_a_pass_with_an_error_proves_nothing(error: dict[str, Any]) -> None:
    report = parse_diagnostic(document_4([results_4("memory", "Pass", warnings=[error])]))

    assert (report.verdict, report.failed_tests, report.undone_tests) == (Verdict.UNKNOWN, (), ("memory",))
    assert [finding.verdict for finding in report.findings] == [Verdict.UNKNOWN]
    assert parse_diagnostic(sentence_3("A sentence of DCGM 3", "Pass")).verdict is Verdict.UNKNOWN


def test_information_beside_a_pass_is_no_error() -> None:
    told = results_4("memory", "Pass", info=["Allocated 80 GB (98.0%)"], warnings=[])

    assert parse_diagnostic(document_4([told])).verdict is Verdict.OK


LINK_DOWN = "GPU 1's NvLink link 4 is currently down"


@pytest.mark.parametrize(
    ("links", "verdict", "findings"),
    [
        (NvLinks.UP, Verdict.FAILED, [None]),
        (NvLinks.UNKNOWN, Verdict.UNKNOWN, [Verdict.UNKNOWN]),
        (NvLinks.TRAINING, Verdict.UNKNOWN, [Verdict.UNKNOWN]),
        (NvLinks.ABSENT, Verdict.UNKNOWN, []),
    ],
)
def test_a_link_that_is_down_counts_only_where_the_links_are_up(
    links: NvLinks, verdict: Verdict, findings: list[Verdict | None]
) -> None:
    for written in (
        document_4([results_4("pulse_test", "Fail", warnings=warning(14, LINK_DOWN))]),
        sentence_3(LINK_DOWN),
    ):
        report = parse_diagnostic(written, 0, links)

        tests = report.failed_tests if verdict is Verdict.FAILED else report.undone_tests
        assert (report.verdict, tests) == (verdict, ("pulse_test",))
        assert [finding.verdict for finding in report.findings] == findings
        assert ("errors of NVLinks are left out" in report.reason) == (links is NvLinks.ABSENT)


@pytest.mark.parametrize(("test", "is_said"), [("pcie", True), ("pulse_test", False)])
def test_a_test_that_nvlinks_kept_from_being_done_says_how_it_is_done_without_them(test: str, is_said: bool) -> None:
    down = results_4(test, "Fail", warnings=warning(14, LINK_DOWN))

    absent, unknown = (parse_diagnostic(document_4([down]), 0, links) for links in (NvLinks.ABSENT, NvLinks.UNKNOWN))

    assert (
        absent.reason.endswith("; run the test without them: dcgmi diag -r pcie -p pcie.test_nvlink_status=false")
        is is_said
    )
    assert "left out" not in unknown.reason


def test_a_test_that_failed_is_not_also_undone() -> None:
    bad = results_4("memory", "Fail", warnings=warning(3, "broken"))
    busy = [{"warning": "something new"}]

    for undone in ("memory", "pcie"):
        report = parse_diagnostic(document_4([bad, results_4(undone, "Fail", warnings=busy)]))

        assert (report.verdict, report.failed_tests) == (Verdict.FAILED, ("memory",))
        assert report.undone_tests == (() if undone == "memory" else ("pcie",))


def test_a_test_not_done_is_named_beside_a_warning_but_does_not_settle_it() -> None:
    warned = results_4("pcie", "Warn", warnings=warning(13, "slow"))
    undone = results_4("memory", "Fail", warnings=[{"warning": "something new"}])

    alone, beside = (parse_diagnostic(document_4(results)) for results in ([undone], [warned, undone]))

    assert (alone.undone_tests, alone.is_only_undone) == (("memory",), True)
    assert (beside.verdict, beside.undone_tests, beside.is_only_undone) == (Verdict.UNKNOWN, ("memory",), False)


def test_a_gpu_that_is_listed_and_was_not_tested_is_not_missing() -> None:
    skipped = [entity("GPU", 0, "Pass"), entity("GPU", 1, "Skip")]

    report = parse_diagnostic(document_4([{"name": "pcie", "results": skipped}]), 2)

    assert (report.verdict, report.reason) == (Verdict.UNKNOWN, "1 of 2 GPUs were tested")


def test_a_warning_is_found_but_is_no_failed_component() -> None:
    report = parse_diagnostic(document_4([results_4("pcie", "Warn", warnings=warning(98, "host-side replay", 1))]))

    assert (report.verdict, report.failed_components) == (Verdict.DEGRADED, ())
    assert found(report) == [("DCGM_FR_PCIE_H_REPLAY_VIOLATION", "GPU 1")]


def test_a_sentence_of_dcgm_3_names_the_one_gpu_among_all_tested() -> None:
    report = parse_diagnostic(golden("dcgm_diag_3_sick.json"), 8)

    assert (report.verdict, report.failed_components) == (Verdict.FAILED, ("GPU 6", "GPU 3"))
    assert found(report) == [
        ("DCGM_FR_PENDING_ROW_REMAP", "GPU 6"),
        ("DCGM_FR_LOW_BANDWIDTH", "GPU 3"),
        ("DCGM_FR_TARGET_POWER", "GPU 1"),
    ]


def test_the_documents_own_table_gives_a_gpu_its_uuid() -> None:
    report = parse_diagnostic(golden("dcgm_diag_4_sick.json"), 8)

    assert report.failed_tests == ("memory", "software")
    assert ("DCGM_FR_ROW_REMAP_FAILURE", "GPU-2f0c4b2e-7d1a-4c35-9b6e-0a1b2c3d4e52") in found(report)
    assert "GPU-7f0c4b2e-7d1a-4c35-9b6e-0a1b2c3d4e57" not in report.failed_components


def test_a_setting_is_found_without_making_the_node_fail() -> None:
    report = parse_diagnostic(golden("dcgm_diag_4_setting.json"))

    assert report.verdict is Verdict.DEGRADED
    assert set(found(report)) == {("DCGM_FR_PERSISTENCE_MODE", f"GPU {number}") for number in range(8)}


def test_a_setting_told_in_a_sentence_is_not_broken_hardware_either() -> None:
    document = json.loads(dcgm_3(pcie="Pass"))
    tests = document["DCGM GPU Diagnostic"]["test_categories"][0]["tests"]
    tests[0]["results"][0] = {
        "gpu_ids": "0,1",
        "status": "Fail",
        "warnings": ["Persistence mode for GPU 1 is disabled."],
    }

    assert parse_diagnostic(json.dumps(document)).verdict is Verdict.DEGRADED


def test_what_stops_the_diagnostic_is_found_though_nothing_was_tested() -> None:
    report = parse_diagnostic(golden("dcgm_diag_4_error.json"))

    assert report.verdict is Verdict.UNKNOWN
    assert found(report) == [("DCGM_FR_FALLEN_OFF_BUS", "GPU 4")]


def test_a_missing_gpu_is_found() -> None:
    assert found(parse_diagnostic(dcgm_4(pcie="Pass"), accelerators=3)) == [("DIAG_ACCELERATOR_COUNT", None)]


@pytest.mark.parametrize("name", ["dcgm_diag_3_healthy.json", "dcgm_diag_4_healthy.json"])
def test_a_healthy_recording_is_healthy(name: str) -> None:
    report = parse_diagnostic(golden(name), 8)

    assert (report.verdict, report.findings) == (Verdict.OK, ())


@pytest.mark.parametrize("name", names("dcgm_diag_*"))
def test_a_recording_that_is_cut_off_is_not_health(name: str) -> None:
    assert {parse_diagnostic(text).verdict for text in cut_off(name)} == {Verdict.UNKNOWN}


@given(st.binary(max_size=300))
def test_no_bytes_break_the_parser(raw: bytes) -> None:
    assert parse_diagnostic(raw.decode("utf-8", "replace")).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("rest", ["Error: diagnostic was killed", '{"DCGM Diagnostic": {"runtime_error": "x"}}'])
def test_what_stands_behind_a_diagnostic_is_a_doubt(rest: str) -> None:
    report = parse_diagnostic(golden("dcgm_diag_4_healthy.json") + "\n" + rest, 0)

    assert report.verdict is Verdict.UNKNOWN
    assert "there is text after the diagnostic" in report.reason


# DCGM 3 at level 1: its tests name no GPU, and older versions do not list the GPUs either.


def level_1(status: str = "Pass", last: str = "Pass", listed: int = 0) -> str:
    names = ("Denylist", "NVML Library", "CUDA Main Library", "Permissions and OS Blocks", "Inforom")
    tests = [{"name": name, "results": [{"status": status if name == "Inforom" else "Pass"}]} for name in names]
    tests.append({"name": "Fabric Manager", "results": [{"status": last}]})
    ids = {"GPU Device IDs": ["2330"] * listed} if listed else {}
    root = {"test_categories": [{"category": "Deployment", "tests": tests}], **ids}
    return json.dumps({"DCGM GPU Diagnostic": root})


@pytest.mark.parametrize("accelerators", [0, 8])
@pytest.mark.parametrize("last", ["Pass", "Skip"])
def test_level_1_of_dcgm_3_passes_when_everything_passed(accelerators: int, last: str) -> None:
    assert parse_diagnostic(level_1(last=last), accelerators).verdict is Verdict.OK


def test_level_1_of_dcgm_3_counts_the_gpus_that_it_lists() -> None:
    eight = level_1(listed=8)

    assert parse_diagnostic(eight, 8).verdict is Verdict.OK
    assert (parse_diagnostic(eight, 9).verdict, parse_diagnostic(eight, 9).failed_tests) == (
        Verdict.FAILED,
        ("accelerator_count",),
    )


@pytest.mark.parametrize(
    ("status", "verdict"),
    [("Fail", Verdict.UNKNOWN), ("Warn", Verdict.DEGRADED), ("Not Run", Verdict.UNKNOWN), ("Skip", Verdict.OK)],
)
def test_level_1_of_dcgm_3_is_not_healthy_where_a_test_has_not_passed(status: str, verdict: Verdict) -> None:
    assert parse_diagnostic(level_1(status)).verdict is verdict


def test_what_only_prepares_the_tests_proves_no_gpu_where_the_tests_were_skipped() -> None:
    document = json.loads(level_1())
    skipped = {"name": "PCIe", "results": [{"gpu_ids": "0", "status": "Skip"}]}
    document["DCGM GPU Diagnostic"]["test_categories"].append({"category": "Integration", "tests": [skipped]})

    assert parse_diagnostic(json.dumps(document)).verdict is Verdict.UNKNOWN
    assert parse_diagnostic(level_1("Skip", "Skip").replace("Pass", "Skip")).verdict is Verdict.UNKNOWN


# `dcgmi diag --iterations`: a document for each, as dcgmi/Diag.cpp puts them together.


def iterations(*documents: str, overall: str = "Pass") -> str:
    return json.dumps({"iterations": [json.loads(text) for text in documents], "Overall Result": overall})


def test_iterations_pass_when_each_has_passed() -> None:
    report = parse_diagnostic(iterations(dcgm_4(pcie="Pass"), dcgm_4(pcie="Pass")), 2)

    assert report.verdict is Verdict.OK


def test_one_iteration_that_fails_is_a_failure() -> None:
    report = parse_diagnostic(iterations(dcgm_4(pcie="Pass"), dcgm_4(pcie="Fail"), overall="Fail"), 2)

    assert (report.verdict, report.failed_tests) == (Verdict.FAILED, ("pcie",))


@pytest.mark.parametrize(
    "text",
    [
        iterations(dcgm_4(pcie="Pass"), overall="Fail"),
        iterations(),
        iterations(dcgm_4(pcie="Pass"), "{}"),
        json.dumps({"iterations": [None], "Overall Result": "Pass"}),
        iterations(dcgm_4(pcie="Pass")) + " killed",
    ],
)
def test_iterations_that_are_not_whole_are_not_health(text: str) -> None:
    assert parse_diagnostic(text).verdict is Verdict.UNKNOWN
