"""Checks the state of every NVIDIA GPU by the driver's library: every 30 s, and at every driver event."""

from collections.abc import Iterator
from typing import Protocol

from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, State
from nodeheal.agent.checks.hardware import has_nvidia
from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding

READ_SECONDS = 30.0
DEADLINE_SECONDS = 60.0


class GpuLibrary(Protocol):
    """The module that asks NVIDIA's library."""

    def looks(self, place: CheckContext, state: State, every_seconds: float) -> Iterator[NodeCheckResult]:
        """Yield a result at the interval and at every event, without end."""

    def users(self) -> frozenset[int] | None:
        """Return the processes that use a GPU; None where the driver does not list them."""


def why_not(place: CheckContext) -> str:
    """Require NVIDIA GPUs."""
    return "" if has_nvidia(place) else "no NVIDIA GPU"


def look(place: CheckContext, state: State) -> NodeCheckResult:
    """Check once, without waiting for events."""
    return next(stream(place, state))


def stream(place: CheckContext, state: State) -> Iterator[NodeCheckResult]:
    """Check every 30 s and at every event, without end."""
    return gpu_library().looks(place, state, READ_SECONDS)


def gpu_library() -> GpuLibrary:
    """Import what asks NVML, 3 MiB: only nodes with NVIDIA GPUs need it."""
    from nodeheal.agent.checks import gpu_stream

    return gpu_stream


def load(place: CheckContext) -> None:
    """Import it where there are NVIDIA GPUs."""
    if not why_not(place):
        gpu_library()


CHECK = NodeCheck(
    name="gpu_state",
    about="memory errors, repairs, heat, power, clocks, PCIe and NVLinks of every NVIDIA GPU, by NVML",
    interval_seconds=READ_SECONDS,
    deadline_seconds=DEADLINE_SECONDS,
    why_not=why_not,
    look=look,
    hang=Finding(Family.nvml, "NVML_HANG", None, "a call of the NVIDIA library does not return"),
    settle_seconds=120.0,
    stream=stream,
    load=load,
)
