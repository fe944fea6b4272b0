"""NeuronX Distributed: a folder for each tag, marked by the files `checkpoint` (begun) and `done` (all on disk).

From neuronx_distributed/trainer/checkpoint.py: `done` is removed first when a checkpoint is deleted. `model/` and
`optim/` contain `dp_rank_DD_tp_rank_TT_pp_rank_PP.pt` of every rank, with `.tensors/` beside it where XLA's
serialization is used. Older versions name the newest tag in `newest` instead of marking each.
"""

import re
from collections.abc import Sequence
from functools import partial

from nodeheal.checkpoints.files import check_torch
from nodeheal.checkpoints.found import Candidate, CheckpointBroken
from nodeheal.checkpoints.place import CheckpointRoot, last_number
from nodeheal.checkpoints.ranks import check_ranks

BEGUN, DONE, NEWEST = "checkpoint", "done", "newest"
_PARTS = ("model", "optim")
_RANK = re.compile(r"dp_rank_(\d+)_tp_rank_(\d+)_pp_rank_(\d+)\.pt")


def candidates(place: CheckpointRoot, names: Sequence[str]) -> list[Candidate]:
    """Return every tag."""
    has_newest = NEWEST in names and place.is_file(NEWEST)
    tags = [name for name in names if name != NEWEST and _is_tag(place, name, has_newest)]
    newest = place.text(NEWEST) if has_newest and not any(place.is_file(f"{tag}/{DONE}") for tag in tags) else None
    return [Candidate(tag, last_number(tag), partial(_check, place, tag, newest)) for tag in tags]


def _is_tag(place: CheckpointRoot, name: str, has_newest: bool) -> bool:
    is_marked = any(place.is_file(f"{name}/{marker}") for marker in (BEGUN, DONE))
    return is_marked or (has_newest and any(place.is_folder(f"{name}/{part}") for part in _PARTS))


def _check(place: CheckpointRoot, tag: str, newest: str | None) -> str:
    if newest is None and not place.is_file(f"{tag}/{DONE}"):
        raise CheckpointBroken(f"it was not finished, or is being deleted: {DONE} is missing")
    if newest is not None and _is_after(tag, newest):
        raise CheckpointBroken(f"it was not finished: {NEWEST} still says {newest}")
    parts = [part for part in _PARTS if place.is_folder(f"{tag}/{part}")]
    if not parts:
        raise CheckpointBroken("it has neither model/ nor optim/")
    for part in parts:
        _check_part(place, f"{tag}/{part}")
    for name in ("scheduler.pt", "user_content.pt"):
        if place.is_file(f"{tag}/{name}"):
            check_torch(place, f"{tag}/{name}")
    return "" if "optim" in parts else "no optim/: a run can start with these weights, but not resume"


def _check_part(place: CheckpointRoot, folder: str) -> None:
    there = place.names(folder)
    ranks = check_ranks(there, _RANK, folder.rpartition("/")[2])
    if not ranks:
        raise CheckpointBroken(f"{folder.rpartition('/')[2]}/ contains no rank's file")
    has_tensors = any(name.endswith(".tensors") for name in there)
    for name in ranks:
        check_torch(place, f"{folder}/{name}")
        if has_tensors and not place.names(f"{folder}/{name}.tensors"):
            raise CheckpointBroken(f"{name}.tensors is empty")


def _is_after(tag: str, newest: str) -> bool:
    mine, last = last_number(tag), last_number(newest)
    return tag != newest and (mine is None or last is None or mine > last)
