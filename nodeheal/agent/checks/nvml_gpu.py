"""Reads one GPU through NVML.

A value that the driver does not know or the product lacks is left out; that is no fault.
"""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pynvml

from nodeheal.agent.checks.gpu_reading import BUSY_PERCENT, GpuReading
from nodeheal.parsers import nvidia_smi_readers

_MIB = 1024 * 1024
_NOT_FOUND_ON_BUS = 28  # NVML_ERROR_GPU_NOT_FOUND, which the package does not name
# Errors of a GPU that does not answer at all.
_GONE = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "GPU_LOST",
    pynvml.NVML_ERROR_RESET_REQUIRED: "RESET_REQUIRED",
    _NOT_FOUND_ON_BUS: "GPU_LOST",
}
# Field values by NVML's numbers: one call reads all of them and gives each a status.
_HEALTH = {
    4: "ecc.errors.uncorrected.volatile.total",
    6: "ecc.errors.uncorrected.aggregate.total",
    31: "retired_pages.pending",
    144: "remapped_rows.pending",
    145: "remapped_rows.failure",
}
_LINK_ERRORS = {38: "crc_flit", 45: "crc_data", 52: "replay", 59: "recovery"}
_MEMORY_CELSIUS, _RECOVERY_ACTION = pynvml.NVML_FI_DEV_MEMORY_TEMP, pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
_REMAPPED = (pynvml.NVML_FI_DEV_REMAPPED_COR, pynvml.NVML_FI_DEV_REMAPPED_UNC)
_FIELDS = (*_HEALTH, *_LINK_ERRORS, *_REMAPPED, _MEMORY_CELSIUS, _RECOVERY_ACTION)
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # the member of a value, by its type
_LARGEST = 2**63
# NVML's numbers in the words of nvidia-smi.
_ACTIONS = (
    *("None", "Reset", "Reboot", "Drain P2P", "Drain and Reset", "Recover IMEX Domain", "Bus Reset"),
    "System Reboot",
)
_STATES = ("Not Supported", "Not Started", "In Progress", "Completed")  # of its NVLink fabric state
_SUMMARIES = ("N/A", "Healthy", "Unhealthy", "Limited Capacity")
# Each two bits of the fabric's health mask: 0 not supported, 1 true, 2 false.
_FABRIC_FLAGS = {
    "bandwidth": (0, ("N/A", "Degraded", "Full")),
    "route_recovery_in_progress": (2, ("N/A", "True", "False")),
    "route_unhealthy": (4, ("N/A", "True", "False")),
    "access_timeout_recovery": (6, ("N/A", "True", "False")),
}
_TWO_BITS = 0x3
_CONFIGURATION_SHIFT, _CONFIGURATION_BITS = 8, 0xF
_CONFIGURATIONS = (
    *("N/A", "None", "Incorrect SysGUID", "Incorrect Chassis SN", "No Partition", "Insufficient NVLinks"),
    *("Incompatible GPU Firmware", "Invalid Location", "GPU State Invalid"),
)
_CLOCK_REASONS = "clocks_event_reasons.active"
_LINKS = 18

_Answer = TypeVar("_Answer")


class Gone(Exception):
    """The GPU does not answer. `code`: the catalog's code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def gone_code(number: int) -> str | None:
    """Return the catalog's code of an error that concerns the whole GPU."""
    return _GONE.get(number)


class Gpu:
    """One GPU by its handle. Any call raises Gone when the GPU does not answer."""

    def __init__(self, index: int, handle: ctypes.c_void_p) -> None:
        self._index = index
        self._has_switch: bool | None = None
        self._limits: tuple[float | None, float | None] | None = None
        self.handle = handle
        self.component = f"GPU {index}"
        self.uuid = ""
        self.serial = ""
        self.model = ""

    def address(self) -> str | None:
        """Return its PCI address as the kernel writes it."""
        info = self._ask(pynvml.nvmlDeviceGetPciInfo)
        return nvidia_smi_readers.address(_text(info.busId)) if info is not None else None

    def own_uuid(self) -> str:
        """Return its UUID as nvidia-smi and CUDA show it; empty where the driver does not return it."""
        return _text(self._ask(pynvml.nvmlDeviceGetUUID) or "")

    def own_serial(self) -> str:
        """Return the serial of its board, which its vendor asks for; empty where the driver does not return it."""
        return _text(self._ask(pynvml.nvmlDeviceGetSerial) or "")

    def own_model(self) -> str:
        """Return its product's name; empty where the driver does not return it."""
        return _text(self._ask(pynvml.nvmlDeviceGetName) or "")

    def listen(self, events: ctypes.c_void_p, wanted: int) -> bool:
        """Register its events; whether it supports any."""
        try:
            kinds = (self._ask(pynvml.nvmlDeviceGetSupportedEventTypes) or 0) & wanted
            if kinds:
                pynvml.nvmlDeviceRegisterEvents(self.handle, kinds, events)
        except (Gone, pynvml.NVMLError):
            return False
        return bool(kinds)

    def read(self) -> GpuReading:
        """Read all available values. Clocks and PCIe are read under load only: they are low on an idle GPU."""
        fields, links = self._fields(), self._links()
        temperature = self._ask(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU, is_vital=True)
        power, memory = self._ask(pynvml.nvmlDeviceGetPowerUsage), self._ask(pynvml.nvmlDeviceGetMemoryInfo)
        rates, reasons = self._ask(pynvml.nvmlDeviceGetUtilizationRates), self._clock_reasons()
        self._limits = self._limits or self._read_limits()
        return GpuReading(
            self._index,
            self.component,
            uuid=self.uuid,
            serial=self.serial,
            model=self.model,
            health=self._health(fields, reasons),
            temperature_celsius=temperature,
            temperature_limit_celsius=self._limits[0],
            memory_celsius=fields.get(_MEMORY_CELSIUS),
            memory_limit_celsius=self._limits[1],
            power_watts=None if power is None else power / 1000,
            utilisation_percent=None if rates is None else float(rates.gpu),
            memory_used_mib=None if memory is None else round(memory.used / _MIB, 1),
            memory_mib=None if memory is None else memory.total // _MIB,
            rows_remapped=sum(fields[field] for field in _REMAPPED) if fields.keys() >= {*_REMAPPED} else None,
            ecc_uncorrected=fields.get(pynvml.NVML_FI_DEV_ECC_DBE_AGG_TOTAL),
            clock_reasons=reasons,
            links=links,
            has_switch=self._leads_to_switch(links),
            link_errors={name: fields[field] for field, name in _LINK_ERRORS.items() if links and field in fields},
            **(self._working() if rates is not None and rates.gpu >= BUSY_PERCENT else {}),
        )

    def _fields(self) -> dict[int, int]:
        fields: dict[int, int] = {}
        for value in self._ask(pynvml.nvmlDeviceGetFieldValues, _FIELDS) or ():
            if value.nvmlReturn in _GONE:
                raise Gone(_GONE[value.nvmlReturn])
            if value.nvmlReturn == 0 and value.valueType < len(_MEMBERS):
                number = int(getattr(value.value, _MEMBERS[value.valueType]))
                if 0 <= number < _LARGEST:  # all bits set stands for "not available"
                    fields[int(value.fieldId)] = number
        return fields

    def _health(self, fields: dict[int, int], reasons: int | None) -> dict[str, str]:
        health = {name: str(fields[field]) for field, name in _HEALTH.items() if field in fields}
        if _RECOVERY_ACTION in fields:
            action = fields[_RECOVERY_ACTION]
            health["gpu_recovery_action"] = _name(_ACTIONS, action)
        if reasons is not None:
            health[_CLOCK_REASONS] = f"0x{reasons:x}"
        return health | {name: "Yes" if flag else "No" for name, flag in self._flags()} | self._fabric()

    def _fabric(self) -> dict[str, str]:
        """Return its NVLink fabric state in nvidia-smi's words; empty where the driver is too old."""
        newer = self._fill(pynvml.nvmlDeviceGetGpuFabricInfoV, pynvml.c_nvmlGpuFabricInfo_v3_t())
        fabric = newer or self._fill(pynvml.nvmlDeviceGetGpuFabricInfoV, pynvml.c_nvmlGpuFabricInfo_v2_t())
        if fabric is None:
            return {}
        mask = fabric.healthMask
        facts = {f"health/{name}": _name(words, mask >> at & _TWO_BITS) for name, (at, words) in _FABRIC_FLAGS.items()}
        configuration = mask >> _CONFIGURATION_SHIFT & _CONFIGURATION_BITS
        facts["health/incorrect_configuration"] = _name(_CONFIGURATIONS, configuration)
        facts["health/summary"] = _name(_SUMMARIES, getattr(fabric, "healthSummary", 0))
        facts["state"] = _name(_STATES, fabric.state)
        if fabric.state == pynvml.NVML_GPU_FABRIC_STATE_COMPLETED:  # until then the status has no meaning
            facts["status"] = "Success" if fabric.status == 0 else f"error {fabric.status}"
        return {f"fabric/{name}": word for name, word in facts.items()}

    def _flags(self) -> Iterator[tuple[str, int]]:
        """Return the yes-or-no values in nvidia-smi's words."""
        sram = self._fill(pynvml.nvmlDeviceGetSramEccErrorStatus, pynvml.c_nvmlEccSramErrorStatus_v1_t())
        if sram is not None:
            yield "ecc_errors/sram_threshold_exceeded", sram.bThresholdExceeded
        repairs = self._ask(pynvml.nvmlDeviceGetRepairStatus)
        if repairs is not None:
            yield "ecc_errors/channel_repair_pending", repairs[0]
            yield "ecc_errors/tpc_repair_pending", repairs[1]
        memory = self._ask(pynvml.nvmlDeviceGetUnrepairableMemoryFlag_v1)
        if memory is not None:
            yield "ecc_errors/unrepairable_memory", memory

    def _clock_reasons(self) -> int | None:
        newer = self._ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons)
        return newer if newer is not None else self._ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)

    def _read_limits(self) -> tuple[float | None, float | None]:
        highest, slowdown, memory = (
            self._ask(pynvml.nvmlDeviceGetTemperatureThreshold, threshold)
            for threshold in (
                pynvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX,
                pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,
                pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX,
            )
        )
        return highest or slowdown or None, memory or None

    def _working(self) -> dict[str, Any]:
        return {
            "pcie_width": self._ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth),
            "pcie_width_most": self._ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth),
            "pcie_generation": self._ask(pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
            "pcie_generation_most": self._ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
            "clock_mhz": self._ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
            "clock_most_mhz": self._ask(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM),
        }

    def _links(self) -> dict[int, bool]:
        """Return its NVLinks; none where it is split into MIG instances, which use none."""
        mig = self._ask(pynvml.nvmlDeviceGetMigMode)
        if mig is not None and mig[0]:
            return {}
        links = {}
        for link in range(_LINKS):
            state = self._ask(pynvml.nvmlDeviceGetNvLinkState, link)
            if state is None:
                break
            links[link] = bool(state)
        return links

    def _leads_to_switch(self, links: dict[int, bool]) -> bool:
        first = next((link for link, is_up in links.items() if is_up), None)
        if self._has_switch is None and first is not None:
            self._has_switch = (
                self._ask(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, first) == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
            )
        return bool(self._has_switch)

    def _fill(self, call: Callable[..., object], structure: _Answer) -> _Answer | None:
        """Call a function that fills a structure by reference, which the Python package leaves to the caller."""
        return structure if self._ask(call, ctypes.byref(structure)) is not None else None  # type: ignore[arg-type]

    def _ask(self, call: Callable[..., _Answer], *arguments: object, is_vital: bool = False) -> _Answer | None:
        """Call NVML. Returns None for a value that is not available. Every GPU has what `is_vital`."""
        try:
            return call(self.handle, *arguments)
        except pynvml.NVMLError as refused:
            if refused.value in _GONE or (is_vital and refused.value == pynvml.NVML_ERROR_UNKNOWN):
                raise Gone(_GONE.get(refused.value, "UNKNOWN_ERROR")) from refused
            return None


def _text(answer: str | bytes) -> str:
    return answer.decode("ascii", "replace") if isinstance(answer, bytes) else answer


def _name(words: Sequence[str], number: int) -> str:
    return words[number] if number < len(words) else f"number {number}"
