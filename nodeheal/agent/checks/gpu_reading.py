"""A reading of one GPU by NVML. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeheal.agent.checks.check import Problem, State
from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding

# An idle GPU lowers its clocks and its PCIe link, so they are judged under load only.
BUSY_PERCENT = 50.0


@dataclass(frozen=True)
class GpuReading:
    """One GPU at one moment. None: not available, from an older driver or a product without the feature."""

    index: int
    component: str  # its PCI address, or "GPU 3" where NVML does not give it
    error: str = ""  # the catalog's code of a GPU that does not answer: GPU_LOST, RESET_REQUIRED, UNKNOWN_ERROR
    uuid: str = ""  # as nvidia-smi and CUDA name it; empty where NVML does not give it
    serial: str = ""  # of its board; empty where it has none, or NVML does not give it
    model: str = ""
    # Values that nvidia-smi shows too, under its names and in its words.
    health: Mapping[str, str] = field(default_factory=dict)
    temperature_celsius: float | None = None
    temperature_limit_celsius: float | None = None
    memory_celsius: float | None = None
    memory_limit_celsius: float | None = None
    power_watts: float | None = None
    utilisation_percent: float | None = None
    memory_used_mib: float | None = None
    memory_mib: int | None = None
    rows_remapped: int | None = None
    ecc_uncorrected: int | None = None  # over its whole life
    pcie_width: int | None = None
    pcie_width_most: int | None = None
    pcie_generation: int | None = None
    pcie_generation_most: int | None = None
    clock_mhz: float | None = None
    clock_most_mhz: float | None = None
    clock_reasons: int | None = None
    links: Mapping[int, bool] = field(default_factory=dict)  # NVLinks by number: whether each is up; none under MIG
    has_switch: bool = False  # its links lead to NVSwitches
    link_errors: Mapping[str, int] = field(default_factory=dict)  # since the driver was loaded, by kind

    @property
    def joins_fabric(self) -> bool:
        """Whether it has not joined its NVLink fabric yet: its links still train."""
        return self.health.get("fabric/state") in ("Not Started", "In Progress")

    @property
    def is_busy(self) -> bool:
        """Whether the GPU is under load now."""
        return (self.utilisation_percent or 0.0) >= BUSY_PERCENT


def problem(code: str, component: str | None, message: str, subcode: str | None = None) -> Problem:
    """Create a problem of the family of NVML's findings."""
    return Problem(Finding(Family.nvml, code, component, message, subcode), message)


def numbers(state: State, name: str) -> dict[str, float]:
    """Parse one table of numbers from the stored state; anything else in it is dropped."""
    table = state.get(name)
    read = table.items() if isinstance(table, dict) else ()
    return {str(key): float(value) for key, value in read if isinstance(value, (int, float))}
