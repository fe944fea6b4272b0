"""Parses the NVIDIA driver's messages without an XID. Pure."""

import re

from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding
from nodeheal.parsers.pci_address import PCI_ADDRESS, normalised

_PREFIX = "NVRM: "
_BEGINNINGS = (_PREFIX, "nvidia")
# The prefix of a message: the GPU by its address. `GPU2 ` of nvlog_printf.c names none: it is the first number that was
# free when the driver attached the GPU (gpumgrAllocGpuInstance), nvidia-smi sorts by PCI address.
_ADDRESS = re.compile(rf"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?(?P<address>{PCI_ADDRESS})(?=[:\s\\#]|$)", re.ASCII)
_NO_ANSWER = (
    *("GSP core unresponsive", "GSP-RM unresponsive", "eartbeat timed out", "* GSP Timeout *"),
    *("waiting for RPC response from GSP", "GPU is probably locked"),
    # kernel_gsp_gh100.c, kernel_gsp_tu102.c, kern_fsp_gh100.c: it does not boot.
    *("Max GSP-RM boot attempts exceeded", "Failed to boot GSP", "GSP-FMC reported an error", "Fatal GSP-FMC Error"),
    *("Timeout waiting for GSP target mask release", "Timeout waiting for lockdown release"),
    *("waiting for GSP falcon reset", "failed to execute Booter Load", "kgspSendInitRpcs failed"),
    *("failed to wait for GFW boot complete", "FSP boot cmds failed", "FSP secure boot partition timed out"),
)
# The driver's words for faults, with nodeheal's codes; the first match names the fault.
_WORDS = (
    ("fallen off the bus", "fallen_off_bus"),
    ("RmInitAdapter failed", "RmInitAdapter_failed"),
    ("rm_init_adapter failed", "RmInitAdapter_failed"),
    ("rm_init_adapter() failed", "RmInitAdapter_failed"),
    ("uvm encountered global fatal error", "uvm_fatal_error"),
    ("NV_ERR_GPU_IS_LOST", "gpu_lost"),
    ("GPU is lost", "gpu_lost"),
    ("NV_ERR_RESET_REQUIRED", "reset_required"),
    ("NVIDIA probe routine failed", "probe_failed"),
    ("None of the NVIDIA devices were initialized", "no_device_initialized"),
    ("None of the NVIDIA graphics adapters were initialized", "no_device_initialized"),
    ("No NVIDIA GPU found", "no_gpu_found"),
    ("API mismatch", "api_mismatch"),
    ("I/O region assigned to your NVIDIA device is invalid", "bar_invalid"),
    ("postRxDetLinkMask failed", "nvlink_rx_detect_failed"),
    ("bailing out of RmInitAdapter", "RmInitAdapter_failed"),  # osInitNvMapping, RmInitNvDevice
    ("Cannot initialize GSP firmware RM", "RmInitAdapter_failed"),
    ("unexpected WPR2 already up", "RmInitAdapter_failed"),
    ("GPU marked for reset", "reset_required"),
    ("The GPU likely needs to be reset", "reset_required"),  # Rate limiting GSP RPC error prints
    ("Received signal from GSP that PMU has halted", "gsp_report"),
    ("GSP-CrashCat Report", "gsp_report"),
    # kernel_gsp.c, kernel_rc_watchdog_callback.c: the firmware, or the GPU behind it, no longer answers.
    *((words, "gsp_no_answer") for words in _NO_ANSWER),
    ("NVIDIA probe routine was not called", "not_probed"),
    ("No NVIDIA devices probed", "not_probed"),
)
# One message of four lines begins with this line alone. Most logs split it; the first line names the GPU.
_FALLEN = re.compile(
    rf"NVRM: The NVIDIA GPU {PCI_ADDRESS}(?: \(PCI ID: [0-9a-f:]{{9}}\) installed in this system has)?$", re.ASCII
)
_FALLEN_CONTINUED = "NVRM: fallen off the bus"
_PROBE = re.compile(
    rf"nvidia(?:: probe of (?P<old>{PCI_ADDRESS}) failed with error "
    rf"| (?P<new>{PCI_ADDRESS}): probe with driver nvidia failed with error )",
    re.ASCII,
)
# nvidia-nvswitch3: Failed to initialize device : -5
_NVSWITCH = re.compile(r"(?P<name>nvidia-nvswitch\d{1,4}): Failed to initialize device ?:", re.ASCII)
_LONGEST_CHARACTERS = 1024  # a kernel record is not longer


def parse_nvrm(message: str) -> Finding | None:
    """Return a fault from the driver's words; its banners are none."""
    if not message.startswith(_BEGINNINGS):
        return None
    probe = _PROBE.match(message)
    if probe is not None:
        return Finding(Family.nvrm_other, "probe_failed", normalised(probe["old"] or probe["new"]), message)
    switch = _NVSWITCH.match(message)
    if switch is not None:
        return Finding(Family.nvrm_other, "nvswitch_init_failed", switch["name"], message)
    if not message.startswith(_PREFIX) or message.startswith(_FALLEN_CONTINUED):
        return None
    head = message[:_LONGEST_CHARACTERS]
    code = next((code for words, code in _WORDS if words in head), None)
    if code is None and _FALLEN.match(head):
        code = "fallen_off_bus"
    if code is None:
        return None
    named = _ADDRESS.match(head)
    return Finding(Family.nvrm_other, code, normalised(named["address"]) if named else None, message)
