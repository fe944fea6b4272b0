"""Which PCI devices serve jobs: a tree of devices as sysfs shows it."""

from pathlib import Path

import pytest

from nodeheal.agent.checks.pci_tree import LOOK_AGAIN_SECONDS, PciTree
from nodeheal.parsers.finding import Finding
from nodeheal.parsers.kernel_line import parse_message

GPU = ("0x10de", "0x2330", "0x030200")
NVSWITCH = ("0x10de", "0x22a3", "0x068000")
AUDIO = ("0x10de", "0x228b", "0x040300")  # a function of a graphics card
EFA = ("0x1d0f", "0xefa2", "0x020000")
ENA = ("0x1d0f", "0xec20", "0x020000")
TRAINIUM = ("0x1d0f", "0x7364", "0x088000")
EBS = ("0x1d0f", "0x8061", "0x010802")
CONNECTX = ("0x15b3", "0x1021", "0x020700")
BRIDGE = ("0x1000", "0xc030", "0x060400")
BMC = ("0x1a03", "0x2000", "0x030000")

PORT, SWITCH_PORT, DEVICE = "0000:00:01.0", "0000:01:00.0", "0000:02:00.0"


class Bus:
    """/sys/devices with its links in /sys/bus/pci/devices."""

    def __init__(self, folder: Path) -> None:
        self._root, self.devices = folder / "devices", folder / "bus" / "pci" / "devices"
        self.devices.mkdir(parents=True)

    def has(self, ids: tuple[str, str, str], *path: str) -> "Bus":
        """A device with the ports above it, outermost first."""
        device = self._root.joinpath("pci0000:00", *path)
        device.mkdir(parents=True, exist_ok=True)
        for name, value in zip(("vendor", "device", "class"), ids, strict=True):
            (device / name).write_text(f"{value}\n")
        (self.devices / path[-1]).symlink_to(device)
        return self

    def loses(self, address: str) -> None:
        (self.devices / address).unlink()


@pytest.fixture
def bus(tmp_path: Path) -> Bus:
    return Bus(tmp_path).has(BRIDGE, PORT).has(BRIDGE, PORT, SWITCH_PORT)


def line(address: str, text: str = "pciehp: Slot(1): Link Down") -> Finding:
    finding = parse_message(f"pcieport {address}: {text}")
    assert finding is not None
    return finding


def weighed(tree: PciTree, address: str, now: float = 0.0) -> str:
    """What becomes of a link that goes down there."""
    return tree.place(line(address), now).code


@pytest.mark.parametrize("ids", [GPU, NVSWITCH, EFA, TRAINIUM, CONNECTX])
@pytest.mark.parametrize("address", [PORT, SWITCH_PORT, DEVICE])
def test_every_port_above_a_device_that_jobs_need_counts(bus: Bus, ids: tuple[str, str, str], address: str) -> None:
    bus.has(ids, PORT, SWITCH_PORT, DEVICE)

    assert weighed(PciTree(bus.devices), address) == "link_down"


@pytest.mark.parametrize("ids", [EBS, ENA, AUDIO, BMC, BRIDGE])
@pytest.mark.parametrize("address", [PORT, SWITCH_PORT, DEVICE])
def test_a_port_above_anything_else_does_not_count(bus: Bus, ids: tuple[str, str, str], address: str) -> None:
    bus.has(ids, PORT, SWITCH_PORT, DEVICE)

    placed = PciTree(bus.devices).place(line(address), 0.0)

    assert (placed.code, placed.subcode, placed.component) == ("other_device", "link_down", address)


def test_a_disk_beside_a_gpu_does_not_count_and_the_gpu_does(bus: Bus) -> None:
    tree = PciTree(
        bus.has(GPU, PORT, SWITCH_PORT, DEVICE)
        .has(BRIDGE, "0000:00:02.0")
        .has(EBS, "0000:00:02.0", "0000:05:00.0")
        .devices
    )

    assert weighed(tree, PORT) == "link_down"
    assert weighed(tree, "0000:00:02.0") == weighed(tree, "0000:05:00.0") == "other_device"


def test_a_gpu_that_is_gone_still_counts_and_so_do_its_ports(bus: Bus) -> None:
    tree = PciTree(bus.has(GPU, PORT, SWITCH_PORT, DEVICE).devices)
    tree.look(0.0)

    bus.loses(DEVICE)
    later = LOOK_AGAIN_SECONDS

    assert [weighed(tree, address, later) for address in (PORT, SWITCH_PORT, DEVICE)] == ["link_down"] * 3


def test_a_gpu_that_went_before_the_agents_restart_still_counts(bus: Bus) -> None:
    before = PciTree(bus.has(GPU, PORT, SWITCH_PORT, DEVICE).devices)
    before.look(0.0)
    bus.loses(DEVICE)

    assert weighed(PciTree(bus.devices, before.state()), PORT) == "link_down"
    assert weighed(PciTree(bus.devices), PORT) == "other_device"


def test_a_device_that_came_later_is_looked_for(bus: Bus) -> None:
    tree = PciTree(bus.devices)
    assert weighed(tree, PORT, 0.0) == "other_device"

    bus.has(GPU, PORT, SWITCH_PORT, DEVICE)

    assert weighed(tree, PORT, LOOK_AGAIN_SECONDS - 1) == "other_device"
    assert weighed(tree, PORT, LOOK_AGAIN_SECONDS) == "link_down"


def test_what_nobody_knows_stays_unplaced(bus: Bus, tmp_path: Path) -> None:
    assert weighed(PciTree(bus.devices), "0000:77:00.0") == "unplaced"
    assert weighed(PciTree(tmp_path / "nothing"), PORT) == "unplaced"


def test_other_faults_are_left_as_they_are(bus: Bus) -> None:
    fallen = parse_message("NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.")
    assert fallen is not None

    assert PciTree(bus.devices).place(fallen, 0.0) is fallen
