"""Megatron-LM: `iter_0001000/` and `latest_checkpointed_iteration.txt`, which is written when everything is on disk.

From megatron/training/checkpointing.py: the tracker contains a number, or "release". A folder contains either
`mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt` (and distrib_optim.pt), or a distributed checkpoint, which is recognised by
its `metadata.json` (megatron/core/dist_checkpointing/core.py); older ones have `common.pt`.
"""

import re
from collections.abc import Sequence
from functools import partial

from nodeheal.checkpoints.files import check_torch
from nodeheal.checkpoints.found import Candidate, CheckpointBroken
from nodeheal.checkpoints.place import CheckpointRoot
from nodeheal.checkpoints.ranks import check_ranks
from nodeheal.checkpoints.torch_distributed import METADATA, UNFINISHED, check_distributed

TRACKER, RELEASE = "latest_checkpointed_iteration.txt", "release"
_FOLDER = re.compile(r"iter_(\d{7,18})")
_RANK = re.compile(r"mp_rank_(\d+)(?:_(\d+))?(?:_(\d+))?")
_CONFIG, _COMMON, _MODEL, _OPTIMIZER = "metadata.json", "common.pt", "model_optim_rng.pt", "distrib_optim.pt"


def candidates(place: CheckpointRoot, names: Sequence[str]) -> list[Candidate]:
    """Return every iteration, and a release where there is one."""
    tracked = _tracked(place) if TRACKER in names else None
    iterations = [(name, int(match[1])) for name in names if (match := _FOLDER.fullmatch(name))]
    each = [Candidate(name, step, partial(_check, place, name, step, tracked)) for name, step in iterations]
    if RELEASE in names and (TRACKER in names or iterations):
        each.append(Candidate(RELEASE, None, partial(_check_folder, place, RELEASE)))
    if TRACKER in names and not each:
        each.append(Candidate(TRACKER, None, partial(_missing, tracked)))
    return each


def check_parallel(place: CheckpointRoot, folder: str) -> str:
    """Check a folder in the format of Megatron's core, which other programs use as well. Raises CheckpointBroken."""
    there = place.names(folder)
    if _CONFIG in there or METADATA in there or UNFINISHED in there or any(name.endswith(".distcp") for name in there):
        return _check_distributed(place, folder, there)
    ranks = check_ranks(there, _RANK, "mp_rank")
    if not ranks:
        raise CheckpointBroken("it has neither mp_rank_* nor a distributed checkpoint")
    has_optimizers = any(place.is_file(f"{folder}/{rank}/{_OPTIMIZER}") for rank in ranks)
    for rank in ranks:
        check_torch(place, f"{folder}/{rank}/{_MODEL}")
        if has_optimizers:
            check_torch(place, f"{folder}/{rank}/{_OPTIMIZER}")
    return ""


def _check(place: CheckpointRoot, name: str, step: int, tracked: str | None) -> str:
    if tracked == RELEASE or (tracked is not None and tracked.isdecimal() and step > int(tracked)):
        raise CheckpointBroken(f"it was not finished: {TRACKER} still says {tracked}")
    remark = _check_folder(place, name)
    if tracked is None or not tracked.isdecimal():
        return f"{TRACKER} is {'missing' if tracked is None else 'torn'}: Megatron-LM itself finds no checkpoint"
    return remark


def _check_folder(place: CheckpointRoot, name: str) -> str:
    return check_parallel(place, name)


def _check_distributed(place: CheckpointRoot, folder: str, there: Sequence[str]) -> str:
    if _CONFIG not in there:
        raise CheckpointBroken(f"it was not finished: {_CONFIG} is missing")
    backend = place.json(f"{folder}/{_CONFIG}").get("sharded_backend")
    if _COMMON in there:
        check_torch(place, f"{folder}/{_COMMON}")
    if backend == "zarr":
        return "zarr: only its metadata.json was checked"
    check_distributed(place, folder)
    return ""


def _tracked(place: CheckpointRoot) -> str:
    """Return the tracker's content; "" for one that cannot be read."""
    try:
        content = place.text(TRACKER)
    except CheckpointBroken:
        return ""
    return content if content == RELEASE or re.fullmatch(r"[0-9]{1,18}", content) else ""


def _missing(tracked: str | None) -> str:
    raise CheckpointBroken(f"it says {tracked or 'nothing'}, and that folder does not exist")
