"""Reads facts about the machine that the agent runs on."""

import re
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from nodeheal.agent.runtime.config import LABELS, AgentConfig
from nodeheal.agent.transport.event import Identity

NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
_DRIVER_VERSION = re.compile(r"^NVRM version: .{0,120}?\s(\d{3,4}(?:\.\d{1,4}){1,2})\s", re.MULTILINE)
_MODEL = re.compile(r"^Model:[ \t]{0,32}(.{1,128})$", re.MULTILINE)
_WORD_CHARACTERS = 128
PRODUCT_NAME = Path("/sys/class/dmi/id/product_name")
PROC_STAT = Path("/proc/stat")
KERNEL_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# TEST-NET-1: routed like any other address, and nothing is sent to it.
_FAR_AWAY = ("192.0.2.1", 9)


def accelerators(config: AgentConfig, gpus: Path = NVIDIA_GPUS) -> int:
    """Return the number of accelerators: as configured, else as registered with the driver."""
    if config.accelerators is not None:
        return config.accelerators
    try:
        return sum(1 for _ in gpus.iterdir())
    except OSError:
        return 0


def identity(config: AgentConfig, driver: Path = NVIDIA_DRIVER, gpus: Path = NVIDIA_GPUS) -> Identity:
    """Return this node's identity: as configured, else from the GPU driver."""
    configured_identity = config.identity
    version = _first(_DRIVER_VERSION, driver)
    labels = dict(configured_identity.labels)
    if version and len(labels) < LABELS:
        labels.setdefault("driver_version", version)
    models = sorted(gpus.glob("*/information"))
    product = configured_identity.product or (_first(_MODEL, models[0]) if models else None)
    return replace(configured_identity, product=product, labels=labels)


def _first(pattern: "re.Pattern[str]", path: Path) -> "str | None":
    try:
        match = pattern.search(path.read_text(encoding="utf-8", errors="replace")[:4096])
    except OSError:
        return None
    return match[1].strip()[:_WORD_CHARACTERS] or None if match else None


def product_name(firmware: Path = PRODUCT_NAME) -> str | None:
    """Return the machine's name in its firmware, on EC2 the instance type; None where it has none."""
    try:
        return firmware.read_text(encoding="utf-8", errors="replace").strip()[:_WORD_CHARACTERS] or None
    except OSError:
        return None


def address(config: AgentConfig) -> str | None:
    """Return the address that other nodes use for this one: as configured, else that of the default route; None without
    one.
    """
    if config.address is not None:
        return config.address
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(_FAR_AWAY)
        except OSError:
            return None
        return str(probe.getsockname()[0])


def booted_at(config: AgentConfig) -> datetime:
    """Return when the running boot began."""
    path = Path(config.boot_id_file)
    seconds = next(_kernel_boot_seconds(), None) if path == KERNEL_BOOT_ID else None
    if seconds is None:
        seconds = path.stat().st_mtime  # a node that is not a whole machine wrote its boot id file when it started
    return datetime.fromtimestamp(seconds, tz=UTC)


def _kernel_boot_seconds() -> Iterator[float]:
    for line in PROC_STAT.read_text(encoding="ascii").splitlines():
        if line.startswith("btime "):
            yield float(line.split()[1])
