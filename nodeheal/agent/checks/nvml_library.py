"""The NVIDIA driver's own library, called by its documented binary interface: what we ask of it, and no more.

NVIDIA's Python package has all of it, and takes 4 MiB of every GPU node for good: see ADR 37. Tests hold what stands
here to that package.
"""

import ctypes
from typing import Any, TypeVar

FILE = "libnvidia-ml.so.1"
LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 12, 13  # the numbers that NVML has for what never reaches it
TEXT_BYTES = 96  # NVML_DEVICE_UUID_V2_BUFFER_SIZE
BUS_ID_BYTES, LEGACY_BUS_ID_BYTES, CLUSTER_UUID_BYTES = 32, 16, 16
_VERSION_SHIFT = 24  # where a structure that says its own version has the number; below is its size

Told = TypeVar("Told", bound=ctypes.Structure | ctypes.Array[Any])


class Refused(Exception):
    """A call was answered by an error, or could not be made. `number`: NVML's."""

    def __init__(self, number: int, words: str) -> None:
        super().__init__(words)
        self.number = number


class Memory(ctypes.Structure):
    """Bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Rates(ctypes.Structure):
    """Percent of the last moments in which it worked."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class PciInfo(ctypes.Structure):
    """Where it is on the bus."""

    _fields_ = (
        ("busIdLegacy", ctypes.c_char * LEGACY_BUS_ID_BYTES),
        *((name, ctypes.c_uint) for name in ("domain", "bus", "device", "pciDeviceId", "pciSubSystemId")),
        ("busId", ctypes.c_char * BUS_ID_BYTES),
    )


class Value(ctypes.Union):
    """A number; which member holds it, its type says."""

    _fields_ = (
        ("dVal", ctypes.c_double),
        ("uiVal", ctypes.c_uint),
        ("ulVal", ctypes.c_ulong),
        ("ullVal", ctypes.c_ulonglong),
        ("sllVal", ctypes.c_longlong),
        ("siVal", ctypes.c_int),
        ("usVal", ctypes.c_ushort),
    )


class FieldValue(ctypes.Structure):
    """One of the values that are asked for by number."""

    _fields_ = (
        ("fieldId", ctypes.c_uint32),
        ("scopeId", ctypes.c_uint32),
        ("timestamp", ctypes.c_int64),
        ("latencyUsec", ctypes.c_int64),
        ("valueType", ctypes.c_uint),
        ("nvmlReturn", ctypes.c_uint),
        ("value", Value),
    )


class SramErrors(ctypes.Structure):
    """Errors of the memory on the chip, counted in eleven ways, and whether they are too many."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("counts", ctypes.c_ulonglong * 11),
        ("bThresholdExceeded", ctypes.c_uint),
    )


class Repairs(ctypes.Structure):
    """Whether repairs wait for a reset."""

    _fields_ = tuple((name, ctypes.c_uint) for name in ("version", "bChannelRepairPending", "bTpcRepairPending"))


class Unrepairable(ctypes.Structure):
    """Whether there is memory that nothing can repair."""

    _fields_ = (("version", ctypes.c_uint), ("unrepairableMemory", ctypes.c_uint))


class Fabric(ctypes.Structure):
    """Whether the GPU has joined the NVLink fabric, and how well it is there."""

    number = 2
    _fields_ = (
        ("version", ctypes.c_uint),
        ("clusterUuid", ctypes.c_uint8 * CLUSTER_UUID_BYTES),
        *((name, ctypes.c_uint) for name in ("status", "cliqueId", "state", "healthMask")),
    )


class FabricSummed(Fabric):
    """As newer drivers tell it, with their own sum of it."""

    number = 3
    _fields_ = (("healthSummary", ctypes.c_uint8),)


class ProcessInfo(ctypes.Structure):
    """A process that computes on a GPU."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("usedGpuMemory", ctypes.c_ulonglong),
        ("gpuInstanceId", ctypes.c_uint),
        ("computeInstanceId", ctypes.c_uint),
    )


class EventData(ctypes.Structure):
    """What has happened, and to which GPU."""

    _fields_ = (
        ("device", ctypes.c_void_p),
        ("eventType", ctypes.c_ulonglong),
        ("eventData", ctypes.c_ulonglong),
        ("gpuInstanceId", ctypes.c_uint),
        ("computeInstanceId", ctypes.c_uint),
    )


def is_there() -> bool:
    """Whether it can be loaded. Nothing is asked of the driver."""
    try:
        Library()
    except Refused:
        return False
    return True


class Library:
    """The library, loaded. Any call can hang. Raises Refused where it cannot be loaded, or a call is refused.

    Every function but the first answers by a number whether it was done, and writes what it tells where its last
    argument points to; text has its length behind it.
    """

    def __init__(self) -> None:
        try:
            self._functions = ctypes.CDLL(FILE)
        except OSError as error:
            raise Refused(LIBRARY_NOT_FOUND, str(error)) from error

    def call(self, name: str, *arguments: object) -> None:
        """A Python number is passed as an int."""
        function = getattr(self._functions, name, None)
        if function is None:
            raise Refused(FUNCTION_NOT_FOUND, f"this driver has no {name}")
        number = function(*arguments)
        if number:
            raise Refused(number, self._words_for(number))

    def number(self, name: str, *arguments: object) -> int:
        """What is told as an unsigned int."""
        told = ctypes.c_uint()
        self.call(name, *arguments, ctypes.byref(told))
        return told.value

    def large_number(self, name: str, *arguments: object) -> int:
        """What is told as an unsigned long long."""
        told = ctypes.c_ulonglong()
        self.call(name, *arguments, ctypes.byref(told))
        return told.value

    def pointer(self, name: str, *arguments: object) -> ctypes.c_void_p:
        """What is told as a handle."""
        told = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(told))
        return told

    def text(self, name: str, *arguments: object) -> str:
        """What is told as text."""
        told = ctypes.create_string_buffer(TEXT_BYTES)
        self.call(name, *arguments, told, ctypes.c_uint(TEXT_BYTES))
        return told.value.decode("ascii", "replace")

    def fill(self, told: Told, name: str, *arguments: object) -> Told:
        """What is told as a structure, or as several."""
        if hasattr(told, "version"):
            told.version = getattr(told, "number", 1) << _VERSION_SHIFT | ctypes.sizeof(told)
        self.call(name, *arguments, ctypes.byref(told))
        return told

    def _words_for(self, number: int) -> str:
        tell = self._functions.nvmlErrorString
        tell.restype = ctypes.c_char_p
        words: bytes = tell(number)
        return words.decode("ascii", "replace")
