"""Finds which accelerators a node has and should have, from the kernel's files. It queries no driver, so it cannot
hang.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from nodeheal.agent.checks.check import CheckContext
from nodeheal.agent.checks.pci_tree import BRIDGE_CLASS, DISPLAY_CLASSES, NVIDIA

_FUNCTION_0 = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.0")
_TYPE = re.compile(r"[a-z][a-z0-9-]{1,20}\.[a-z0-9-]{1,20}")
_FILE_BYTES = 4096

# GPUs and Neuron devices of each instance type, from EC2's DescribeInstanceTypes (a test compares it with a recording);
# trn2u from the Neuron documentation. Types with a fraction of a GPU are left out, because what they show is not
# documented.
_SIZES = "xlarge 2xlarge 4xlarge 8xlarge 16xlarge"
_GPUS: dict[str, dict[int, str]] = {
    "g4dn": {1: _SIZES, 4: "12xlarge", 8: "metal"},
    "g5": {1: _SIZES, 4: "12xlarge 24xlarge", 8: "48xlarge"},
    "g5g": {1: "xlarge 2xlarge 4xlarge 8xlarge", 2: "16xlarge metal"},
    "g6": {1: _SIZES, 4: "12xlarge 24xlarge", 8: "48xlarge"},
    "g6e": {1: _SIZES, 4: "12xlarge 24xlarge", 8: "48xlarge"},
    "g7": {1: "2xlarge 4xlarge 8xlarge", 2: "12xlarge", 4: "24xlarge", 8: "48xlarge"},
    "g7e": {1: "2xlarge 4xlarge 8xlarge", 2: "12xlarge", 4: "24xlarge", 8: "48xlarge"},
    "gr6": {1: "4xlarge 8xlarge"},
    "p3dn": {8: "24xlarge"},
    "p4d": {8: "24xlarge"},
    "p4de": {8: "24xlarge"},
    "p5": {1: "4xlarge", 8: "48xlarge"},
    "p5e": {8: "48xlarge"},
    "p5en": {8: "48xlarge"},
    "p6-b200": {8: "48xlarge"},
    "p6-b300": {8: "48xlarge"},
    "p6e-gb200": {4: "36xlarge"},
}
_NEURON: dict[str, dict[int, str]] = {
    "inf1": {1: "xlarge 2xlarge", 4: "6xlarge", 16: "24xlarge"},
    "inf2": {1: "xlarge 8xlarge", 6: "24xlarge", 12: "48xlarge"},
    "trn1": {1: "2xlarge", 16: "32xlarge"},
    "trn1n": {16: "32xlarge"},
    "trn2": {1: "3xlarge", 16: "48xlarge"},
    "trn2u": {16: "48xlarge"},
}


@dataclass(frozen=True)
class Expected:
    """How many devices there should be, and the source of that number; 0: not known."""

    count: int
    by: str = ""


def instance_type(place: CheckContext) -> str:
    """Return the EC2 instance type from the machine's firmware; empty elsewhere."""
    product = text_of(place.sys / "class/dmi/id/product_name")
    return product if _TYPE.fullmatch(product) else ""


def gpus_of(kind: str) -> int:
    """NVIDIA GPUs of an instance type; 0: none, or not known."""
    return _count(_GPUS, kind)


def neuron_devices_of(kind: str) -> int:
    """Neuron devices of an instance type; 0: none, or not known."""
    return _count(_NEURON, kind)


def expected_gpus(place: CheckContext) -> Expected:
    """Return the configured number, else that of the instance type."""
    return _expected(place, gpus_of(instance_type(place)), is_other=bool(neuron_devices_of(instance_type(place))))


def expected_neuron_devices(place: CheckContext) -> Expected:
    """Return the configured number of Neuron devices, else that of the instance type."""
    return _expected(place, neuron_devices_of(instance_type(place)), is_other=has_nvidia(place))


def has_nvidia(place: CheckContext) -> bool:
    """Whether NVIDIA GPUs belong in this node, by the driver, the bus or the instance type."""
    return nvidia_driver(place).exists() or bool(gpus_on_bus(place)) or bool(gpus_of(instance_type(place)))


def nvidia_driver(place: CheckContext) -> Path:
    """Return the folder in which a loaded NVIDIA driver describes itself."""
    return place.proc / "driver/nvidia"


def gpus_with_driver(place: CheckContext) -> tuple[str, ...]:
    """The addresses of the GPUs that the driver has registered."""
    return _names(nvidia_driver(place) / "gpus")


def gpus_on_bus(place: CheckContext) -> tuple[str, ...]:
    """Return the addresses of the GPUs on the PCI bus, without virtual functions and those passed to a virtual
    machine.
    """
    return tuple(address for address in _nvidia_devices(place, DISPLAY_CLASSES) if not _is_away(place, address))


def nvswitches(place: CheckContext) -> tuple[str, ...]:
    """Return the NVSwitches, from the bus or their driver."""
    return _nvidia_devices(place, (BRIDGE_CLASS,)) or _names(place.proc / "driver/nvidia-nvswitch/devices")


def text_of(path: Path) -> str:
    """Return the text of a small file; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_FILE_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _expected(place: CheckContext, by_type: int, is_other: bool) -> Expected:
    configured = place.config.accelerators
    if configured is not None and not is_other:
        return Expected(configured, "as configured")
    return Expected(by_type, f"as {instance_type(place)} has") if by_type else Expected(0)


def _count(table: dict[str, dict[int, str]], kind: str) -> int:
    family, _, size = kind.partition(".")
    return next((count for count, sizes in table.get(family, {}).items() if size in sizes.split()), 0)


def _nvidia_devices(place: CheckContext, classes: tuple[str, ...]) -> tuple[str, ...]:
    devices = place.sys / "bus/pci/devices"
    return tuple(
        address
        for address in _names(devices)
        if text_of(devices / address / "vendor") == NVIDIA and text_of(devices / address / "class").startswith(classes)
    )


def _is_away(place: CheckContext, address: str) -> bool:
    """Whether it is a virtual function, or a device that another driver holds for a virtual machine."""
    device = place.sys / "bus/pci/devices" / address
    try:
        return (device / "physfn").exists() or (device / "driver").readlink().name.startswith("vfio")
    except OSError:
        return False


def _names(folder: Path) -> tuple[str, ...]:
    try:
        return tuple(sorted(path.name for path in folder.iterdir() if _FUNCTION_0.fullmatch(path.name.lower())))
    except OSError:
        return ()
