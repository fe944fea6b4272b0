"""Parses the kernel's messages about PCI Express errors: AER, DPC, hot plug, power states, resets. Pure.

A port's line does not name what is below the port. Its finding has the code `unplaced` and what happened as its
sub-code; `placed` replaces it where the node's PCI tree is known.
"""

import re
from dataclasses import replace

from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding
from nodeheal.parsers.pci_address import PCI_ADDRESS, from_requester_id, normalised

UNPLACED = "unplaced"
OTHER_DEVICE = "other_device"
# Drivers of devices that jobs need. A message of a port or without a driver may concern any device.
_JOB_DRIVERS = ("nvidia", "nvidia-nvswitch", "neuron-driver", "efa", "mlx5_core")
_ANY_DEVICE = ("pcieport", "pciehp", "pci", "aer", "dpc", "vfio-pci")

# pcieport 0000:00:01.0: …   nvidia 0000:b9:00.0: AER: …   pciehp 0000:00:1c.0:pcie004: …
_DEVICE = re.compile(
    rf"(?P<driver>[A-Za-z0-9_.-]{{1,64}}) (?P<address>{PCI_ADDRESS})(?::pcie\d{{1,4}})?: (?P<text>.{{0,512}})", re.ASCII
)
_SEVERITY = r"Uncorrect(?:ed|able) \((?P<severity>Non-Fatal|Fatal)\)"
_RECEIVED = re.compile(
    rf"AER: (?:Multiple )?{_SEVERITY} error (?:message )?received(?::| from)? ?"
    rf"(?:(?P<source>{PCI_ADDRESS})|id=(?P<id>[0-9A-Fa-f]{{1,4}})(?![0-9A-Fa-f]))?",
    re.ASCII,
)
_BUS_ERROR = re.compile(rf"(?:AER: )?PCIe Bus Error: severity={_SEVERITY}", re.ASCII)
_CONTAINED = re.compile(
    rf"(?:AER: )?DPC: containment event, status:0x(?P<status>[0-9a-f]{{1,4}})"
    rf"(?:.{{0,64}}? received from (?P<source>{PCI_ADDRESS})|,? source:0x(?P<id>[0-9a-f]{{1,4}})(?![0-9a-f]))?",
    re.ASCII,
)
# The trigger in the status register of DPC: an error message of a device below, non-fatal or fatal, names its sender.
_TRIGGER_MASK, _TRIGGERED_BY_MESSAGE = 0x6, (0x2, 0x4)
_OTHERS = (
    (re.compile(r"(?:pciehp: )?Slot ?\([^()]{1,32}\): Link Down(?!/)"), "link_down"),
    (re.compile(r"(?:pciehp: )?Slot ?\([0-9-]{1,32}\): Power fault"), "power_fault"),
    (re.compile(r"AER: [Dd]evice recovery failed"), "recovery_failed"),
    (re.compile(r"AER: subordinate device reset failed"), "reset_failed"),
    (re.compile(r"not ready \d{1,9}ms after FLR; giving up", re.ASCII), "reset_failed"),
    (
        re.compile(
            r"Unable to change power state (?:from (?:error|unknown|D\d[a-z]{0,4}) )?to D\d[a-z]{0,4}, device in"
        ),
        "inaccessible",
    ),
)


def parse_pcie(message: str) -> Finding | None:
    """Return an error that the link could not correct, of the failed device where the kernel names it."""
    device = _DEVICE.match(message)
    meaning = None if device is None else _said(device["address"], device["text"])
    if device is None or meaning is None:
        return None
    code, component = meaning
    finding = Finding(Family.pcie_aer, UNPLACED, component, message, code)
    if device["driver"] in _ANY_DEVICE:
        return finding
    return placed(finding, serves_jobs=device["driver"] in _JOB_DRIVERS)


def placed(finding: Finding, *, serves_jobs: bool) -> Finding:
    """Replace an unplaced finding, once it is known whether an accelerator, an NVSwitch or a fabric adapter is
    affected.
    """
    if serves_jobs:
        return replace(finding, code=finding.subcode or UNPLACED, subcode=None)
    return replace(finding, code=OTHER_DEVICE)


def _said(address: str, text: str) -> tuple[str, str] | None:
    """Return what happened, and to which device."""
    bus_error = _BUS_ERROR.match(text)
    if bus_error is not None:
        return _code(bus_error), normalised(address)
    received = _RECEIVED.match(text)
    if received is not None:
        return _code(received), _sender(received, address)
    contained = _CONTAINED.match(text)
    if contained is not None:
        is_message = int(contained["status"], 16) & _TRIGGER_MASK in _TRIGGERED_BY_MESSAGE
        return "dpc", _sender(contained, address) if is_message else normalised(address)
    code = next((code for words, code in _OTHERS if words.match(text)), None)
    return None if code is None else (code, normalised(address))


def _code(error: re.Match[str]) -> str:
    return "fatal" if error["severity"] == "Fatal" else "nonfatal"


def _sender(error: re.Match[str], reporter: str) -> str:
    if error["source"]:
        return normalised(error["source"])
    return from_requester_id(error["id"], reporter) if error["id"] else normalised(reporter)
