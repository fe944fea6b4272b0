"""What the Neuron driver's tree and the Neuron tools say of a node."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.contract.vocabulary import Verdict
from nodeheal.parsers.finding import ToolReport
from nodeheal.parsers.neuron_tools import parse_neuron, parse_neuron_tree
from tests.support.goldens import cut_off, golden, names

ROOT = "/sys/devices/virtual/neuron_device"
DEVICES = {"neuron_sysfs_healthy.txt": 2, "neuron_monitor_healthy.json": 2, "neuron_ls_healthy.json": 16}


def found(report: ToolReport) -> list[tuple[str, str | None, str | None]]:
    return [(finding.code, finding.subcode, finding.component) for finding in report.findings]


def tree(devices: int = 1, **changes: str) -> dict[str, str]:
    """A healthy tree of devices of one core, with other contents where the end of a path says so."""
    paths: dict[str, str] = {}
    for number in range(devices):
        device = f"{ROOT}/neuron{number}"
        paths |= {f"{device}/core_count": "1\n", f"{device}/connected_devices": "\n"}
        for name in ("sram_ecc_uncorrected", "mem_ecc_uncorrected", "mem_ecc_repairable_uncorrected"):
            paths[f"{device}/stats/hardware/{name}"] = "0\n"
        for name in ("success", "failure", "timeout", "hw_error", "hw_hbm_ue_error", "hw_repairable_hbm_ue_error"):
            paths[f"{device}/neuron_core0/stats/status/{name}/total"] = "0\n"
    for name, text in changes.items():
        paths.update({path: text for path in paths if f"/{name}" in path and "neuron0/" in path})
    return paths


def monitor(**counters: Any) -> dict[str, Any]:
    device = {"neuron_device_index": 0, "mem_ecc_uncorrected": 0, "sram_ecc_uncorrected": 0, **counters}
    return {
        "neuron_runtime_data": [],
        "system_data": {"neuron_hw_counters": {"neuron_devices": [device], "error": ""}},
        "neuron_hardware_info": {"neuron_device_count": 1, "error": ""},
    }


def runtime(group: str, name: str, count: int) -> dict[str, Any]:
    document = monitor()
    stats = {"execution_stats": {group: {name: count}, "error": ""}}
    document["neuron_runtime_data"] = [{"pid": 4711, "error": "", "report": stats}]
    return document


@pytest.mark.parametrize("name", names("neuron_*_healthy.*"))
def test_a_healthy_recording_is_healthy(name: str) -> None:
    report = parse_neuron(golden(name), DEVICES[name])

    assert (report.verdict, report.findings) == (Verdict.OK, ())


def test_every_fault_of_the_tree_is_found() -> None:
    report = parse_neuron(golden("neuron_sysfs_sick.txt"))

    assert report.verdict is Verdict.FAILED
    assert found(report) == [
        ("SRAM_UNCORRECTABLE_ERROR", None, "neuron0"),
        ("HBM_UNCORRECTABLE_ERROR", "repairable", "neuron1"),
        ("HBM_UNCORRECTABLE_ERROR", "unrepairable", "neuron2"),
        ("EXECUTION_TIMEOUT", None, "neuron2:nc0"),
        ("HBM_UNCORRECTABLE_ERROR", "unrepairable", "neuron2:nc1"),
        ("NC_UNCORRECTABLE_ERROR", None, "neuron3:nc0"),
        ("HANG_ON_COLLECTIVES", None, "neuron3:nc1"),
        ("DMA_ERROR", None, "neuron3:nc1"),
    ]
    assert "neuron2:nc0" not in report.failed_components


def test_an_old_driver_does_not_tell_what_can_be_repaired() -> None:
    assert found(parse_neuron(golden("neuron_sysfs_old_driver_sick.txt"))) == [
        ("HBM_UNCORRECTABLE_ERROR", None, "neuron0"),
        ("HARDWARE_ERROR", None, "neuron0:nc1"),
    ]


def test_a_tree_is_whole_and_needs_no_expectation() -> None:
    assert parse_neuron_tree(tree(2)).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("counter", "verdict", "code"),
    [
        ("sram_ecc_uncorrected", Verdict.FAILED, "SRAM_UNCORRECTABLE_ERROR"),
        ("hw_error", Verdict.FAILED, "HARDWARE_ERROR"),
        ("timeout", Verdict.DEGRADED, "EXECUTION_TIMEOUT"),
        ("failure", Verdict.DEGRADED, "EXECUTION_FAILURE"),
    ],
)
def test_a_counter_above_zero_is_a_fault(counter: str, verdict: Verdict, code: str) -> None:
    report = parse_neuron_tree(tree(1, **{counter: "3\n"}))

    assert (report.verdict, [finding.code for finding in report.findings]) == (verdict, [code])


def test_both_kinds_of_memory_errors_stay_undecided() -> None:
    report = parse_neuron_tree(tree(mem_ecc_uncorrected="2", mem_ecc_repairable_uncorrected="2"))

    assert found(report) == [
        ("HBM_UNCORRECTABLE_ERROR", "repairable", "neuron0"),
        ("HBM_UNCORRECTABLE_ERROR", None, "neuron0"),
    ]


def test_a_counter_is_found_wherever_a_driver_puts_it() -> None:
    moved = {path.replace("/stats/hardware/", "/stats/new/place/"): text for path, text in tree().items()}

    assert parse_neuron_tree(moved).verdict is Verdict.OK


@pytest.mark.parametrize(
    "gone",
    ["core_count", "sram_ecc_uncorrected", "neuron1/neuron_core0", "timeout", "neuron0/stats/hardware/mem_ecc_rep"],
)
def test_a_tree_with_something_missing_is_not_health(gone: str) -> None:
    partial = {path: text for path, text in tree(2).items() if gone not in path}

    assert parse_neuron_tree(partial).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("text", ["", "-1", "many", "1e3"])
def test_a_counter_that_cannot_be_read_is_not_zero(text: str) -> None:
    assert parse_neuron_tree(tree(sram_ecc_uncorrected=text)).verdict is Verdict.UNKNOWN


def test_a_device_that_is_not_in_the_tree_is_missing() -> None:
    report = parse_neuron_tree(tree(2), 3)

    assert (report.verdict, found(report)) == (Verdict.FAILED, [("DEVICE_COUNT_MISMATCH", None, None)])


def test_a_listing_says_when_nobody_has_said_how_long_it_should_be() -> None:
    listing = "".join(f"{path}: {text}" for path, text in tree(2).items())

    assert parse_neuron(listing).verdict is Verdict.OK
    assert "the expected number is not known" in parse_neuron(listing).reason
    assert parse_neuron(listing, 2).verdict is Verdict.OK
    assert parse_neuron(listing.replace(": ", " "), 2).verdict is Verdict.OK


def test_the_monitor_tells_of_memory_errors_by_device() -> None:
    report = parse_neuron(json.dumps(monitor(sram_ecc_uncorrected=1, mem_ecc_corrected=40)))

    assert (report.verdict, found(report)) == (Verdict.FAILED, [("SRAM_UNCORRECTABLE_ERROR", None, "neuron0")])


@pytest.mark.parametrize(
    ("group", "name", "verdict", "code"),
    [
        ("error_summary", "hardware", Verdict.FAILED, "HARDWARE_ERROR"),
        ("error_summary", "numerical", Verdict.DEGRADED, "NUMERICAL_ERROR"),
        ("error_summary", "runtime", Verdict.DEGRADED, "EXECUTION_FAILURE"),
        ("execution_summary", "timed_out", Verdict.DEGRADED, "EXECUTION_TIMEOUT"),
    ],
)
def test_the_monitor_tells_of_errors_by_process(group: str, name: str, verdict: Verdict, code: str) -> None:
    report = parse_neuron(json.dumps(runtime(group, name, 2)))

    assert report.verdict is verdict
    assert [(finding.code, finding.pid) for finding in report.findings] == [(code, 4711)]


def test_mistakes_of_the_application_are_no_fault_of_the_node() -> None:
    assert parse_neuron(json.dumps(runtime("error_summary", "model", 5))).verdict is Verdict.OK


def test_one_report_a_line_is_read_to_the_last() -> None:
    text = json.dumps(monitor()) + "\n" + json.dumps(monitor(mem_ecc_uncorrected=1)) + "\n"

    assert found(parse_neuron(text)) == [("HBM_UNCORRECTABLE_ERROR", None, "neuron0")]


def test_what_the_monitor_cannot_read_is_not_health() -> None:
    report = parse_neuron(golden("neuron_monitor_no_driver.json"))

    assert report.verdict is Verdict.UNKNOWN
    assert "no neuron devices found" in report.reason


def test_fewer_devices_than_expected_are_missing() -> None:
    assert found(parse_neuron(json.dumps(monitor()), 16)) == [("DEVICE_COUNT_MISMATCH", None, None)]
    assert found(parse_neuron(golden("neuron_ls_sick.json"), 16)) == [("DEVICE_COUNT_MISMATCH", None, "neuron7")]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "neuron-ls: command not found",
        "{}",
        "[]",
        "[1, 2]",
        '{"system_data": {}}',
        json.dumps(monitor(mem_ecc_uncorrected="none")),
        json.dumps({**monitor(), "system_data": {"neuron_hw_counters": {"neuron_devices": [], "error": ""}}}),
        '{"a": ' * 50_000,
        "[" * 50_000,
        f"{ROOT}/neuron0/some/thing:1",
    ],
)
def test_silence_is_not_health(text: str) -> None:
    assert parse_neuron(text).verdict is Verdict.UNKNOWN


def test_an_empty_tree_is_not_health() -> None:
    assert parse_neuron_tree({}, 16).verdict is Verdict.UNKNOWN
    assert parse_neuron_tree({"/sys/class/net/eth0/carrier": "1"}).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("name", names("neuron_*"))
def test_a_recording_that_is_cut_off_is_not_health(name: str) -> None:
    for text in cut_off(name, stride=97):
        assert parse_neuron(text, DEVICES.get(name, 4)).verdict is not Verdict.OK, text[-60:]


@given(st.binary(max_size=300))
def test_no_bytes_break_the_parser_or_pass_for_health(raw: bytes) -> None:
    assert parse_neuron(raw.decode("utf-8", "replace")).verdict is Verdict.UNKNOWN


SHAPE_KEYS = """
neuron_runtime_data system_data neuron_hw_counters neuron_devices neuron_hardware_info report execution_stats
error_summary hardware error neuron_device nc_count connected_to pid neuron_device_count
"""
shapes = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(SHAPE_KEYS.split()),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(shapes)
def test_no_shape_of_json_breaks_the_parser(document: object) -> None:
    assert parse_neuron(json.dumps(document)).verdict is not Verdict.OK


@given(st.dictionaries(st.sampled_from(sorted(tree(2))), st.text(max_size=6)))
def test_no_part_of_a_tree_breaks_the_parser(part: dict[str, str]) -> None:
    assert parse_neuron_tree(part).verdict in Verdict


def test_a_count_of_cores_that_no_device_has_is_a_doubt() -> None:
    report = parse_neuron_tree(tree(core_count="99999999999999999999"))

    assert (report.verdict, report.reason) == (Verdict.UNKNOWN, "neuron0 lacks some of its cores")
