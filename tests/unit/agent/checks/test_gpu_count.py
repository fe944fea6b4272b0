"""GPUs that are there, and those that should be."""

import gzip
import json
from importlib import resources
from pathlib import Path

import pytest

from nodeheal.agent.checks import gpu_count
from nodeheal.agent.checks.hardware import (
    expected_gpus,
    expected_neuron_devices,
    gpus_of,
    neuron_devices_of,
    nvswitches,
)
from tests.unit.agent.checks.places import Node, address


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def told(node: Node) -> list[str]:
    return [problem.finding.message for problem in gpu_count.look(node.place, {}).problems]


def test_a_node_with_all_its_gpus_is_healthy(node: Node) -> None:
    node.is_a("p5.48xlarge").gpus(8, 8)

    look = gpu_count.look(node.place, {})

    assert (look.problems, look.unclear, look.summary) == ((), "", "8 GPUs")
    assert gpu_count.why_not(node.place) == ""


def test_a_gpu_that_is_not_on_the_bus_is_missing(node: Node) -> None:
    node.is_a("p5.48xlarge").gpus(7, 7)

    assert told(node) == ["7 of 8 GPUs are there (as p5.48xlarge has): 7 on the PCI bus"]


def test_the_configuration_counts_more_than_the_instance_type(node: Node) -> None:
    node.is_a("p5.48xlarge").gpus(4, 4)
    node.accelerators = 4

    assert told(node) == []


def test_a_gpu_that_the_driver_did_not_register_is_named_even_if_nobody_knows_how_many_there_should_be(
    node: Node,
) -> None:
    node.gpus(4, 3)

    assert told(node) == [f"3 of 4 GPUs are there (as the bus shows): the driver has not registered {address(3)}"]


def test_gpus_without_a_driver_are_missing_only_where_they_are_expected(node: Node) -> None:
    node.gpus(4)

    unexpected = told(node)
    node.accelerators = 4

    assert unexpected == []
    assert told(node) == ["0 of 4 GPUs are there (as configured): the driver is not loaded"]


def test_gpus_given_to_a_virtual_machine_and_their_virtual_functions_are_not_counted(node: Node) -> None:
    node.gpus(4, 2)
    (node.root / f"sys/bus/pci/devices/{address(2)}/driver").symlink_to("../../drivers/vfio-pci")
    node.write(f"sys/bus/pci/devices/{address(3)}/physfn/vendor")

    assert told(node) == []


def test_other_devices_are_no_gpus(node: Node) -> None:
    node.gpus(1, 1)
    node.pci(8, "0x068000")
    node.pci(9, "0x030000", vendor="0x1a03")

    assert told(node) == []
    assert nvswitches(node.place) == (address(8),)


def test_a_node_without_any_gpu_is_not_checked(node: Node) -> None:
    node.accelerators = 16
    node.is_a("trn1.32xlarge")

    assert gpu_count.why_not(node.place)
    assert expected_neuron_devices(node.place).count == 16


def test_what_is_configured_counts_the_accelerators_that_the_node_has(node: Node) -> None:
    node.accelerators = 16
    on_trainium = expected_gpus(node.is_a("trn1.32xlarge").place).count
    node.is_a("p5.48xlarge")

    assert (on_trainium, expected_neuron_devices(node.place).count, expected_gpus(node.place).count) == (0, 0, 16)


def test_a_node_that_lost_all_its_gpus_is_still_checked(node: Node) -> None:
    node.is_a("p4d.24xlarge")

    assert gpu_count.why_not(node.place) == ""
    assert len(told(node)) == 1


@pytest.mark.parametrize("said", ["", "Google Compute Engine", "\x00\xff", "p5." + "x" * 9000])
def test_firmware_that_names_no_instance_type_tells_nothing(node: Node, said: str) -> None:
    node.is_a(said).gpus(1, 1)

    assert told(node) == []


def test_the_counts_are_those_that_ec2_describes() -> None:
    recorded = json.loads(gzip.decompress(resources.files("moto.ec2").joinpath(TYPES).read_bytes()))

    described = {kind: _counts(info) for kind, info in recorded.items() if _counts(info) != (0, 0)}

    assert len(described) > 60
    assert {kind: (gpus_of(kind), neuron_devices_of(kind)) for kind in described} == described


TYPES = "resources/instance_types.json.gz"


def _counts(info: dict[str, dict[str, list[dict[str, object]]]]) -> tuple[object, object]:
    gpus = [gpu["Count"] for gpu in info.get("GpuInfo", {}).get("Gpus", []) if gpu["Manufacturer"] == "NVIDIA"]
    neuron = [device["Count"] for device in info.get("NeuronInfo", {}).get("NeuronDevices", [])]
    return next(iter(gpus), 0), next(iter(neuron), 0)
