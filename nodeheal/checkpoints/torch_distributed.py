"""PyTorch's distributed checkpoints: a folder of `__RANK_N.distcp`, and `.metadata` with the position of each part.

`.metadata` is written last, as `.metadata.tmp`, and renamed: torch/distributed/checkpoint/filesystem.py,
FileSystemWriter.finish. It is a pickle whose storage_data gives each part's file, offset and length.
"""

import io
import re
from collections.abc import Iterator, Sequence
from functools import partial

from nodeheal.checkpoints.found import Candidate, CheckpointBroken
from nodeheal.checkpoints.pickles import Atom, atoms
from nodeheal.checkpoints.place import CheckpointRoot, last_number

METADATA, UNFINISHED = ".metadata", ".metadata.tmp"
METADATA_BYTES = 256 * 1024 * 1024
EXACT_BYTES = 4 * 1024 * 1024  # of a larger .metadata only the files' names are read: its opcodes take too long
PART = re.compile(r"__\d+_\d+\.distcp")
_FIRST_PARTS = ("__0_0.distcp", "__0_1.distcp")
_PART_IN_BYTES = re.compile(PART.pattern.encode())


def candidates(place: CheckpointRoot, names: Sequence[str]) -> list[Candidate]:
    """Return the directory itself, or its folders."""
    if is_distributed(place, ""):
        return [Candidate("", last_number(place.root.rpartition("/")[2]), partial(_check, place, ""))]
    folders = [name for name in names if is_distributed(place, name)]
    return [Candidate(name, last_number(name), partial(_check, place, name)) for name in folders]


def is_distributed(place: CheckpointRoot, folder: str) -> bool:
    """Whether this folder is such a checkpoint, or an unfinished one."""
    return any(place.is_file(_in(folder, name)) for name in (METADATA, UNFINISHED, *_FIRST_PARTS))


def check_distributed(place: CheckpointRoot, folder: str) -> None:
    """Check that every file in .metadata exists, and is long enough. Raises CheckpointBroken."""
    there = set(place.names(folder))
    if METADATA not in there:
        begun = f" ({UNFINISHED} is there)" if UNFINISHED in there else ""
        raise CheckpointBroken(f"it was not finished: {METADATA}, written last, is missing{begun}")
    raw = place.read(_in(folder, METADATA), METADATA_BYTES)
    if not (raw.startswith(b"\x80") and raw.endswith(b".")):
        raise CheckpointBroken(f"{METADATA} is {'cut off' if raw else 'empty'}")
    needed = _needed(raw)
    if not needed:
        raise CheckpointBroken(f"{METADATA} names no file")
    for name, least in sorted(needed.items()):
        if name not in there:
            raise CheckpointBroken(f"{name} is missing, and {METADATA} lists it")
        size = place.size(_in(folder, name))
        if size < least:
            raise CheckpointBroken(f"{name} has {size} bytes, and needs at least {least}")


def _check(place: CheckpointRoot, folder: str) -> str:
    check_distributed(place, folder)
    return ""


def _needed(raw: bytes) -> dict[str, int]:
    """Return each listed file, and its minimum length."""
    named = {file_name.decode(): 1 for file_name in _PART_IN_BYTES.findall(raw)}
    if len(raw) > EXACT_BYTES:
        return named
    for name, end in _parts(atoms(io.BytesIO(raw), METADATA)):
        named[name] = max(named.get(name, 1), end)
    return named


def _parts(values: Iterator[Atom]) -> Iterator[tuple[str, int]]:
    """Return each part's file, and where the part ends in it."""
    known: dict[str, Atom] = {}
    field = ""
    for atom in values:
        if field:
            known[field], field = atom, ""
        elif atom in ("relative_path", "offset", "length"):
            field = str(atom)
        name, offset, length = (known.get(key) for key in ("relative_path", "offset", "length"))
        if isinstance(name, str) and isinstance(offset, int) and isinstance(length, int):
            known = {}
            if PART.fullmatch(name) and min(offset, length) >= 0:
                yield name, offset + length


def _in(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
