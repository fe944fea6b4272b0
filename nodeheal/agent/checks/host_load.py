"""Measures how busy the host is: processors, memory, network, disks. It reports no problem.

Source: proc_stat(5), proc_meminfo(5), proc_pid_net(5); Documentation/admin-guide/iostats.rst of the kernel.
"""

import time
from collections.abc import Mapping
from pathlib import Path

from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, State
from nodeheal.agent.checks.memory import parse_used_percent

# Growth since an older reading does not describe the present load.
OLDEST_SECONDS = 300.0
_SECTOR_BYTES = 512  # the unit of /proc/diskstats, whatever the disk's own sectors are
_RATES = ("network_receive", "network_transmit", "disk_read", "disk_write")

# Counters that only grow, by kind, then by device.
Counts = Mapping[str, Mapping[str, int]]


def parse_cpu(text: str) -> dict[str, int]:
    """Return the busy ticks and all ticks of the processors; empty where the text is not valid."""
    words = text.partition("\n")[0].split()
    # The kernel counts the time of guests in that of users already.
    ticks = [int(word) for word in words[1:9] if word.isdecimal()]
    if words[:1] != ["cpu"] or len(ticks) < 5:
        return {}
    return {"busy": sum(ticks) - ticks[3] - ticks[4], "all": sum(ticks)}


def parse_network(text: str) -> dict[str, tuple[int, int]]:
    """Bytes received and sent, by interface."""
    counts = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        words = rest.split()
        if colon and len(words) >= 9 and words[0].isdecimal() and words[8].isdecimal():
            counts[name.strip()] = (int(words[0]), int(words[8]))
    return counts


def parse_disks(text: str) -> dict[str, tuple[int, int]]:
    """Return bytes read and written by block device: disks, partitions, and devices built on them."""
    counts = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 10 and words[5].isdecimal() and words[9].isdecimal():
            counts[words[2]] = (int(words[5]) * _SECTOR_BYTES, int(words[9]) * _SECTOR_BYTES)
    return counts


def gauges(before: Counts, now: Counts, seconds: float) -> dict[str, float]:
    """Return the growth over these seconds as shares and rates, without what cannot be compared."""
    busy, ticks = (_growth(before, now, "cpu", prefix) for prefix in ("busy", "all"))
    measured = {"cpu_used_percent": 100.0 * busy / ticks} if ticks and busy is not None else {}
    grown = {kind: _growth(before, now, kind) for kind in _RATES}
    rates = {f"{kind}_bytes_per_second": count / seconds for kind, count in grown.items() if count is not None}
    return {name: round(value, 2) for name, value in {**measured, **rates}.items()}


def _growth(before: Counts, now: Counts, kind: str, only: str = "") -> int | None:
    """Sum the growth of all devices present at both readings. A counter that was reset by a driver reload is
    left out.
    """
    then = before.get(kind, {})
    grown = [count - then[name] for name, count in now.get(kind, {}).items() if name in then and name.startswith(only)]
    return sum(growth for growth in grown if growth >= 0) if grown else None


def _look(place: CheckContext, state: State) -> NodeCheckResult:
    at, now = time.monotonic(), _counted(place)
    before, then = _remembered(state)
    seconds = at - then
    measured = gauges(before, now, seconds) if 0 < seconds <= OLDEST_SECONDS else {}
    used = parse_used_percent(_text(place.proc / "meminfo"))
    if used is not None:
        measured["memory_used_percent"] = round(used, 2)
    summary = ", ".join(f"{name} {value:g}" for name, value in measured.items())
    return NodeCheckResult(
        state={"at": at, "counted": now}, gauges=measured, summary=summary or "no earlier reading to compare with"
    )


def _counted(place: CheckContext) -> Counts:
    """Return hardware devices only: devices built on them would count the same bytes twice."""
    network, disks = parse_network(_text(place.proc / "net/dev")), parse_disks(_text(place.proc / "diskstats"))
    network = {name: both for name, both in network.items() if (place.sys / "class/net" / name / "device").exists()}
    disks = {name: both for name, both in disks.items() if (place.sys / "block" / name / "device").exists()}
    columns = [{name: both[i] for name, both in devices.items()} for devices in (network, disks) for i in (0, 1)]
    return {"cpu": parse_cpu(_text(place.proc / "stat")), **dict(zip(_RATES, columns, strict=True))}


def _remembered(state: State) -> tuple[Counts, float]:
    """Parse the last reading and its time. Another version of the agent may have written anything there."""
    at, counted = state.get("at"), state.get("counted")
    if not isinstance(at, (int, float)) or not isinstance(counted, dict):
        return {}, 0.0
    kinds = {kind: devices for kind, devices in counted.items() if isinstance(devices, dict)}
    known = {kind: {name: n for name, n in devices.items() if isinstance(n, int)} for kind, devices in kinds.items()}
    return known, float(at)


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return ""  # a kernel without this file has no such value


def _why_not(place: CheckContext) -> str:
    is_wanted = place.config.cloudwatch_metrics or place.config.prometheus_port
    return "" if is_wanted else "not needed: neither cloudwatch_metrics nor prometheus_port is set"


CHECK = NodeCheck(
    name="host_load",
    about="how busy processors, memory, network and disks are; for metrics only",
    interval_seconds=60.0,
    deadline_seconds=10.0,
    why_not=_why_not,
    look=_look,
)
