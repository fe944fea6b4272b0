"""What all checks of accelerators have in common."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nodeheal.agent.checks import dcgm, gpu_count, gpu_state, neuron, nvidia_services, nvidia_smi
from nodeheal.agent.checks.check import NodeCheck
from nodeheal.agent.runtime.thresholds import NVIDIA_SMI
from nodeheal.domain.faults.catalog import find
from tests.unit.agent.checks.places import Node

CHECKS = [module.CHECK for module in (dcgm, gpu_count, gpu_state, neuron, nvidia_services, nvidia_smi)]
NAMES = [check.name for check in CHECKS]
# The longest that its tools may take, one after the other.
TOOL_SECONDS = {
    "dcgm": dcgm.TOOL_SECONDS + dcgm.ASK_SECONDS,
    "neuron": neuron.LIST_SECONDS,
    "nvidia_services": nvidia_services.TOOL_SECONDS,
    "nvidia_smi": NVIDIA_SMI.most,
    "gpu_state": gpu_state.READ_SECONDS,
}


@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
def test_a_tool_is_given_up_before_the_look_is(check: NodeCheck) -> None:
    assert TOOL_SECONDS.get(check.name, 0.0) + 5 <= check.deadline_seconds


@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
def test_a_hang_is_a_fault_that_the_catalog_knows(check: NodeCheck) -> None:
    assert check.hang is None or find(check.hang.family, check.hang.code) is not None


@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
def test_a_node_without_accelerators_is_told_why_it_is_not_checked(check: NodeCheck, tmp_path: Path) -> None:
    assert check.why_not(Node(tmp_path).place)


@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
def test_accelerators_are_given_time_to_come_up(check: NodeCheck) -> None:
    assert check.settle_seconds >= 120


def _gpu_is_there(node: Node) -> None:
    node.gpus(1, 1)


def _type_says_so(node: Node) -> None:
    node.is_a("p5.48xlarge")


def _driver_is_loaded(node: Node) -> None:
    node.write("proc/driver/nvidia/version", "NVRM version: x")


@pytest.mark.parametrize("furnish", [_gpu_is_there, _type_says_so, _driver_is_loaded])
def test_any_sign_of_nvidia_calls_for_its_checks(furnish: Callable[[Node], None], tmp_path: Path) -> None:
    node = Node(tmp_path)
    furnish(node)

    assert nvidia_services.why_not(node.place) == ""
