"""PyTorch FSDP that can be interrupted: on GPUs with NCCL, without any on processors with gloo.

Every rank writes its own shards with torch.distributed.checkpoint, so that no rank ever holds the whole state. The
checkpoint's `.metadata` is written last: a folder without it was not finished.
"""

import argparse
import logging
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

SEED, INPUTS, HIDDEN, BATCH = 20, 32, 256, 64
log = logging.getLogger("train")


def main() -> None:
    """Train to the last step, from wherever the last run came to."""
    options = arguments()
    is_gpu = torch.cuda.is_available()
    if is_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if is_gpu else "gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank {rank} %(message)s")
    device = "cuda" if is_gpu else "cpu"
    torch.manual_seed(SEED)
    model = torch.nn.Sequential(torch.nn.Linear(INPUTS, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, 1)).to(device)
    fully_shard(model, mesh=init_device_mesh(device, (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first = load(options.directory, model, optimizer)
    log.info("goes on from step %s of %s", first, options.steps)
    for step in range(first + 1, options.steps + 1):
        loss = take(step, rank, model, optimizer, device)
        if step % options.save_every == 0 or step == options.steps:
            save(options.directory / f"step-{step:06d}", step, model, optimizer)
            log.info("step %s of %s, loss %.6f", step, options.steps, loss)
        time.sleep(options.step_seconds)
    dist.destroy_process_group()


def take(step: int, rank: int, model: Any, optimizer: Any, device: str) -> float:
    """One step on this rank's own samples, which depend on step and rank alone; the rank's loss."""
    samples = torch.Generator().manual_seed(SEED + 1_000_003 * step + rank)
    inputs = torch.randn(BATCH, INPUTS, generator=samples).to(device)
    loss = torch.nn.functional.mse_loss(model(inputs), inputs.sin().sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def save(path: Path, step: int, model: Any, optimizer: Any) -> None:
    """All ranks together: each writes its shards, then rank 0 the list of them."""
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": moments, "step": step}, checkpoint_id=path)


def load(directory: Path, model: Any, optimizer: Any) -> int:
    """The step to go on from, by nodeheal's hint or the newest folder that was finished; 0: from the beginning."""
    finished = sorted(directory.glob("step-*/.metadata"))
    path = os.environ.get("NODEHEAL_RESUME_FROM") or (finished[-1].parent if finished else None)
    if path is None:
        return 0
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "step": 0}
    dcp.load(state, checkpoint_id=path)  # into the tensors that are there
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return int(state["step"])


def arguments() -> argparse.Namespace:
    """The options, from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--save-every", type=int, default=500, help="steps between two checkpoints")
    parser.add_argument("--step-seconds", type=float, default=0.0, help="stretches a step")
    parser.add_argument("--directory", type=Path, required=True, help="for checkpoints, on a file system of all nodes")
    return parser.parse_args()


if __name__ == "__main__":
    main()
