"""Whose a checkpoint directory is: a job's, with all that lies in it and above it. Pure."""

from posixpath import normpath


def lease_path(directory: str) -> str:
    """One spelling of the directory. Some file systems do not tell case apart, so leases do not either."""
    return normpath(f"/{directory.strip('/')}").casefold()


def lease_ancestors(directory: str) -> tuple[str, ...]:
    """The directories above it, from the top, without the root."""
    parts = lease_path(directory).split("/")[1:]
    return tuple("/" + "/".join(parts[:depth]) for depth in range(1, len(parts)))


def overlap(one: str, other: str) -> bool:
    """Whether one of the two is the other, or lies in it."""
    one, other = lease_path(one), lease_path(other)
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")
