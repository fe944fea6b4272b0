"""Checkpoints of one file each: torch.save under any name, and the step-*.npz of examples/numpy-trainer."""

import hashlib
import re
from collections.abc import Sequence
from functools import partial

from nodeheal.checkpoints.files import check_npz, check_torch
from nodeheal.checkpoints.found import Candidate, CheckpointBroken
from nodeheal.checkpoints.place import CheckpointRoot, last_number

CHECKED_BYTES = 256 * 1024 * 1024  # a checksum reads all of a file, so only of smaller ones
FOLDERS_AT_MOST = 1_000
_TORCH = (".pt", ".pth", ".ckpt", ".bin", ".pt.tar", ".pth.tar")
_NPZ = re.compile(r"step-(\d{1,18})\.npz")
_UNFINISHED = re.compile(r"(?:^tmp|^\.|[._-](?:tmp|new|part|partial|incomplete|unfinished)$)", re.IGNORECASE)


def numpy_candidates(place: CheckpointRoot, names: Sequence[str]) -> list[Candidate]:
    """Return every step-N.npz."""
    steps = [(name, int(match[1])) for name in names if (match := _NPZ.fullmatch(name))]
    return [Candidate(name, step, partial(_check_numpy, place, name)) for name, step in steps]


def torch_candidates(place: CheckpointRoot, names: Sequence[str]) -> list[Candidate]:
    """Return every file with a name for torch.save, and every numbered folder with such files."""
    shown = [name for name in names if not name.startswith(".")]
    files = [name for name in shown if _is_torch(name) and place.is_file(name)]
    numbered = [name for name in shown if last_number(name) is not None and name not in files]
    folders = [name for name in numbered[-FOLDERS_AT_MOST:] if place.is_folder(name) and _parts(place, name)]
    each = [Candidate(name, last_number(_stem(name)), partial(_check_file, place, name)) for name in files]
    return each + [Candidate(name, last_number(name), partial(_check_folder, place, name)) for name in folders]


def _is_torch(name: str) -> bool:
    return name.endswith(_TORCH) or any(f"{ending}." in name for ending in _TORCH if _UNFINISHED.search(name))


def _stem(name: str) -> str:
    """Return the name without its suffix, which may contain a number."""
    return name.rpartition(".pt")[0] or name.rpartition(".")[0]


def _parts(place: CheckpointRoot, folder: str) -> list[str]:
    try:
        return [name for name in place.names(folder) if name.endswith(_TORCH)]
    except CheckpointBroken:
        return []


def _check_file(place: CheckpointRoot, name: str) -> str:
    if _UNFINISHED.search(name):
        raise CheckpointBroken("it was not finished: it still has its temporary name")
    check_torch(place, name)
    return ""


def _check_folder(place: CheckpointRoot, folder: str) -> str:
    if _UNFINISHED.search(folder):
        raise CheckpointBroken("it was not finished: it still has its temporary name")
    for name in _parts(place, folder):
        check_torch(place, f"{folder}/{name}")
    return "it is not known how many files it should have"


def _check_numpy(place: CheckpointRoot, name: str) -> str:
    checksum = f"{name.removesuffix('.npz')}.sha256"
    digest = place.text(checksum)
    if place.size(name) > CHECKED_BYTES:
        check_npz(place, name)
        return "too large for its checksum to be computed"
    with place.opened(name) as file:
        if hashlib.sha256(file.read()).hexdigest() != digest:
            raise CheckpointBroken("its checksum does not match: it is torn")
    check_npz(place, name)
    return ""
