"""One GPU at one moment, as NVML tells it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeheal.agent.checks.check import Problem, State
from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding

# A GPU at rest lowers its clocks and its PCIe link: they are judged while it works.
BUSY_PERCENT = 50.0


@dataclass(frozen=True)
class GpuReading:
    """One GPU at one moment. None: not told, by an older driver or by a product that has no such thing."""

    index: int
    component: str  # its PCI address, or "GPU 3" where it cannot tell it
    error: str = ""  # the catalog's code for a GPU that does not answer: GPU_LOST, RESET_REQUIRED, UNKNOWN_ERROR
    uuid: str = ""  # as nvidia-smi and CUDA name it; empty where it cannot tell it
    serial: str = ""  # of its board; empty where it has none, or cannot tell it
    health: Mapping[str, str] = field(default_factory=dict)  # what nvidia-smi shows too, by its names and in its words
    temperature_celsius: float | None = None
    temperature_limit_celsius: float | None = None
    memory_celsius: float | None = None
    memory_limit_celsius: float | None = None
    power_watts: float | None = None
    utilisation_percent: float | None = None
    memory_used_mib: float | None = None
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
    def is_busy(self) -> bool:
        """Whether it works at this moment."""
        return (self.utilisation_percent or 0.0) >= BUSY_PERCENT


def problem(code: str, component: str | None, message: str, subcode: str | None = None) -> Problem:
    """A problem of the family that NVML's findings have."""
    return Problem(Finding(Family.nvml, code, component, message, subcode), message)


def numbers(state: State, name: str) -> dict[str, float]:
    """One table of numbers out of what was remembered; whatever else is written there is left out."""
    table = state.get(name)
    read = table.items() if isinstance(table, dict) else ()
    return {str(key): float(value) for key, value in read if isinstance(value, (int, float))}
