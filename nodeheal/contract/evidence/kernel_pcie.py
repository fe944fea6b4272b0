"""Reads the kernel lines about PCI Express errors: AER, DPC, hot plug. Pure."""

import re

from nodeheal.contract.evidence.finding import Finding
from nodeheal.contract.evidence.pci_address import PCI_ADDRESS, from_requester_id, normalised
from nodeheal.contract.vocabulary import Family

# pcieport 0000:00:01.0: …   nvidia 0000:b9:00.0: AER: …   pciehp 0000:00:1c.0:pcie004: …
_DEVICE = re.compile(
    rf"[A-Za-z0-9_.-]{{1,64}} (?P<address>{PCI_ADDRESS})(?::pcie\d{{1,4}})?: (?P<text>.{{0,512}})", re.ASCII
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
    (re.compile(r"AER: [Dd]evice recovery failed"), "recovery_failed"),
)


def parse_pcie(message: str) -> Finding | None:
    """An error that the link could not correct, of the device that failed where the kernel names it."""
    device = _DEVICE.match(message)
    if device is None:
        return None
    address, text = device["address"], device["text"]
    bus_error = _BUS_ERROR.match(text)
    if bus_error is not None:
        return _finding(_code(bus_error), normalised(address), message)
    received = _RECEIVED.match(text)
    if received is not None:
        return _finding(_code(received), _sender(received, address), message)
    contained = _CONTAINED.match(text)
    if contained is not None:
        is_message = int(contained["status"], 16) & _TRIGGER_MASK in _TRIGGERED_BY_MESSAGE
        sender = _sender(contained, address) if is_message else normalised(address)
        return _finding("dpc", sender, message)
    code = next((code for words, code in _OTHERS if words.match(text)), None)
    return None if code is None else _finding(code, normalised(address), message)


def _code(error: re.Match[str]) -> str:
    return "fatal" if error["severity"] == "Fatal" else "nonfatal"


def _sender(error: re.Match[str], reporter: str) -> str:
    if error["source"]:
        return normalised(error["source"])
    return from_requester_id(error["id"], reporter) if error["id"] else normalised(reporter)


def _finding(code: str, component: str, message: str) -> Finding:
    return Finding(Family.pcie_aer, code, component, message)
