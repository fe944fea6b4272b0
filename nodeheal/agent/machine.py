"""Facts about the machine that the agent runs on."""

import socket
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path

from nodeheal.agent.config import AgentConfig

NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")
PROC_STAT = Path("/proc/stat")
KERNEL_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# TEST-NET-1: routed like the rest of the world, and nothing is ever sent to it.
_FAR_AWAY = ("192.0.2.1", 9)


def accelerators(config: AgentConfig, gpus: Path = NVIDIA_GPUS) -> int:
    """How many accelerators the node should have: as configured, else as the driver has registered."""
    if config.accelerators is not None:
        return config.accelerators
    try:
        return sum(1 for _ in gpus.iterdir())
    except OSError:
        return 0


def address(config: AgentConfig) -> str | None:
    """Where other nodes reach this one: as configured, else the address that the default route uses; None without."""
    if config.address is not None:
        return config.address
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(_FAR_AWAY)
        except OSError:
            return None
        return str(probe.getsockname()[0])


def booted_at(config: AgentConfig) -> datetime:
    """When the running boot began."""
    path = Path(config.boot_id_file)
    seconds = next(_kernel_boot_seconds(), None) if path == KERNEL_BOOT_ID else None
    if seconds is None:
        seconds = path.stat().st_mtime  # a node that is not a whole machine wrote its boot id when it came up
    return datetime.fromtimestamp(seconds, tz=timezone.utc)


def _kernel_boot_seconds() -> Iterator[float]:
    for line in PROC_STAT.read_text(encoding="ascii").splitlines():
        if line.startswith("btime "):
            yield float(line.split()[1])
