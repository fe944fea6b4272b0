"""Parses the kernel's messages of NVIDIA GPUs and NVSwitches with a number: XID and SXID. Pure."""

import re

from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding
from nodeheal.parsers.nvlink4 import NVLINK4_XID, nvlink4_subcode
from nodeheal.parsers.nvlink5 import NVLINK5_XIDS, nvlink5_subcode
from nodeheal.parsers.pci_address import PCI_ADDRESS, normalised

RECOVERY_ACTION_CHANGED = 154

# NVRM: Xid (PCI:0000:b9:00): 79, pid=…   NVRM: Xid (0000:03:00): 31, Ch …   NVRM: Xid (PCI:0000:b9:00 GPU-I:03): 45, …
# Drivers before 2014 name the bus alone, or no device: NVRM: Xid (2a:00): 79, …   NVRM: Xid (0003:00): 13, …
# NVRM: Xid: 31, …   NVRM: Xid : 32, …
_XID = re.compile(
    rf"NVRM: Xid(?: \((?:(?:PCI:)?(?P<address>{PCI_ADDRESS})(?: [^()]{{1,64}})?"
    r"|(?P<bus>(?:00)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}))\))? ?: (?P<code>\d{1,5})(?=[,\s]|$)"
    r"(?:, pid='?(?P<pid>\d{1,10})'?(?=[,\s]|$))?",
    re.ASCII,
)
# nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
_SXID = re.compile(
    rf"(?:nvidia-nvswitch\d{{0,4}}|NVRM): SXid \((?:PCI:)?(?P<address>{PCI_ADDRESS})\): (?P<code>\d{{1,6}})(?=[,\s]|$)"
    r",? ?(?P<text>.{0,16})",
    re.ASCII,
)
_SEVERITY = re.compile(r"(?P<non>Non-?)?fatal\b", re.ASCII | re.IGNORECASE)
# The lines after the first one of an SXID give its registers; they are not faults of their own.
_SXID_REGISTERS = ("Severity ", "Data {")

# … changed from 0x0 (None) to 0x1 (GPU Reset Required)   … changed from None to Node Reboot Required
_RECOVERY = re.compile(
    r"GPU recovery action changed from [^\n]{1,64}? to (?:0x(?P<number>[0-9A-Fa-f]{1,8}))?"
    r" ?\(?(?P<words>[A-Za-z0-9 ]{0,40})",
    re.ASCII,
)
_RECOVERY_WORDS = {
    "none": "NONE",
    "gpu reset": "GPU_RESET",
    "node reboot": "NODE_REBOOT",
    "os reboot": "NODE_REBOOT",
    "system reboot": "NODE_REBOOT",
    "drain p2p": "DRAIN_P2P",
    "drain and reset": "DRAIN_AND_RESET",
    "recover imex domain": "RECOVER_IMEX_DOMAIN",
}
# NVML's numbers (nvmlDeviceGpuRecoveryAction_t), for future words of the driver ("PF FLR"). 6, a reset of the GPU's
# PCIe bus, has no row.
_RECOVERY_NUMBERS = (
    *("NONE", "GPU_RESET", "NODE_REBOOT", "DRAIN_P2P", "DRAIN_AND_RESET", "RECOVER_IMEX_DOMAIN"),
    *(None, "NODE_REBOOT"),
)


def parse_xid(message: str) -> Finding | None:
    """Return the XID that the GPU driver reports, with its sub-code where it has one (74, 144 to 150, 154)."""
    xid = _XID.match(message)
    if xid is None:
        return None
    code, rest = int(xid["code"]), message[xid.end() :]
    subcode = None
    if code in NVLINK5_XIDS:
        subcode = nvlink5_subcode(code, rest)
    elif code == NVLINK4_XID:
        subcode = nvlink4_subcode(rest)
    elif code == RECOVERY_ACTION_CHANGED:
        subcode = _recovery_action(rest)
    pid = int(xid["pid"]) if xid["pid"] else None
    return Finding(Family.xid, str(code), _gpu(xid), message, subcode, pid)


def _gpu(xid: re.Match[str]) -> str | None:
    """Return the GPU's address, with function 0, even where the driver writes another one."""
    if xid["bus"]:
        return normalised(f"0000:{xid['bus'][-5:]}")
    return normalised(xid["address"].partition(".")[0]) if xid["address"] else None


def parse_sxid(message: str) -> Finding | None:
    """Return the SXID that the NVSwitch driver reports; `fatal` or `nonfatal` where the line has it."""
    sxid = _SXID.match(message)
    if sxid is None or sxid["text"].startswith(_SXID_REGISTERS):
        return None
    severity = _SEVERITY.match(sxid["text"])
    subcode = None if severity is None else "nonfatal" if severity["non"] else "fatal"
    return Finding(Family.sxid, str(int(sxid["code"])), normalised(sxid["address"]), message, subcode)


def _recovery_action(text: str) -> str | None:
    change = _RECOVERY.search(text)
    if change is None:
        return None
    words = change["words"].strip().lower().removesuffix(" required")
    if words in _RECOVERY_WORDS:
        return _RECOVERY_WORDS[words]
    number = int(change["number"], 16) if change["number"] else len(_RECOVERY_NUMBERS)
    return _RECOVERY_NUMBERS[number] if number < len(_RECOVERY_NUMBERS) else None
