"""NVIDIA's library, without a GPU context. Only for a process of its own: any call can hang.

Needs `nvidia-ml-py` (imported here, when it is first used: it weighs some MiB) and the driver's `libnvidia-ml.so.1`.
"""

import contextlib
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nodeheal.agent.checks.gpu_reading import GpuReading
from nodeheal.agent.checks.nvml_gpu import Gone, Gpu, gone_code

_MOST_GPUS = 64
# NVML's numbers.
NOT_SUPPORTED, DRIVER_NOT_LOADED, TIMEOUT, VERSION_MISMATCH = 3, 9, 10, 18
_XID = 0x8
# With it: double-bit memory errors, pages retired or not to be, a GPU that is gone, another recovery action.
_EVENTS = _XID | 0x2 | 0x400 | 0x800 | 0x4000 | 0x8000


class NvmlError(Exception):
    """The library as a whole does not answer. `number`: NVML's."""

    def __init__(self, number: int, told: str) -> None:
        super().__init__(told)
        self.number = number


@dataclass(frozen=True)
class GpuEvent:
    """The driver has told something. `xid` is None where it is another thing: a look shows which."""

    component: str
    xid: int | None


class Nvml:
    """The library, open. Raises NvmlError where it cannot be used; what one GPU does not answer is in its reading."""

    def __init__(self, known: Sequence[str] = ()) -> None:
        """`known`: the GPUs' addresses as they were told before; a lost one may not tell its own."""
        self._library: Any = importlib.import_module("pynvml")
        self._names = dict(enumerate(known))
        self._gpus: dict[int, Gpu] = {}
        self._events: Any = None
        self._call(self._library.nvmlInit)

    def read(self) -> list[GpuReading]:
        """Every GPU."""
        count = int(self._call(self._library.nvmlDeviceGetCount))
        return [self._read(index) for index in range(min(count, _MOST_GPUS))]

    def users(self) -> frozenset[int]:
        """The processes that use a GPU."""
        count = int(self._call(self._library.nvmlDeviceGetCount))
        found = [self._users(index) for index in range(min(count, _MOST_GPUS))]
        return frozenset[int]().union(*found)

    def wait(self, seconds: float) -> GpuEvent | None:
        """The next event of the GPUs that have been read; None if there is none in time."""
        if self._events is None:
            self._events = self._listen()
        try:
            event = self._call(self._library.nvmlEventSetWait_v2, self._events, int(seconds * 1000))
        except NvmlError as error:
            if error.number == TIMEOUT:
                return None
            self._stop_listening()
            raise
        xid = int(event.eventData) if event.eventType == _XID else None
        return GpuEvent(self._component_of(event.device), xid)

    @property
    def addresses(self) -> list[str]:
        """The GPUs' addresses by their numbers; empty for one that has never told it."""
        return [self._names.get(index, "") for index in range(max(self._names, default=-1) + 1)]

    def close(self) -> None:
        """Let go of it. A library that is gone already is no matter."""
        with contextlib.suppress(NvmlError):
            self._call(self._library.nvmlShutdown)

    def _users(self, index: int) -> set[int]:
        handle = self._call(self._library.nvmlDeviceGetHandleByIndex, index)
        return {int(one.pid) for one in self._call(self._library.nvmlDeviceGetComputeRunningProcesses, handle)}

    def _stop_listening(self) -> None:
        events, self._events = self._events, None
        with contextlib.suppress(NvmlError):
            self._call(self._library.nvmlEventSetFree, events)

    def _read(self, index: int) -> GpuReading:
        try:
            gpu = self._gpus.get(index) or self._take_hold(index)
            return gpu.read()
        except Gone as gone:
            return GpuReading(index, self._name(index), error=gone.code)

    def _take_hold(self, index: int) -> Gpu:
        try:
            handle = self._call(self._library.nvmlDeviceGetHandleByIndex, index)
        except NvmlError as error:
            raise Gone(gone_code(error.number) or "UNKNOWN_ERROR") from error
        gpu = Gpu(self._library, index, handle)
        gpu.component = self._names[index] = gpu.address() or self._name(index)
        self._gpus[index] = gpu
        return gpu

    def _listen(self) -> Any:
        events = self._call(self._library.nvmlEventSetCreate)
        heard = [gpu.listen(events, _EVENTS) for gpu in self._gpus.values()]
        if not any(heard):
            raise NvmlError(NOT_SUPPORTED, "no GPU tells of events")
        return events

    def _component_of(self, handle: Any) -> str:
        found = [index for index, gpu in self._gpus.items() if _place(gpu.handle) == _place(handle)]
        return self._name(found[0]) if found else "an unknown GPU"

    def _name(self, index: int) -> str:
        return self._names.get(index) or f"GPU {index}"

    def _call(self, call: Callable[..., Any], *arguments: object) -> Any:
        try:
            return call(*arguments)
        except self._library.NVMLError as error:
            raise NvmlError(int(error.value), str(error)) from error


def _place(handle: Any) -> int | None:
    import ctypes  # in the process that reads the GPUs, and nowhere else

    return ctypes.cast(handle, ctypes.c_void_p).value
