"""Hugging Face transformers' Trainer: `checkpoint-N/`, with `trainer_state.json` written last.

From transformers/trainer.py, _save_checkpoint: it contains the model (safetensors or torch.save, in shards listed by an
index), optimizer and scheduler, and each rank's random state; with FSDP folders of distributed checkpoints; with
DeepSpeed `global_stepN/`, a file for each rank. Some versions use the name `tmp-checkpoint-N` during the write.
"""

import re
from collections.abc import Sequence
from functools import partial

from nodeheal.checkpoints.files import check_safetensors, check_torch
from nodeheal.checkpoints.found import Candidate, CheckpointBroken
from nodeheal.checkpoints.place import CheckpointRoot
from nodeheal.checkpoints.ranks import check_ranks
from nodeheal.checkpoints.torch_distributed import check_distributed

STATE = "trainer_state.json"
_FOLDER = re.compile(r"(tmp-)?checkpoint-(\d{1,18})")
_INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_WEIGHTS = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin")
_FSDP_WEIGHTS, _FSDP_OPTIMIZER = "pytorch_model_fsdp_0", "optimizer_0"
_OPTIMIZERS = ("optimizer.pt", "optimizer.bin")
_RANDOM = re.compile(r"rng_state_(\d+)\.pth")
_ZERO = re.compile(r"(?:\w*?zero_)?pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt")
_DEEPSPEED_MODEL = "model_states.pt"


def candidates(place: CheckpointRoot, names: Sequence[str]) -> list[Candidate]:
    """Return every checkpoint-N, and those under the temporary name of an unfinished write."""
    folders = [(name, match) for name in names if (match := _FOLDER.fullmatch(name))]
    return [
        Candidate(name, int(match[2]), _unfinished if match[1] else partial(_check, place, name, int(match[2])))
        for name, match in folders
    ]


def _unfinished() -> str:
    raise CheckpointBroken("it was not finished: it still has its temporary name")


def _check(place: CheckpointRoot, folder: str, step: int) -> str:
    there = set(place.names(folder))
    if STATE not in there:
        raise CheckpointBroken(f"it was not finished: {STATE}, written last, is missing")
    recorded_step = place.json(f"{folder}/{STATE}").get("global_step")
    if recorded_step != step:
        raise CheckpointBroken(f"{STATE} has step {recorded_step!r}"[:200])
    deepspeed = f"global_step{step}"
    if deepspeed in there:
        _check_deepspeed(place, folder, f"{folder}/{deepspeed}")
    else:
        _check_weights(place, folder, there)
        _check_optimizer(place, folder, there)
    return _check_rest(place, folder, there)


def _check_weights(place: CheckpointRoot, folder: str, there: set[str]) -> None:
    if _FSDP_WEIGHTS in there:
        check_distributed(place, f"{folder}/{_FSDP_WEIGHTS}")
        return
    files = [name for name in _WEIGHTS if name in there]
    for index in (name for name in _INDICES if name in there):
        shards = place.json(f"{folder}/{index}").get("weight_map")
        if not isinstance(shards, dict) or not shards:
            raise CheckpointBroken(f"{index} lists no shards")
        files += sorted({str(shard) for shard in shards.values()})
    if not files:
        raise CheckpointBroken("it has no weights")
    for name in files:
        _check_file(place, folder, name)


def _check_optimizer(place: CheckpointRoot, folder: str, there: set[str]) -> None:
    if _FSDP_OPTIMIZER in there:
        check_distributed(place, f"{folder}/{_FSDP_OPTIMIZER}")
        return
    files = [name for name in _OPTIMIZERS if name in there]
    if not files:
        raise CheckpointBroken(
            "it has no optimizer state: a run would not resume from it, but start again with these weights"
        )
    for name in files:
        _check_file(place, folder, name)


def _check_deepspeed(place: CheckpointRoot, folder: str, states: str) -> None:
    there = place.names(states)
    models = [name for name in there if name.endswith(_DEEPSPEED_MODEL)]
    if not models:
        raise CheckpointBroken("DeepSpeed's model states are missing")
    optimizers = check_ranks(there, _ZERO, "DeepSpeed's optimizer states")
    for name in [*models, *optimizers]:
        _check_file(place, states, name)


def _check_rest(place: CheckpointRoot, folder: str, there: set[str]) -> str:
    """Check the scheduler and the random state: if they exist, they must be whole."""
    ranks = check_ranks(there, _RANDOM, "rng_state")
    for name in [*ranks, *({"scheduler.pt", "rng_state.pth"} & there)]:
        _check_file(place, folder, name)
    has_random = bool(ranks) or "rng_state.pth" in there
    return "" if has_random else "it has no rng_state: a run resumes, but with other random numbers"


def _check_file(place: CheckpointRoot, folder: str, name: str) -> None:
    path = f"{folder}/{name}"
    if name.endswith(".safetensors"):
        check_safetensors(place, path)
    else:
        check_torch(place, path)
