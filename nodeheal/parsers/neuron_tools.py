"""Parses the Neuron driver's sysfs tree (as a mapping of paths to texts, or as listed by `grep -r .`). Pure.

Counters are totals since the driver was loaded. They are found by name, anywhere below `neuron<N>/`; a tree without
them has an unknown layout and is UNKNOWN. neuron_monitor parses the Neuron tools' JSON.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.parsers import neuron_monitor
from nodeheal.parsers.finding import ToolReport
from nodeheal.parsers.tool_report import ReportedFault, fault, first_line, sum_up, unknown

_PATH = re.compile(r"(?:.*/)?neuron(?P<device>\d{1,4})/(?P<rest>.+)")
_LISTED = re.compile(r"(?P<path>\S{0,300}?neuron\d{1,4}/[\w./-]{1,200})(?:: ?|\s+)(?P<value>.*)")
_CORE = re.compile(r"neuron_core(\d{1,4})/")
_NUMBER = re.compile(r"\s*(\d{1,20})\s*")
_MAY_BE_EMPTY = "/connected_devices"  # a single device has no neighbours
_NOISE = re.compile(r"grep: |find: |cat: |Binary file ")

_FAILED, _DEGRADED = Verdict.FAILED, Verdict.DEGRADED
_HBM = "HBM_UNCORRECTABLE_ERROR"
_REPAIRABLE, _UNREPAIRABLE = "repairable", "unrepairable"
# Of a device: the ECC counters.
_SRAM, _MEMORY, _REPAIRABLE_MEMORY = "sram_ecc_uncorrected", "mem_ecc_uncorrected", "mem_ecc_repairable_uncorrected"
# Of a core: the results of its executions. The omitted counters (bad input, no resources, an unsupported model) count
# errors of the application.
_CORE_COUNTERS = {
    "hw_error": ("HARDWARE_ERROR", _FAILED),
    "hw_hbm_ue_error": (_HBM, _FAILED),
    "hw_repairable_hbm_ue_error": (_HBM, _FAILED),
    "hw_nc_ue_error": ("NC_UNCORRECTABLE_ERROR", _FAILED),
    "hw_dma_abort_error": ("DMA_ERROR", _FAILED),
    # The core waited for another worker: it may well be the healthy one.
    "hw_collectives_error": ("HANG_ON_COLLECTIVES", _DEGRADED),
    "timeout": ("EXECUTION_TIMEOUT", _DEGRADED),
    "failure": ("EXECUTION_FAILURE", _DEGRADED),
    "execute_completed_with_error": ("EXECUTION_FAILURE", _DEGRADED),
    "execute_completed_with_num_error": ("NUMERICAL_ERROR", _DEGRADED),
    "reset_fail_count": ("DEVICE_RESET_FAILED", _DEGRADED),
}
CODES = neuron_monitor.CODES | frozenset(
    f"neuron/{code}"
    for code in (
        "SRAM_UNCORRECTABLE_ERROR",
        f"{_HBM}/{_REPAIRABLE}",
        f"{_HBM}/{_UNREPAIRABLE}",
        *(code for code, _ in _CORE_COUNTERS.values()),
    )
)
# The files of every driver since the first tree.
_CORE_MINIMUM = frozenset(("success", "failure", "timeout", "hw_error"))
ERROR_COUNTERS = frozenset((*_CORE_COUNTERS, _SRAM, _MEMORY, _REPAIRABLE_MEMORY))
# All files that are read of a tree, by name, or by the folder with a total and a present count.
READ = ERROR_COUNTERS | _CORE_MINIMUM | {"core_count"}


@dataclass
class _Device:
    """The counters of one device, and of each of its cores, by name; None: unreadable."""

    core_count: int | None = None
    counters: dict[str, int | None] = field(default_factory=dict)
    cores: dict[int, dict[str, int | None]] = field(default_factory=lambda: defaultdict(dict))


def parse_neuron(text: str, expected: int = 0) -> ToolReport:
    """Parse a listing of the tree, or the JSON of neuron-monitor or neuron-ls, for this many devices (0: unknown)."""
    if text.lstrip()[:1] in ("{", "["):
        return neuron_monitor.parse_neuron_json(text, expected)
    tree: dict[str, str] = {}
    strange = ""
    for line in text.splitlines():
        match = _LISTED.fullmatch(line.rstrip()[:1000])
        if match:
            tree.setdefault(match["path"], match["value"])
        elif line.strip() and not _NOISE.match(line) and not line.rstrip().endswith(_MAY_BE_EMPTY):
            strange = strange or f"not understood: {line.strip()[:100]}"
    if not tree:
        head = first_line(text)
        return unknown(f"not understood as a Neuron tree or tool: {head}" if head else "empty output")
    return _judge(_devices(tree), expected, strange, is_listing=True)


def parse_neuron_tree(tree: Mapping[str, str], expected: int = 0) -> ToolReport:
    """Parse a whole tree; the paths may begin anywhere above `neuron<N>`."""
    return _judge(_devices(tree), expected, "", is_listing=False)


def _judge(devices: Mapping[int, _Device], expected: int, strange: str, is_listing: bool) -> ToolReport:
    if not devices:
        return unknown(strange or "no Neuron device is in the tree")
    doubt = strange or _doubt(devices)
    faults = [defect for number, device in sorted(devices.items()) for defect in _faults(f"neuron{number}", device)]
    # The rest of a cut-off output may be healthy; a tree is never cut off.
    if len(devices) < expected and not (is_listing and doubt):
        message = f"{len(devices)} of {expected} Neuron devices are in the tree"
        faults.append(fault(_FAILED, Family.neuron, "DEVICE_COUNT_MISMATCH", None, message))
    # A listing has no end mark.
    unsaid = "; the expected number is not known" if is_listing and not expected else ""
    return sum_up(faults, f"{len(devices)} Neuron devices show no fault{unsaid}", doubt)


def _devices(tree: Mapping[str, str]) -> dict[int, _Device]:
    devices: dict[int, _Device] = {}
    for path, text in tree.items():
        match = _PATH.fullmatch(path)
        if match:
            _place(devices.setdefault(int(match["device"]), _Device()), match["rest"], _number(text))
    return devices


def _place(device: _Device, path: str, number: int | None) -> None:
    parts = path.split("/")
    name = parts[-2] if parts[-1] in ("total", "present") and len(parts) > 1 else parts[-1]
    core = _CORE.search(path)
    if path == "core_count":
        device.core_count = number
    elif core and name in _CORE_COUNTERS.keys() | _CORE_MINIMUM:
        _keep(device.cores[int(core[1])], name, number)
    elif not core and name in (_SRAM, _MEMORY, _REPAIRABLE_MEMORY, "reset_fail_count"):
        _keep(device.counters, name, number)


def _keep(counters: dict[str, int | None], name: str, number: int | None) -> None:
    """Keep the higher of total and present; unreadable if either is."""
    before = counters.get(name, 0)
    counters[name] = None if before is None or number is None else max(before, number)


def _number(text: str) -> int | None:
    match = _NUMBER.fullmatch(text)
    return int(match[1]) if match else None


def _faults(name: str, device: _Device) -> Iterator[ReportedFault]:
    yield from _device_faults(name, device.counters)
    for number, counters in sorted(device.cores.items()):
        tells_apart = "hw_repairable_hbm_ue_error" in counters
        for counter, count in counters.items():
            code, verdict = _CORE_COUNTERS.get(counter, ("", _FAILED))
            if code and count:
                sub = _repair(counter, tells_apart) if code == _HBM else None
                yield fault(verdict, Family.neuron, code, f"{name}:nc{number}", _message(counter, count), sub)


def _device_faults(name: str, counters: Mapping[str, int | None]) -> Iterator[ReportedFault]:
    sram, memory, repairable = (counters.get(key) for key in (_SRAM, _MEMORY, _REPAIRABLE_MEMORY))
    if sram:
        yield fault(_FAILED, Family.neuron, "SRAM_UNCORRECTABLE_ERROR", name, _message(_SRAM, sram))
    if repairable:
        yield fault(_FAILED, Family.neuron, _HBM, name, _message(_REPAIRABLE_MEMORY, repairable), _REPAIRABLE)
    if memory:
        # No source says whether this count includes the repairable ones, so both together stay undecided.
        sub = _UNREPAIRABLE if repairable == 0 else None
        yield fault(_FAILED, Family.neuron, _HBM, name, _message(_MEMORY, memory), sub)
    if counters.get("reset_fail_count"):
        message = _message("reset_fail_count", counters["reset_fail_count"])
        yield fault(_DEGRADED, Family.neuron, "DEVICE_RESET_FAILED", name, message)


def _repair(counter: str, tells_apart: bool) -> str | None:
    if counter == "hw_repairable_hbm_ue_error":
        return _REPAIRABLE
    return _UNREPAIRABLE if tells_apart else None


def _message(counter: str, count: int | None) -> str:
    return f"{counter}: {count} since the driver was loaded"


def _doubt(devices: Mapping[int, _Device]) -> str:
    """Return why the tree may be incomplete: one device or core lacks what the others have, or what all drivers
    have.
    """
    ecc = frozenset().union(*(device.counters for device in devices.values()))
    core = _CORE_MINIMUM.union(*(counters for device in devices.values() for counters in device.cores.values()))
    for number, device in sorted(devices.items()):
        cores = sorted(device.cores)
        if not cores or len(cores) != device.core_count or cores != list(range(len(cores))):
            return f"neuron{number} lacks some of its cores"
        if not {_SRAM, _MEMORY} <= device.counters.keys() or ecc != device.counters.keys():
            return f"neuron{number} lacks its ECC counters"
        if any(core != counters.keys() for counters in device.cores.values()):
            return f"neuron{number} has a core that lacks some of its counters"
        if None in [*device.counters.values(), *(n for counters in device.cores.values() for n in counters.values())]:
            return f"neuron{number} has a counter that cannot be read"
    return ""
