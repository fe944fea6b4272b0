"""Checks that the local file systems are writable and have room."""

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, Problem, State, always
from nodeheal.agent.runtime.thresholds import DISK_FULL
from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding

# Mounts whose full disk stops a job or the node. Other mounts belong to jobs.
WATCHED = ("/", "/var", "/tmp", "/var/lib/docker", "/var/lib/containerd", "/var/lib/ecs", "/home")
# Newer kernels keep `rw` for a file system that an error has shut down, and add this option.
_NOT_WRITABLE = ("ro", "emergency_ro", "shutdown")
_LOCAL = ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs")


@dataclass(frozen=True)
class MountEntry:
    """One line of a list of mounts. `options`: those of the file system, not of this mount of it."""

    device: str
    point: str
    kind: str
    options: frozenset[str]

    @property
    def is_writable(self) -> bool:
        """Whether the file system accepts writes."""
        return self.options.isdisjoint(_NOT_WRITABLE)


def parse_mounts(text: str) -> list[MountEntry]:
    """Parse mounts, in order; where several share a mount point, the last one is visible. Source: proc_pid_mounts(5),
    fstab(5).
    """
    mounts = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 4 and not line.startswith("#"):
            device, point, kind, options = (_unescaped(word) for word in words[:4])
            mounts[point] = MountEntry(device, point, kind, frozenset(options.split(",")))
    return list(mounts.values())


def parse_mountinfo(text: str) -> list[MountEntry]:
    """Parse /proc/self/mountinfo; the options are those of the superblock. A single service can see a mount read-only,
    as with systemd's ProtectSystem=, while the disk is fine. Source: proc_pid_mountinfo(5).
    """
    mounts = {}
    for line in text.splitlines():
        view, _, system = line.partition(" - ")
        words, (kind, device, options, *_) = view.split(), [*system.split(), "", "", ""]
        if len(words) >= 6 and options:
            point = _unescaped(words[4])
            mounts[point] = MountEntry(_unescaped(device), point, kind, frozenset(options.split(",")))
    return list(mounts.values())


def _unescaped(word: str) -> str:
    """Decode the octal escapes of blanks in names."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(code, character)
    return word


def judge(
    mounts: list[MountEntry], was_writable: Collection[str], used_percent: Mapping[str, float], full_percent: float
) -> Iterator[Problem]:
    """Judge the file systems. A deliberate read-only mount is fine; one that became read-only is not."""
    for mount in mounts:
        if not mount.is_writable and mount.point in was_writable:
            yield _problem("disk_read_only", mount.point, f"{mount.device} on {mount.point} has become read-only")
        used = used_percent.get(mount.point, 0.0)
        if used >= full_percent:
            yield _problem("disk_full", mount.point, f"{mount.point} is {used:.1f} % full")


def _look(place: CheckContext, state: State) -> NodeCheckResult:
    mounts = parse_mountinfo(_text(place.proc / "self/mountinfo"))
    watched = [mount for mount in mounts if mount.kind in _LOCAL and mount.point in WATCHED]
    before = state.get("writable")
    # File systems that fstab mounts writable must be writable; of the others, those that were writable since the boot.
    wanted = {mount.point for mount in parse_mounts(_text(place.etc / "fstab")) if mount.is_writable}
    was_writable = wanted | set(before if isinstance(before, list) else ())
    used = {mount.point: _used_percent(Path(mount.point)) for mount in watched}
    return NodeCheckResult(
        tuple(judge(watched, was_writable, used, place.config.limit(DISK_FULL))),
        state={"writable": sorted(was_writable | {mount.point for mount in watched if mount.is_writable})},
        gauges={f"disk_used_percent:{point}": percent for point, percent in used.items()},
        summary=f"local file systems: {', '.join(mount.point for mount in watched) or 'none'}",
        unclear="" if mounts else "/proc/self/mountinfo is not understood",
    )


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""  # a missing fstab requires nothing


def _used_percent(point: Path) -> float:
    status = os.statvfs(point)
    blocks = status.f_blocks - status.f_bfree + status.f_bavail
    return fuller((status.f_bavail, blocks), (status.f_favail, status.f_files))


def fuller(*room: tuple[int, int]) -> float:
    """Return the used percentage of blocks or of inodes, each as (free, total), whichever is higher. 0 where the total
    is 0.

    As `df` counts: blocks reserved for root are not available to others.
    """
    return max((100.0 * (1 - left / whole) for left, whole in room if whole), default=0.0)


def _problem(code: str, point: str, message: str) -> Problem:
    return Problem(Finding(Family.host, code, point, message), message)


CHECK = NodeCheck(
    name="disk",
    about="local file systems: room and inodes, read-only",
    interval_seconds=60.0,
    deadline_seconds=20.0,
    why_not=always,
    look=_look,
    confirm=2,
)
