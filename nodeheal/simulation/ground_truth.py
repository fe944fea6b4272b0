"""Defines the true state of a node, whatever the control plane believes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeheal.contract.vocabulary import Provider
from nodeheal.simulation.faults import SimulatedFault


@dataclass(slots=True)
class GroundTruth:
    """The true state of one node."""

    node_id: str
    rack: str
    beat_offset: float
    provider: Provider = Provider.hybrid
    boot: int = 1
    booted_at: float = -3_600.0
    is_up: bool = True
    went_at: float = 0.0
    is_gone: bool = False  # its machine is terminated
    fault: SimulatedFault | None = None
    event_count: int = 0
    chassis: str = ""  # the accelerators in it keep their serials when the node registers under another id
    slot: int = 0  # of the accelerator that failed last
    rebooting: bool = False
    left: Mapping[str, str] = field(default_factory=dict)  # the diagnostics that it runs by itself after its next boot
    logged: set[tuple[str, str, str]] = field(default_factory=set)  # (boot id, family, code) in its kernel log

    @property
    def boot_id(self) -> str:
        """Return its kernel's boot id."""
        return f"{self.node_id}-boot-{self.boot}"

    @property
    def serial(self) -> str:
        """Return the serial of the accelerator that failed last."""
        return f"{self.chassis}/{self.slot}"
