"""Leases on checkpoint directories: one job has a directory with everything in it and above it. Pure."""

from posixpath import normpath


def lease_path(directory: str) -> str:
    """Returns one spelling of the directory. Some file systems ignore case, so leases do too."""
    return normpath(f"/{directory.strip('/')}").casefold()


def lease_ancestors(directory: str) -> tuple[str, ...]:
    """Returns the directories above it, from the top, without the root."""
    parts = lease_path(directory).split("/")[1:]
    return tuple("/" + "/".join(parts[:depth]) for depth in range(1, len(parts)))


def overlap(path: str, other: str) -> bool:
    """Tells whether one directory is the other, or lies in it."""
    path, other = lease_path(path), lease_path(other)
    return path == other or path.startswith(f"{other}/") or other.startswith(f"{path}/")
