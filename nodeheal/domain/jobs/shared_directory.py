"""Decides whether the nodes of a job share one checkpoint directory, by what each of them sees there. Pure.

A local disk is shared with nobody. The server of a network file system numbers its folders, so two clients that see the
same number see the same folder. Other file systems leave it unknown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from nodeheal.contract.health_event import Sight
from nodeheal.contract.vocabulary import Verdict
from nodeheal.domain.humanize import all_of

LOCAL = frozenset(
    (
        *("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "ntfs3", "reiserfs", "vfat", "xfs", "zfs"),
        *("overlay", "ramfs", "rootfs", "squashfs", "tmpfs"),
    )
)
# Their clients tell the server's own number of a folder. Of the others (FUSE, for one) it may be the client's.
_NUMBERED = {"nfs": "nfs", "nfs4": "nfs", "lustre": "lustre", "ceph": "ceph"}
_NAMED = 6
_SOURCE_CHARACTERS = 80  # of what a node says is mounted
_IN_DOUBT = "not known whether"


@dataclass(frozen=True)
class SharedDirectory:
    """OK: they share it. FAILED: they do not; `accused` differ from the others. UNKNOWN: it cannot be decided."""

    verdict: Verdict
    reason: str
    accused: tuple[str, ...] = ()


def is_shared(directory: str, sights: Mapping[str, Sight | str]) -> SharedDirectory:
    """Compares what each node has seen there, by its name, or why it could not say."""
    known = {name: sight for name, sight in sights.items() if isinstance(sight, Sight)}
    groups = _grouped(known)
    first = [known[names[0]] for names in groups]
    if any(_cannot_be_one(sight, other) for sight, other in combinations(first, 2)):
        return _not_shared(directory, known, groups)
    silent = {name: str(reason) for name, reason in sights.items() if name not in known}
    if silent:
        why = "; ".join(f"{name}: {reason}" for name, reason in list(silent.items())[:_NAMED])
        return SharedDirectory(Verdict.UNKNOWN, f"{_IN_DOUBT} all nodes share {directory}: {why}")
    if len(groups) > 1:
        text = "; ".join(f"{_listed(names)}: {_shown(known[names[0]])}" for names in groups)
        return SharedDirectory(Verdict.UNKNOWN, f"{_IN_DOUBT} all nodes share {directory}: {text}")
    first_sight = next(iter(known.values()))
    where = (
        f"they run on one machine: {first_sight.file_system} {first_sight.source}"
        if _is_local(first_sight)
        else _shown(first_sight)
    )
    everyone = f"{all_of(len(known))} nodes share" if len(known) > 1 else "its one node sees"
    where += f"; {first_sight.missing} is not there yet" if first_sight.missing else ""
    return SharedDirectory(Verdict.OK, f"{everyone} {directory} ({where})")


def _not_shared(directory: str, known: Mapping[str, Sight], groups: Sequence[Sequence[str]]) -> SharedDirectory:
    """Accuses the few nodes that cannot see what most others agree on. A tie accuses nobody.

    The exception: nodes with only local disks, where the others have a network file system. It is not mounted there.
    """
    text = "; ".join(f"{_listed(names)}: {_shown(known[names[0]])}" for names in groups[:_NAMED])
    text = f"{directory} is not one directory on all nodes: {text}"
    agreeing, theirs = groups[0], known[groups[0][0]]
    others = [name for name in known if _cannot_be_one(known[name], theirs)]
    is_not_mounted = not _is_local(theirs) and all(_is_local(known[name]) for name in others)
    if len(agreeing) < len(others) + (0 if is_not_mounted else 1):
        return SharedDirectory(Verdict.FAILED, text)
    return SharedDirectory(Verdict.FAILED, text, tuple(others))


def _grouped(known: Mapping[str, Sight]) -> list[list[str]]:
    """Groups the nodes that see the same, the largest group first.

    Of two equal ones the one on a network comes first.
    """
    groups: dict[tuple[object, ...], list[str]] = {}
    for name, sight in known.items():
        groups.setdefault(_place(sight), []).append(name)
    return sorted(groups.values(), key=lambda names: (-len(names), _is_local(known[names[0]])))


def _place(sight: Sight) -> tuple[object, ...]:
    """Returns a value that is equal for two nodes if they see one folder, as far as that can be known."""
    if _is_local(sight):
        return ("local", sight.machine, sight.device, sight.inode, sight.missing)
    if _family(sight):
        return (_family(sight), sight.inode, sight.missing)
    return (sight.file_system, sight.source)


def _cannot_be_one(sight: Sight, other: Sight) -> bool:
    """Tells whether these are certainly two directories."""
    if _place(sight) == _place(other):
        return False
    return _is_local(sight) or _is_local(other) or _family(sight) == _family(other) != ""


def _family(sight: Sight) -> str:
    return _NUMBERED.get(sight.file_system, "")


def _is_local(sight: Sight) -> bool:
    return sight.file_system in LOCAL


def _shown(sight: Sight) -> str:
    whose = "a disk of its own, " if _is_local(sight) else ""
    missing = f", where {sight.missing} is missing" if sight.missing else ""
    return (
        f"{whose}{sight.file_system or 'an unknown file system'} {sight.source[:_SOURCE_CHARACTERS]}".rstrip() + missing
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
