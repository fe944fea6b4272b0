"""GPUs by nvidia-smi, where the library cannot be used."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeheal.agent.checks import nvidia_smi
from nodeheal.agent.checks.check import NodeCheckResult
from nodeheal.agent.diagnostics.bench import Output
from tests.support.goldens import golden
from tests.unit.agent.checks.places import ABSENT, HUNG, Node, installed, says


@pytest.fixture(autouse=True)
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none, whatever this machine has."""
    monkeypatch.setattr("nodeheal.agent.checks.nvidia_smi.LIBRARY", str(tmp_path / "libnvidia-ml.so.1"))


def look(tmp_path: Path, answer: Output) -> NodeCheckResult:
    node = Node(tmp_path, answers={"nvidia-smi -q -x": answer})
    return nvidia_smi.look(node.place, {})


def look_beside(tmp_path: Path, answer: Output, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> NodeCheckResult:
    """Where the library is there, which is this program then."""
    monkeypatch.setattr("nodeheal.agent.checks.nvidia_smi.LIBRARY", None)
    place = Node(tmp_path, answers={"nvidia-smi -q -x": answer}).place
    return nvidia_smi.look(replace(place, config=replace(place.config, **settings)), {})


def codes(look: NodeCheckResult) -> list[str]:
    return sorted({problem.finding.code for problem in look.problems})


def test_healthy_gpus_are_healthy(tmp_path: Path) -> None:
    seen = look(tmp_path, says(golden("nvidia_smi_xml_healthy.xml")))

    assert (seen.problems, seen.unclear) == ((), "")
    assert "show no fault" in seen.summary


@pytest.mark.parametrize(
    ("recording", "code"),
    [
        ("nvidia_smi_xml_sick.xml", "REMAP_FAILED"),
        ("nvidia_smi_says_no_driver_sick.txt", "DRIVER_NOT_LOADED"),
        ("nvidia_smi_says_lost_sick.txt", "GPU_LOST"),
    ],
)
def test_what_it_shows_is_told(tmp_path: Path, recording: str, code: str) -> None:
    assert code in codes(look(tmp_path, says(golden(recording), 9)))


def test_a_sentence_among_its_complaints_is_read_too(tmp_path: Path) -> None:
    complaint = golden("nvidia_smi_says_lost_sick.txt")

    assert "GPU_LOST" in codes(look(tmp_path, says(golden("nvidia_smi_xml_healthy.xml"), errors=complaint)))


def test_a_field_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    text = golden("nvidia_smi_xml_healthy.xml").replace("<pending>No</pending>", "<pending>ERR!</pending>")
    text = text.replace("<remapped_row_pending>No</", "<remapped_row_pending>ERR!</")

    assert "ERR_FIELD" in codes(look(tmp_path, says(text)))


def test_one_that_hangs_is_a_finding_and_takes_nothing_back(tmp_path: Path) -> None:
    seen = look(tmp_path, HUNG)

    assert (codes(seen), bool(seen.unclear)) == (["nvidia_smi_hang"], True)


@pytest.mark.parametrize("answer", [ABSENT, says(""), says("<?xml version='1.0'?><nvidia_smi_log>")])
def test_one_that_says_nothing_is_unclear(tmp_path: Path, answer: Output) -> None:
    seen = look(tmp_path, answer)

    assert (seen.problems, bool(seen.unclear)) == ((), True)


def test_beside_the_library_one_that_hangs_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = look_beside(tmp_path, HUNG, monkeypatch)

    assert (codes(seen), bool(seen.unclear)) == (["nvidia_smi_hang"], True)


def test_beside_the_library_only_what_that_does_not_show_is_told_and_nothing_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = golden("nvidia_smi_xml_sick.xml").replace("<remapped_row_pending>No</", "<remapped_row_pending>ERR!</")

    seen = look_beside(tmp_path, says(text), monkeypatch)

    assert codes(seen) == ["ERR_FIELD"]
    assert "REMAP_FAILED" in seen.unclear
    assert seen.unclear.endswith(": see gpu_state")


def test_where_nobody_reads_the_library_it_tells_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = look_beside(tmp_path, says(golden("nvidia_smi_xml_sick.xml")), monkeypatch, checks=("nvidia_smi",))

    assert "REMAP_FAILED" in codes(seen)


def test_healthy_gpus_are_healthy_beside_the_library_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = look_beside(tmp_path, says(golden("nvidia_smi_xml_healthy.xml")), monkeypatch)

    assert (seen.problems, seen.unclear) == ((), "")


def test_beside_the_library_it_is_asked_where_somebody_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, nvidia_smi.TOOL, monkeypatch)
    monkeypatch.setattr("nodeheal.agent.checks.nvidia_smi.LIBRARY", None)
    place = Node(tmp_path).gpus(8, 8).place

    wanted = replace(place, config=replace(place.config, nvidia_smi_beside_nvml=True))

    assert (bool(nvidia_smi.why_not(place)), nvidia_smi.why_not(wanted)) == (True, "")


def test_unless_it_is_wanted_it_is_used_only_where_the_library_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path)
    installed(tmp_path, nvidia_smi.TOOL, monkeypatch)
    without_gpus = nvidia_smi.why_not(node.place)
    node.gpus(8, 8)
    monkeypatch.setattr("nodeheal.agent.checks.nvidia_smi.LIBRARY", None)  # which is this program, and always loaded
    with_library = nvidia_smi.why_not(node.place)
    monkeypatch.setattr("nodeheal.agent.checks.nvidia_smi.LIBRARY", str(tmp_path / "libnvidia-ml.so.1"))

    assert (without_gpus, bool(with_library), nvidia_smi.why_not(node.place)) == ("no NVIDIA GPU", True, "")
