"""Data-parallel training on AWS Trainium with PyTorch NeuronX, one process a NeuronCore: it can be interrupted.

Needs torch-neuronx. What differs from torchrun/train_ddp.py is the device, the backend, and that a step is run when its
graph is complete (mark_step).
"""

import argparse
import contextlib
import json
import logging
import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_backend  # noqa: F401  # registers the backend xla

SEED, INPUTS, HIDDEN, BATCH, KEPT = 20, 32, 64, 64, 3
TERMINATED = 143
log = logging.getLogger("train")


def main() -> None:
    """Train to the last step, from wherever the last run came to."""
    options, rank = arguments(), int(os.environ["RANK"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank {rank} %(message)s")
    ends: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: ends.append(number))
    dist.init_process_group("xla")
    device = xm.xla_device()
    torch.manual_seed(SEED)
    layers = torch.nn.Linear(INPUTS, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, 1)
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    first = load(options.directory, model, optimizer)
    for step in range(first + 1, options.steps + 1):
        show_step(step - 1)
        loss = take(step, rank, model, optimizer, device)
        is_due = step % options.checkpoint_every == 0 or step == options.steps
        if rank == 0 and (is_due or ends):
            save(options.directory, step, model, optimizer)
            note(options.directory, step=step, loss=float(loss))  # to read a loss costs a transfer: not at every step
        if ends:
            raise SystemExit(TERMINATED)


def take(step: int, rank: int, model: Any, optimizer: Any, device: Any) -> Any:
    """One step on this rank's own samples; gradients are averaged over all ranks."""
    samples = torch.Generator().manual_seed(SEED + 1_000_003 * step + rank)
    inputs = torch.randn(BATCH, INPUTS, generator=samples).to(device)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), inputs.sin().sum(1, keepdim=True))
    loss.backward()
    xm.optimizer_step(optimizer)
    xm.mark_step()
    return loss.detach()


def save(directory: Path, step: int, model: Any, optimizer: Any) -> None:
    """From the host, and renamed into place; what is oldest goes."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"step-{step:06d}.pt"
    fresh = path.with_name(f".{path.name}.new")
    state = {"step": step, "model": on_host(model.state_dict()), "optimizer": on_host(optimizer.state_dict())}
    torch.save(state, fresh)
    fresh.replace(path)
    log.info("saved step %s", step)
    for old in sorted(directory.glob("step-*.pt"))[:-KEPT]:
        old.unlink()


def on_host(value: Any) -> Any:
    """The same with every tensor in host memory."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {name: on_host(one) for name, one in value.items()}
    return [on_host(one) for one in value] if isinstance(value, list) else value


def load(directory: Path, model: Any, optimizer: Any) -> int:
    """The step to go on from, by nodeheal's hint or the newest file that can be read; 0: from the beginning."""
    hint = os.environ.get("NODEHEAL_RESUME_FROM", "")
    for path in [*([Path(hint)] if hint else []), *sorted(directory.glob("step-*.pt"), reverse=True)]:
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        except Exception as error:  # torn, or not ours: the one before is as good
            log.warning("%s cannot be read (%s); trying the one before", path, error)
            continue
        return int(state["step"])
    return 0


def note(directory: Path, **what: object) -> None:
    """A line of JSON for each checkpoint."""
    line = {"run": int(os.environ.get("NODEHEAL_RUN", "0")), **what, "at": round(time.time(), 3)}
    with (directory / "progress.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def show_step(taken: int) -> None:
    """Tell the node's agent that the job moves, and how far; nodeheal names the file. nodeheal.progress shows more."""
    if file := os.environ.get("NODEHEAL_PROGRESS_FILE"):
        with contextlib.suppress(OSError):  # not mounted: training goes on unwatched
            Path(file).write_text(json.dumps({"step": taken}), encoding="utf-8")


def arguments() -> argparse.Namespace:
    """The options, from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--checkpoint-every", type=int, default=100)
    parser.add_argument("--directory", type=Path, required=True, help="for checkpoints, on a file system of all nodes")
    return parser.parse_args()


if __name__ == "__main__":
    main()
