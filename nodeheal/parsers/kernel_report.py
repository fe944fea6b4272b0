"""Parses the error reports of firmware (APEI, GHES), which the kernel prints as several lines. Pure.

Format: drivers/acpi/apei/ghes.c and drivers/firmware/efi/cper.c.
"""

import re
from dataclasses import dataclass

from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding
from nodeheal.parsers.kernel_pcie import UNPLACED
from nodeheal.parsers.pci_address import PCI_ADDRESS, normalised

# What every line of a report contains, whatever precedes the message.
PART_OF_REPORT = b"}[Hardware Error]: "
# {1}[Hardware Error]:   section_type: PCIe error
_LINE = re.compile(r"\{(?P<number>\d{1,10})\}\[Hardware Error\]: {1,8}(?P<text>.{0,512})", re.ASCII)
_SEVERITY = re.compile(r"(?:event severity|Error \d{1,4}, type): (?P<severity>[a-z]{1,16})", re.ASCII)
_SECTION = re.compile(r"section[_ ]type: (?P<kind>.{1,64})")
_DEVICE = re.compile(rf"device_id: (?P<address>{PCI_ADDRESS})$", re.ASCII)
_PCIE = "PCIe error"
# By severity: the equivalent kernel code of a PCIe error, and of a processor or memory error. A corrected one is no
# fault.
_CODES = {"fatal": ("fatal", "fatal"), "recoverable": ("nonfatal", "uncorrected")}
_OPEN_REPORTS = 4096  # processors may print at the same time, and the lines of many nodes may be mixed


@dataclass
class _Report:
    """An incomplete report: the severity of the present section, and whether it is PCIe's."""

    severity: str = ""
    is_pcie: bool = False


def is_part_of_report(message: str) -> bool:
    """Whether a message is a line of a report."""
    return _LINE.match(message) is not None


class FirmwareReports:
    """Assembles reports from lines. The severity comes first, then what failed, then which device."""

    def __init__(self) -> None:
        self._reports: dict[tuple[str, str], _Report] = {}

    def finding(self, message: str, origin: str) -> Finding | None:
        """Return the fault that this line completes, if any: an uncorrected error of PCIe, or of processor or memory.

        `origin`: the log of the line. Every kernel numbers its reports from 1.
        """
        line = _LINE.match(message)
        if line is None:
            return None
        report, text = self._report(origin, line["number"]), line["text"]
        severity = _SEVERITY.match(text)
        if severity is not None:
            report.severity, report.is_pcie = severity["severity"], False
        if report.severity not in _CODES:
            return None
        of_pcie, of_host = _CODES[report.severity]
        section, device = _SECTION.match(text), _DEVICE.match(text)
        if section is not None:
            report.is_pcie = section["kind"].strip() == _PCIE
            return None if report.is_pcie else Finding(Family.mce, of_host, None, message)
        if device is not None and report.is_pcie:
            return Finding(Family.pcie_aer, UNPLACED, normalised(device["address"]), message, of_pcie)
        return None

    def _report(self, origin: str, number: str) -> _Report:
        key = (origin, number)
        if key not in self._reports:
            while len(self._reports) >= _OPEN_REPORTS:
                del self._reports[next(iter(self._reports))]
            self._reports[key] = _Report()
        return self._reports[key]
