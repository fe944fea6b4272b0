"""What several checks see is one event, and never none."""

import shutil
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest
from pynvml import NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIB_RM_VERSION_MISMATCH

from nodeheal.agent.checks import gpu_count, gpu_state, gpu_stream, nvidia_services, nvidia_smi
from nodeheal.agent.checks.check import CheckContext, NodeCheckResult, State
from nodeheal.agent.checks.dedupe import without_duplicates
from nodeheal.agent.checks.gpu_reading import problem
from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding
from tests.unit.agent.checks.places import Node, says

CODES = ["DRIVER_MISMATCH", "DRIVER_NOT_LOADED", "NO_DEVICES"]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """One on which the checks that need no library see all of it."""
    monkeypatch.setattr(nvidia_services, "LIBRARY_FOLDERS", (tmp_path / "lib",))
    node = Node(tmp_path, accelerators=8).gpus(8)
    node.write("lib/libnvidia-ml.so.580.65.06")
    node.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  x")
    return node


def told(look: NodeCheckResult) -> list[str]:
    return [one.finding.code for one in look.problems]


def look(code: str) -> NodeCheckResult:
    return NodeCheckResult((problem(code, None, f"NVML: {code}"), problem("GPU_LOST", "0000:10:00.0", "lost")))


@pytest.mark.parametrize("code", CODES)
def test_what_another_check_sees_is_told_by_that_one_and_pointed_to(node: Node, code: str) -> None:
    seen = without_duplicates(look(code), node.place)

    assert told(seen) == ["GPU_LOST"]
    assert seen.unclear.startswith(f"NVML: {code}: see ")


@pytest.mark.parametrize("code", CODES)
def test_what_the_other_check_does_not_see_is_told(tmp_path: Path, code: str) -> None:
    assert without_duplicates(look(code), Node(tmp_path).place) == look(code)


@pytest.mark.parametrize("code", CODES)
def test_what_a_check_sees_that_nobody_has_chosen_is_told(node: Node, code: str) -> None:
    alone = replace(node.place, config=replace(node.place.config, checks=("gpu_state",)))

    assert without_duplicates(look(code), alone) == look(code)


def test_what_a_check_sees_that_is_chosen_by_name_is_left_to_it(node: Node) -> None:
    both = replace(node.place, config=replace(node.place.config, checks=("gpu_state", "gpu_count")))

    assert told(without_duplicates(look("NO_DEVICES"), both)) == ["GPU_LOST"]


def test_the_same_word_of_another_family_is_another_thing(node: Node) -> None:
    of_neuron = replace(look("x").problems[0], finding=Finding(Family.neuron, "DRIVER_NOT_LOADED", None, "no module"))

    assert told(without_duplicates(NodeCheckResult((of_neuron,)), node.place)) == ["DRIVER_NOT_LOADED"]


def test_a_doubt_that_the_look_had_itself_is_kept(node: Node) -> None:
    seen = without_duplicates(replace(look("NO_DEVICES"), unclear="GPU 3: no answer"), node.place)

    assert seen.unclear == "GPU 3: no answer; NVML: NO_DEVICES: see gpu_count"


class Unusable:
    """A library that cannot be used."""

    number = NVML_ERROR_DRIVER_NOT_LOADED

    def __init__(self, *_: object) -> None:
        raise pynvml.NVMLError(self.number)


@pytest.mark.parametrize("number", [NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIB_RM_VERSION_MISMATCH])
def test_a_driver_that_is_not_loaded_or_does_not_fit_is_one_event_of_one_check(
    node: Node, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(gpu_stream, "Nvml", type("Other", (Unusable,), {"number": number}))
    state: State = {"unusable": number}
    node.answers["nvidia-smi"] = says(_SENTENCES[number], 9)
    if number == NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        node.gpus(8, 8)
    else:
        shutil.rmtree(node.root / "proc")

    by = {check: told(look_of(check, node.place, state)) for check in (gpu_state, nvidia_smi)}

    assert by == {gpu_state: [], nvidia_smi: []}
    assert len([*told(gpu_count.look(node.place, {})), *told(nvidia_services.look(node.place, {}))]) == 1


_SENTENCES = {
    NVML_ERROR_DRIVER_NOT_LOADED: "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
    NVML_ERROR_LIB_RM_VERSION_MISMATCH: "Failed to initialize NVML: Driver/library version mismatch",
}


def look_of(check: object, place: CheckContext, state: State) -> NodeCheckResult:
    return check.look(place, state)  # type: ignore[attr-defined,no-any-return]
