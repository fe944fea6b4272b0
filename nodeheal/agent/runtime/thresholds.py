"""Defines the limits of the checks that an operator can set under `[thresholds]` of the configuration.

Each is defined once, here. The configuration takes its bounds from here, the checks their values, and the reference
page everything.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Threshold:
    """One limit. A value below `least` or above `most` is refused."""

    name: str  # as spelled in the configuration
    unit: str
    default: float
    least: float
    most: float
    check: str  # the check that uses it
    about: str  # what happens at this limit
    why: str  # the reason for the default, and for the bounds where these are not obvious


# Returns the active value of a threshold.
Limit = Callable[[Threshold], float]


def default_limit(threshold: Threshold) -> float:
    """Return the value where the configuration sets none."""
    return threshold.default


DISK_FULL = Threshold(
    *("disk_full_percent", "percent", 98.0, 50.0, 100.0, "disk"),
    "a local file system with this share of its blocks or inodes in use is reported as `host/disk_full`",
    "Ours; no vendor gives one. Programs work until the last block, so a lower limit only warns earlier.",
)
MOUNT_FULL = Threshold(
    *("mount_full_percent", "percent", 95.0, 50.0, 100.0, "mounts"),
    "a shared file system of `mounts` with this share in use is reported as `host/mount_full`",
    "Ours. A checkpoint of a large job takes terabytes, and somebody must have time to make room for it.",
)
MOUNT_ANSWER = Threshold(
    *("mount_answer_seconds", "seconds", 10.0, 1.0, 60.0, "mounts"),
    "a shared file system that has not answered for so long is reported as `host/mount_hung`",
    "Ours. A server that works answers within a second, and two looks in a row must agree.",
)
MEMORY_STALLED = Threshold(
    *("memory_stalled_percent", "percent", 20.0, 1.0, 100.0, "memory"),
    "the share of the last minute in which all tasks waited for memory, reported as `host/memory_pressure`",
    "Ours. When all tasks stand still for a fifth of the time, a training step no longer ends in time.",
)
ZOMBIES = Threshold(
    *("zombie_processes", "processes", 500.0, 1.0, 4_000_000.0, "processes"),
    "so many dead processes that nobody collects are reported as `host/zombie_processes`",
    "Ours. Each keeps a process number, of which Linux has 32,768 where nobody has raised the limit, else 4 million.",
)
CLOCK_WRONG = Threshold(
    *("clock_wrong_seconds", "seconds", 60.0, 1.0, 240.0, "clock_skew"),
    "a clock that is wrong by so much is reported as `host/clock_skew`",
    "At a minute the logs of two nodes can no longer be compared. AWS refuses signatures from five minutes on.",
)
RAM_CORRECTED = Threshold(
    *("ram_corrected_errors", "errors in 10 minutes", 100.0, 1.0, 100_000.0, "ram_ecc"),
    "so many corrected errors of one memory controller are reported as `host/ram_ecc`",
    "Ours. Some errors a day are normal; a module that corrects so many is about to fail. "
    "Uncorrected errors are reported at the first one.",
)
RDMA_ERRORS = Threshold(
    *("rdma_errors", "errors in a minute", 1_000.0, 1.0, 1_000_000.0, "rdma"),
    "an error counter of an EFA or InfiniBand adapter that rises by so much is reported",
    "Ours. Busy nodes always show a few. Counters of which one error is enough, such as `link_downed`, do not use it.",
)
GPU_TEMPERATURE_MARGIN = Threshold(
    *("gpu_temperature_margin_celsius", "degrees Celsius", 0.0, 0.0, 40.0, "gpu_state"),
    "a GPU or its memory that is hotter than its own limit less so much is reported as `nvml/TEMPERATURE_HIGH`",
    "The driver states the limit of each product, so 0 is right for all of them. A margin reports earlier.",
)
GPU_LASTING = Threshold(
    *("gpu_lasting_seconds", "seconds", 60.0, 0.0, 3_600.0, "gpu_state"),
    "heat, slowdowns, low clocks, slow PCIe links and NVLinks that are down are reported when they have lasted so long",
    "Ours. They come and go with the load, and links train again after a reset.",
)
GPU_FABRIC = Threshold(
    *("gpu_fabric_seconds", "seconds", 300.0, 60.0, 3_600.0, "gpu_state"),
    "a GPU that has not joined the NVLink fabric for so long is reported as `nvml/FABRIC_NOT_READY`",
    "The GPUs of an HGX H100 join half a minute after the boot, with the Fabric Manager. This is ten times that.",
)
GPU_LOW_CLOCK = Threshold(
    *("gpu_low_clock_percent", "percent", 50.0, 5.0, 100.0, "gpu_state"),
    "a busy GPU that runs below this share of its highest clock, for no reason that the driver states, "
    "is reported as `nvml/CLOCKS_LOW`",
    "Ours. Power and heat explain most low clocks, and the driver then states them.",
)
NVLINK_CHECKSUM_ERRORS = Threshold(
    *("nvlink_checksum_errors", "errors in a second", 100.0, 1.0, 100_000.0, "gpu_state"),
    "checksum errors of a GPU's NVLinks at this rate are reported as `nvml/NVLINK_ERRORS`",
    "DCGM uses the same limit. Replay and recovery errors are reported at the first one.",
)
NVIDIA_SMI = Threshold(
    *("nvidia_smi_seconds", "seconds", 90.0, 10.0, 180.0, "nvidia_smi"),
    "`nvidia-smi` that has not ended after so long is reported as `host/nvidia_smi_hang`",
    "Ours. Without the persistence daemon the driver starts every GPU for each call, some seconds each.",
)

THRESHOLDS = (
    *(DISK_FULL, MOUNT_FULL, MOUNT_ANSWER, MEMORY_STALLED, ZOMBIES, CLOCK_WRONG, RAM_CORRECTED, RDMA_ERRORS),
    *(GPU_TEMPERATURE_MARGIN, GPU_LASTING, GPU_FABRIC, GPU_LOW_CLOCK, NVLINK_CHECKSUM_ERRORS, NVIDIA_SMI),
)
