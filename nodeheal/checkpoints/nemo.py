"""NeMo: `*.ckpt` files or folders, `*.nemo` archives, and a marker `NAME-unfinished` beside what is being written.

From nemo/lightning/pytorch/callbacks/model_checkpoint.py: the marker is named after the checkpoint without `.ckpt` and
`-EMA`, and is removed when it is whole. A folder is NeMo 2's (`weights/`, in the format of Megatron's core, and
`context/`), a distributed checkpoint itself, or NeMo 1's `mp_rank_*` / `tp_rank_*_pp_rank_*` with one file each.
exp_manager keeps them in `checkpoints/`.
"""

import re
from collections.abc import Sequence
from functools import partial

from nodeheal.checkpoints.files import check_nemo, check_torch
from nodeheal.checkpoints.found import Candidate, CheckpointBroken
from nodeheal.checkpoints.megatron import check_parallel
from nodeheal.checkpoints.place import CheckpointRoot
from nodeheal.checkpoints.ranks import check_ranks

UNFINISHED = "-unfinished"
KEPT_IN = "checkpoints"
_STEP = re.compile(r"(?:^|[-_])(?:global_)?step[=_-]?(\d{1,18})")
_SAMPLES = re.compile(r"consumed_samples=(\d{1,18})")
_RANK = re.compile(r"(?:mp_rank_(\d+)(?:_(\d+))?|tp_rank_(\d+)_pp_rank_(\d+))")


def candidates(place: CheckpointRoot, names: Sequence[str]) -> list[Candidate]:
    """Return those of the directory, and of its folder `checkpoints/`."""
    checkpoint_names = [name for name in names if _may_be(place, name)]
    if KEPT_IN in names and place.is_folder(KEPT_IN):
        inner = [f"{KEPT_IN}/{name}" for name in place.names(KEPT_IN)]
        checkpoint_names += [name for name in inner if _may_be(place, name)]
        names = [*names, *inner]
    markers = {name for name in names if name.endswith(UNFINISHED)}
    return [Candidate(name, _step(name), partial(_check, place, name, markers)) for name in checkpoint_names]


def _may_be(place: CheckpointRoot, name: str) -> bool:
    if name.endswith(UNFINISHED):
        return False
    if name.endswith((".ckpt", ".nemo")):
        return True
    return place.is_folder(f"{name}/weights") or ("step=" in name and place.is_folder(name))


def _step(name: str) -> int | None:
    match = _STEP.search(name) or _SAMPLES.search(name)
    return int(match[1]) if match else None


def _check(place: CheckpointRoot, name: str, markers: set[str]) -> str:
    marker = name.removesuffix(".ckpt").removesuffix("-EMA") + UNFINISHED
    if marker in markers:
        raise CheckpointBroken(f"it was not finished: {marker.rpartition('/')[2]} still exists")
    if name.endswith(".nemo"):
        return check_nemo(place, name)
    if not place.is_folder(name):
        check_torch(place, name)
        return ""
    if place.is_folder(f"{name}/weights"):
        return check_parallel(place, f"{name}/weights")
    return _check_ranks(place, name)


def _check_ranks(place: CheckpointRoot, folder: str) -> str:
    there = place.names(folder)
    ranks = check_ranks(there, _RANK, "ranks")
    if not ranks:
        return check_parallel(place, folder)
    for rank in ranks:
        files = [name for name in place.names(f"{folder}/{rank}") if name.endswith(".ckpt")]
        if not files:
            raise CheckpointBroken(f"{rank} contains no .ckpt")
        for name in files:
            check_torch(place, f"{folder}/{rank}/{name}")
    return ""
