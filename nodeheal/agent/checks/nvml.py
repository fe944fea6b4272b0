"""Reads GPUs by NVIDIA's library, without a GPU context. Use it in a process of its own only: any call can hang.

Needs the driver, and NVIDIA's Python package.
"""

import contextlib
import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pynvml

from nodeheal.agent.checks.gpu_reading import GpuReading
from nodeheal.agent.checks.nvml_gpu import Gone, Gpu, gone_code

_MOST_GPUS = 64
# Beside XIDs: double-bit memory errors, retired pages, a lost GPU, a changed recovery action.
_EVENTS = (
    pynvml.nvmlEventTypeXidCriticalError
    | pynvml.nvmlEventTypeDoubleBitEccError
    | pynvml.nvmlEventTypeDramRetirementEvent
    | pynvml.nvmlEventTypeDramRetirementFailure
    | pynvml.nvmlEventTypeGpuUnavailableError
    | pynvml.nvmlEventTypeGpuRecoveryAction
)


@dataclass(frozen=True)
class GpuEvent:
    """A driver event. `xid` is None for other events: the next reading shows which."""

    component: str
    xid: int | None


class Nvml:
    """The open library. Raises pynvml.NVMLError. A failure of one GPU is in its reading."""

    def __init__(self, known: Sequence[str] = ()) -> None:
        """`known`: the GPUs' addresses from earlier readings; a lost GPU may not return its own."""
        self._names = dict(enumerate(known))
        self._gpus: dict[int, Gpu] = {}
        self._events: ctypes.c_void_p | None = None
        pynvml.nvmlInitWithFlags(0)

    def read(self) -> list[GpuReading]:
        """Read every GPU."""
        return [self._read(index) for index in self._indices()]

    def users(self) -> frozenset[int]:
        """Return the processes that use a GPU."""
        pids = [self._users(index) for index in self._indices()]
        return frozenset[int]().union(*pids)

    def wait(self, seconds: float) -> GpuEvent | None:
        """Wait for the next event of the GPUs that have been read; None where none comes in time."""
        if self._events is None:
            self._events = self._listen()
        try:
            event = pynvml.nvmlEventSetWait_v2(self._events, int(seconds * 1000))
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_TIMEOUT:
                return None
            self._stop_listening()
            raise
        xid = int(event.eventData) if event.eventType == pynvml.nvmlEventTypeXidCriticalError else None
        return GpuEvent(self._component_of(event.device), xid)

    @property
    def addresses(self) -> list[str]:
        """Return the GPUs' addresses by number; empty for a GPU that has never returned it."""
        return [self._names.get(index, "") for index in range(max(self._names, default=-1) + 1)]

    def close(self) -> None:
        """Close the library; a failure to close is ignored."""
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()

    def _indices(self) -> range:
        return range(min(pynvml.nvmlDeviceGetCount(), _MOST_GPUS))

    def _users(self, index: int) -> set[int]:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        return {int(process.pid) for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}

    def _stop_listening(self) -> None:
        events, self._events = self._events, None
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlEventSetFree(events)

    def _read(self, index: int) -> GpuReading:
        try:
            gpu = self._gpus.get(index) or self._take_hold(index)
            return gpu.read()
        except Gone as gone:
            known = self._gpus.get(index)  # a lost GPU no longer returns it
            uuid, serial = (known.uuid, known.serial) if known else ("", "")
            return GpuReading(index, self._name(index), error=gone.code, uuid=uuid, serial=serial)

    def _take_hold(self, index: int) -> Gpu:
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        except pynvml.NVMLError as error:
            raise Gone(gone_code(error.value) or "UNKNOWN_ERROR") from error
        gpu = Gpu(index, handle)
        gpu.component = self._names[index] = gpu.address() or self._name(index)
        gpu.uuid, gpu.serial, gpu.model = gpu.own_uuid(), gpu.own_serial(), gpu.own_model()
        self._gpus[index] = gpu
        return gpu

    def _listen(self) -> ctypes.c_void_p:
        events: ctypes.c_void_p = pynvml.nvmlEventSetCreate()
        heard = [gpu.listen(events, _EVENTS) for gpu in self._gpus.values()]
        if not any(heard):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return events

    def _component_of(self, device: Any) -> str:
        indices = [index for index, gpu in self._gpus.items() if _address(gpu.handle) == _address(device)]
        return self._name(indices[0]) if indices else "an unknown GPU"

    def _name(self, index: int) -> str:
        return self._names.get(index) or f"GPU {index}"


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
