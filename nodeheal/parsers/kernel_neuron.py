"""Parses the kernel's messages about AWS Neuron devices: the runtime's NEURON_HW_ERR and the driver's own. Pure."""

import re

from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding
from nodeheal.parsers.pci_address import PCI_ADDRESS, normalised

# The driver prints the runtime's line unchanged, with the runtime's prefix.
_HARDWARE_ERROR = re.compile(
    r"(?<![A-Za-z0-9_])NEURON_HW_ERR=(?P<code>[A-Z][A-Z0-9_]{2,63})(?P<fields>.{0,1024})", re.ASCII
)
_ANYWHERE = "NEURON_HW_ERR="
_PREFIX = re.compile(r"(?:^|\s)neuron(?P<number>\d{1,4}): $", re.ASCII)
_DEVICE = re.compile(r"[ ,](?:nd-id|nd|device)=(?P<number>\d{1,4})(?=[ ,]|$)", re.ASCII)
_ACTION = re.compile(r"[ ,]action=(?P<action>[A-Z_]{1,64})(?=[ ,]|$)", re.ASCII)
_MEMORY_ERROR = "HBM_UNCORRECTABLE_ERROR"
_NOT_REPAIRABLE = re.compile(r"unrepairable|un-repairable|not repairable|TERMINATE|REPLACE", re.IGNORECASE)
_REPAIRABLE = re.compile(r"repairable|REBOOT|RELOAD|RESET", re.IGNORECASE)

# neuron:nr_reset_thread_fn: nd0: reset request 4711 failed
_DRIVER = re.compile(r"neuron:(?:[A-Za-z0-9_]{1,64}:)? ?(?P<text>.{0,512})", re.ASCII)
_PROBE = re.compile(
    rf"neuron-driver(?:: probe of (?P<old>{PCI_ADDRESS}) failed with error "
    rf"| (?P<new>{PCI_ADDRESS}): probe with driver neuron-driver failed with error )",
    re.ASCII,
)
_DRIVER_FAULTS = (
    (re.compile(r"seq: \d{1,10}, cmd: \d{1,10} timed out", re.ASCII), "FIRMWARE_TIMEOUT"),
    (re.compile(r"readless read initialization failed"), "PROBE_FAILED"),
    (re.compile(r"DMA completion timeout on nd(?P<number>\d{1,4})", re.ASCII), "DMA_COMPLETION_TIMEOUT"),
    (
        re.compile(
            r"nd(?P<number>\d{1,4}): (?:reset request \d{1,10} (?:failed|was initiated, but failed)"
            r"|failed to initialize dma after reset|failed to complete post reset)",
            re.ASCII,
        ),
        "DEVICE_RESET_FAILED",
    ),
    (re.compile(r"nd(?P<number>\d{1,4}) is in an invalid state", re.ASCII), "INVALID_STATE"),
    (re.compile(r"nd(?P<number>\d{1,4}): DMA (?:eng\d{1,4} )?init failed", re.ASCII), "DMA_INIT_FAILED"),
    (re.compile(r"nd(?P<number>\d{1,4}):dma\d{1,4}:q\d{1,4} failed to reset", re.ASCII), "DMA_QUEUE_RESET_FAILED"),
    (re.compile(r"Scrub failed for nd(?P<number>\d{1,4}) HBM", re.ASCII), "SCRUB_FAILED"),
)


def parse_neuron(message: str) -> Finding | None:
    """Return a hardware error under the runtime's name for it, or a fault of the driver's own."""
    error = _HARDWARE_ERROR.search(message) if _ANYWHERE in message else None
    if error is None:
        return _driver_fault(message)
    fields = error["fields"]
    device = _DEVICE.search(fields) or _PREFIX.search(message, 0, error.start())
    component = None if device is None else f"neuron{int(device['number'])}"
    subcode = _repair(fields) if error["code"] == _MEMORY_ERROR else None
    return Finding(Family.neuron, error["code"], component, message, subcode)


def _repair(fields: str) -> str | None:
    """Return whether the next reset repairs the memory: from the text, or from the requested action."""
    if "repairable" not in fields:
        action = _ACTION.search(fields)
        fields = action["action"] if action else ""
    if _NOT_REPAIRABLE.search(fields):
        return "unrepairable"
    return "repairable" if _REPAIRABLE.search(fields) else None


def _driver_fault(message: str) -> Finding | None:
    if not message.startswith("neuron"):
        return None
    probe = _PROBE.match(message)
    if probe is not None:
        return Finding(Family.neuron, "PROBE_FAILED", normalised(probe["old"] or probe["new"]), message)
    driver = _DRIVER.match(message)
    if driver is None:
        return None
    for pattern, code in _DRIVER_FAULTS:
        fault = pattern.match(driver["text"])
        if fault is not None:
            number = fault.groupdict().get("number")
            return Finding(Family.neuron, code, f"neuron{int(number)}" if number else None, message)
    return None
