"""What the host engine's health watches say of a node."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.contract.vocabulary import Verdict
from nodeheal.parsers.dcgm_health import parse_health
from tests.support.goldens import cut_off, golden, names


def health(overall: str, word: str = "", system: str = "Memory system", *lines: str) -> str:
    """One GPU with one sick subsystem, as dcgmi nests it."""
    body: dict[str, Any] = {"Overall Health": {"value": overall}}
    if word:
        errors = {"children": {system: {"overflow": list(lines), "value": word}}}
        body["GPU"] = {"children": {"3": {"children": {"Errors": errors}, "value": word}}}
    return json.dumps({"body": body, "header": ["Health Monitor Report"]})


def found(text: str) -> list[tuple[str, str | None]]:
    return [(finding.code, finding.component) for finding in parse_health(text).findings]


@pytest.mark.parametrize(
    ("word", "verdict"), [("Healthy", Verdict.OK), ("Warning", Verdict.DEGRADED), ("Failure", Verdict.FAILED)]
)
def test_the_overall_word_is_the_verdict(word: str, verdict: Verdict) -> None:
    assert parse_health(health(word)).verdict is verdict


def test_a_sentence_that_is_wrapped_over_lines_is_recognised() -> None:
    text = health("Failure", "Failure", "Driver", "GPU 3 requires a reset", "to recover from a fault.")

    report = parse_health(text)

    assert found(text) == [("DCGM_FR_GPU_RECOVERY_RESET", "GPU 3")]
    assert (report.failed_tests, report.failed_components) == (("Driver",), ("GPU 3",))


def test_an_unknown_sentence_is_named_after_its_subsystem() -> None:
    assert found(health("Warning", "Warning", "PCIe system", "The car is red?")) == [("HEALTH_PCIE", "GPU 3")]
    assert found(health("Warning", "Warning", "Coffee machine", "empty")) == [("HEALTH_UNNAMED", "GPU 3")]


def test_a_failure_that_nothing_explains_is_found_all_the_same() -> None:
    assert found(health("Failure")) == [("HEALTH_UNNAMED", None)]


def test_a_sick_gpu_outweighs_a_healthy_overall_word() -> None:
    assert parse_health(health("Healthy", "Failure", "Memory system", "bad")).verdict is Verdict.FAILED


def test_several_faults_of_one_node_are_all_found() -> None:
    text = golden("dcgm_health_3_failure.json")

    assert found(text) == [
        ("DCGM_FR_PCI_REPLAY_RATE", "GPU 0"),
        ("DCGM_FR_VOLATILE_DBE_DETECTED", "GPU 3"),
        ("DCGM_FR_PENDING_PAGE_RETIREMENTS", "GPU 3"),
        ("DCGM_FR_NVLINK_DOWN", "GPU 3"),
    ]
    assert parse_health(text).failed_components == ("GPU 3",)


def test_other_devices_than_gpus_are_watched_too() -> None:
    assert ("HEALTH_CONNECTX", "ConnectX 0") in found(golden("dcgm_health_4_failure.json"))


@pytest.mark.parametrize("name", names("dcgm_health_*_healthy.json"))
def test_a_healthy_recording_is_healthy(name: str) -> None:
    assert parse_health(golden(name)).verdict is Verdict.OK


@pytest.mark.parametrize(
    "text",
    [
        "",
        golden("dcgm_health_off.txt"),
        "{}",
        "[]",
        '{"body": {}}',
        '{"body": {"Overall Health": {}}}',
        '{"body": {"Overall Health": "Healthy"}}',
        health("Internal error"),
        health("Health"),
        health("Healthy", "Internal error"),
        '{"body": ' * 20_000,
    ],
)
def test_silence_is_not_health(text: str) -> None:
    assert parse_health(text).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("name", names("dcgm_health_*.json"))
def test_a_recording_that_is_cut_off_is_not_health(name: str) -> None:
    assert {parse_health(text).verdict for text in cut_off(name, stride=1)} == {Verdict.UNKNOWN}


@given(st.binary(max_size=300))
def test_no_bytes_break_the_parser(raw: bytes) -> None:
    assert parse_health(raw.decode("utf-8", "replace")).verdict is Verdict.UNKNOWN


shapes = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["Overall Health", "value", "children", "GPU", "3", "Errors", "overflow", "error_id"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(shapes)
def test_no_shape_of_json_breaks_the_parser(body: object) -> None:
    assert parse_health(json.dumps({"body": body})).verdict in Verdict
