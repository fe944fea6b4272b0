"""NVIDIA's library, without a GPU context. Only for a process of its own: any call can hang.

Needs nothing but the driver.
"""

import contextlib
import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from nodeheal.agent.checks.gpu_reading import GpuReading
from nodeheal.agent.checks.nvml_gpu import Gone, Gpu, gone_code
from nodeheal.agent.checks.nvml_library import EventData, Library, ProcessInfo, Refused

_MOST_GPUS = 64
_PROCESSES, _MOST_PROCESSES = 64, 65536  # of one GPU
# NVML's numbers.
NOT_SUPPORTED, INSUFFICIENT_SIZE, DRIVER_NOT_LOADED, TIMEOUT, VERSION_MISMATCH = 3, 7, 9, 10, 18
_XID = 0x8
# With it: double-bit memory errors, pages retired or not to be, a GPU that is gone, another recovery action.
_EVENTS = _XID | 0x2 | 0x400 | 0x800 | 0x4000 | 0x8000

_Answer = TypeVar("_Answer")


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
        self._names = dict(enumerate(known))
        self._gpus: dict[int, Gpu] = {}
        self._events: ctypes.c_void_p | None = None
        self._library = _told(Library)
        _told(self._library.call, "nvmlInitWithFlags", 0)

    def read(self) -> list[GpuReading]:
        """Every GPU."""
        return [self._read(index) for index in self._indices()]

    def users(self) -> frozenset[int]:
        """The processes that use a GPU."""
        found = [self._users(index) for index in self._indices()]
        return frozenset[int]().union(*found)

    def wait(self, seconds: float) -> GpuEvent | None:
        """The next event of the GPUs that have been read; None if there is none in time."""
        if self._events is None:
            self._events = self._listen()
        try:
            event = self._next_event(self._events, seconds)
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
            _told(self._library.call, "nvmlShutdown")

    def _indices(self) -> range:
        return range(min(_told(self._library.number, "nvmlDeviceGetCount_v2"), _MOST_GPUS))

    def _users(self, index: int) -> set[int]:
        """Room for so many, and more where they are more."""
        handle, room = _told(self._library.pointer, "nvmlDeviceGetHandleByIndex_v2", index), _PROCESSES
        while True:
            count, found = ctypes.c_uint(room), (ProcessInfo * room)()
            try:
                self._library.fill(found, "nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(count))
            except Refused as refused:
                if refused.number != INSUFFICIENT_SIZE or room >= _MOST_PROCESSES:
                    raise NvmlError(refused.number, str(refused)) from refused
                room *= 2
                continue
            return {int(one.pid) for one in found[: count.value]}

    def _next_event(self, events: ctypes.c_void_p, seconds: float) -> EventData:
        event, patience = EventData(), ctypes.c_uint(int(seconds * 1000))
        _told(self._library.call, "nvmlEventSetWait_v2", events, ctypes.byref(event), patience)
        return event

    def _stop_listening(self) -> None:
        events, self._events = self._events, None
        with contextlib.suppress(NvmlError):
            _told(self._library.call, "nvmlEventSetFree", events)

    def _read(self, index: int) -> GpuReading:
        try:
            gpu = self._gpus.get(index) or self._take_hold(index)
            return gpu.read()
        except Gone as gone:
            known = self._gpus.get(index)  # a lost one does not tell it any more
            uuid, serial = (known.uuid, known.serial) if known else ("", "")
            return GpuReading(index, self._name(index), error=gone.code, uuid=uuid, serial=serial)

    def _take_hold(self, index: int) -> Gpu:
        try:
            handle = _told(self._library.pointer, "nvmlDeviceGetHandleByIndex_v2", index)
        except NvmlError as error:
            raise Gone(gone_code(error.number) or "UNKNOWN_ERROR") from error
        gpu = Gpu(self._library, index, handle)
        gpu.component = self._names[index] = gpu.address() or self._name(index)
        gpu.uuid, gpu.serial = gpu.own_uuid(), gpu.own_serial()
        self._gpus[index] = gpu
        return gpu

    def _listen(self) -> ctypes.c_void_p:
        events = _told(self._library.pointer, "nvmlEventSetCreate")
        heard = [gpu.listen(events, _EVENTS) for gpu in self._gpus.values()]
        if not any(heard):
            raise NvmlError(NOT_SUPPORTED, "no GPU tells of events")
        return events

    def _component_of(self, handle: int | None) -> str:
        found = [index for index, gpu in self._gpus.items() if gpu.handle.value == handle]
        return self._name(found[0]) if found else "an unknown GPU"

    def _name(self, index: int) -> str:
        return self._names.get(index) or f"GPU {index}"


def _told(call: Callable[..., _Answer], *arguments: object) -> _Answer:
    """What only the library as a whole can refuse."""
    try:
        return call(*arguments)
    except Refused as refused:
        raise NvmlError(refused.number, str(refused)) from refused
