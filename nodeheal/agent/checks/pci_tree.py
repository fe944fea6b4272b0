"""Finds which PCI devices serve jobs, and which ports lead to one, since kernel messages about ports do not say so."""

import re
from pathlib import Path

from nodeheal.parsers.finding import Finding
from nodeheal.parsers.kernel_pcie import UNPLACED, placed

NVIDIA, MELLANOX, AMAZON = "0x10de", "0x15b3", "0x1d0f"
DISPLAY_CLASSES = ("0x0300", "0x0302")  # a VGA controller, a 3D controller
BRIDGE_CLASS = "0x0680"  # an NVSwitch
EFA_PREFIX = "0xefa"  # 1d0f:efa0, efa1, efa2, efa3
_NETWORK_CLASS = "0x02"
_NEURON = re.compile(r"0x7[0-9]6[4-7]")  # 1d0f:7064 to 7067, 7164, 7264, 7364: the ids of the Neuron driver
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")

# New devices are read as soon as a line names one; in a storm of lines at most this often.
LOOK_AGAIN_SECONDS = 60.0
_ID_BYTES = 16


class PciTree:
    """The PCI devices of this node, including those seen since the agent's start.

    It reads only the kernel's records, never the device, so a hanging device is not touched.
    """

    def __init__(self, devices: Path, remembered: object = None) -> None:
        """`devices`: /sys/bus/pci/devices. `remembered`: the result of `state`, for devices that have disappeared."""
        self._devices = devices
        self._serves = {str(address): True for address in remembered} if isinstance(remembered, list) else {}
        self._looked_at: float | None = None

    def state(self) -> list[str]:
        """Return the addresses of devices and ports that serve jobs, or did since the boot, as JSON."""
        return sorted(address for address, serves in self._serves.items() if serves)

    def place(self, finding: Finding, now: float) -> Finding:
        """Set the finding's weight by the device that it affects. A finding without a known device is unchanged."""
        if finding.code != UNPLACED or finding.component is None:
            return finding
        if self._looked_at is None or now - self._looked_at >= LOOK_AGAIN_SECONDS:
            self.look(now)
        serves = self._serves.get(finding.component)
        return finding if serves is None else placed(finding, serves_jobs=serves)

    def look(self, now: float) -> None:
        """Read the tree. A device that served jobs keeps its weight: one that fell off the bus is no longer listed."""
        self._looked_at = now
        try:
            devices = [device for device in self._devices.iterdir() if _ADDRESS.fullmatch(device.name)]
        except OSError:
            return
        for device in devices:
            serves = _serves_jobs(*(_id(device / name) for name in ("vendor", "device", "class")))
            for part in _path_of(device) if serves else (device.name,):
                self._serves[part] = self._serves.get(part, False) or serves


def _serves_jobs(vendor: str, device: str, kind: str) -> bool:
    """Whether it is an accelerator, an NVSwitch or a fabric adapter."""
    if vendor == NVIDIA:
        return kind.startswith((*DISPLAY_CLASSES, BRIDGE_CLASS))
    if vendor == AMAZON:
        return device.startswith(EFA_PREFIX) or _NEURON.fullmatch(device) is not None
    return vendor == MELLANOX and kind.startswith(_NETWORK_CLASS)


def _path_of(device: Path) -> list[str]:
    """Return the device and the ports above it: /sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0."""
    return [part for part in device.resolve().parts if _ADDRESS.fullmatch(part)]


def _id(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_ID_BYTES).decode("ascii", "replace").strip()
    except OSError:
        return ""
