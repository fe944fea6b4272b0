"""PyTorch DDP that can be interrupted: on GPUs with NCCL, without any on processors with gloo.

Rank 0 keeps the last step that all ranks took in host memory, and saves it when a checkpoint is due, when nodeheal asks
for one, and on SIGTERM: on a thread of its own, because the main one hangs in a collective when a peer has died. The
loss of a step depends on nothing but the step, so a curve that was interrupted goes on exactly.
"""

import argparse
import contextlib
import copy
import json
import logging
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SEED, INPUTS, HIDDEN, BATCH = 20, 32, 64, 64
KEPT = 3
TERMINATED = 143
LOOK_SECONDS = 0.1
log = logging.getLogger("train")


def main() -> None:
    """Train to the last step, from wherever the last run came to."""
    options = arguments()
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank {rank} %(message)s")
    is_gpu = torch.cuda.is_available()
    device = torch.device("cuda", local) if is_gpu else torch.device("cpu")
    dist.init_process_group("nccl" if is_gpu else "gloo")
    torch.manual_seed(SEED)
    layers = torch.nn.Linear(INPUTS, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, 1)
    # DDP rebuilds its buckets after the first step of each start, and other buckets add up in another order: the last
    # digits of a resumed run would differ. With this it leaves them as they are, for some microseconds a step.
    is_exact = {"find_unused_parameters": True}
    network = torch.nn.Sequential(*layers).to(device)
    model = DistributedDataParallel(network, [local] if is_gpu else None, **is_exact)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    first = load(options.directory, model, optimizer, device)
    saver = Saver(options.directory) if rank == 0 else None
    note(options.directory, rank, event="resumed" if first else "started", step=first)
    for step in range(first + 1, options.steps + 1):
        show_step(step - 1)
        loss = take(step, rank, model, optimizer, device)
        if saver is not None:
            is_due = step % options.checkpoint_every == 0 or step == options.steps
            saver.took(step, {"step": step, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()})
            if is_due:
                saver.save("due")
        note(options.directory, rank, step=step, loss=loss)
        time.sleep(options.step_seconds)
    note(options.directory, rank, event="finished", step=options.steps)
    dist.destroy_process_group()


def take(step: int, rank: int, model: Any, optimizer: Any, device: Any) -> float:
    """One step on this rank's own samples; the mean loss of all ranks."""
    samples = torch.Generator().manual_seed(SEED + 1_000_003 * step + rank)
    inputs = torch.randn(BATCH, INPUTS, generator=samples).to(device)
    loss = torch.nn.functional.mse_loss(model(inputs), inputs.sin().sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean = loss.detach()
    dist.all_reduce(mean)
    return float(mean / dist.get_world_size())


class Saver:
    """Rank 0's checkpoints: whole files only, renamed into place."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._lock, self._ends = directory, threading.Lock(), threading.Event()
        self._latest: tuple[int, Any] | None = None
        self._saved = 0
        self._request = Path(os.environ.get("NODEHEAL_CHECKPOINT_DIR", "/run/nodeheal/checkpoint"))
        self._answered = self._asked()  # what an earlier run was asked is not for this one
        directory.mkdir(parents=True, exist_ok=True)
        signal.signal(signal.SIGTERM, lambda number, frame: self._ends.set())
        threading.Thread(target=self._listen, name="saver", daemon=True).start()

    def took(self, step: int, state: dict[str, Any]) -> None:
        """A step is whole. It is copied to the host, so that no half step is ever saved."""
        self._latest = (step, copy.deepcopy({name: on_host(value) for name, value in state.items()}))

    def save(self, why: str) -> None:
        """Write the latest step, unless it is written already."""
        with self._lock:
            if self._latest is None or self._latest[0] <= self._saved:
                return
            step, state = self._latest
            path = self._directory / f"step-{step:06d}.pt"
            fresh = path.with_name(f".{path.name}.new")
            with fresh.open("wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
            self._saved = step
            log.info("saved step %s (%s)", step, why)
            for old in sorted(self._directory.glob("step-*.pt"))[:-KEPT]:
                old.unlink()

    def _listen(self) -> None:
        while not self._ends.wait(LOOK_SECONDS):
            asked = self._asked()
            if asked is not None and asked != self._answered:
                self.save("asked for")
                self._answered = asked
        self.save("SIGTERM")
        os._exit(TERMINATED)

    def _asked(self) -> float | None:
        try:
            found = json.loads((self._request / f"{os.environ['NODEHEAL_JOB']}.json").read_text("utf-8"))
            return float(found["asked_at"]) if found["expires_at"] > time.time() else None
        except (OSError, ValueError, KeyError, TypeError):
            return None


def on_host(value: Any) -> Any:
    """The same with every tensor in host memory."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, dict):
        return {name: on_host(one) for name, one in value.items()}
    return [on_host(one) for one in value] if isinstance(value, list) else value


def load(directory: Path, model: Any, optimizer: Any, device: Any) -> int:
    """The step to go on from, by nodeheal's hint or the newest file that can be read; 0: from the beginning."""
    hint = os.environ.get("NODEHEAL_RESUME_FROM", "")
    for path in [*([Path(hint)] if hint else []), *sorted(directory.glob("step-*.pt"), reverse=True)]:
        try:
            state = torch.load(path, map_location=device, weights_only=True)
            model.module.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        except Exception as error:  # torn, or not ours: the one before is as good
            log.warning("%s cannot be read (%s); trying the one before", path, error)
            continue
        return int(state["step"])
    return 0


def show_step(taken: int) -> None:
    """Tell the node's agent that the job moves, and how far; nodeheal names the file. nodeheal.progress shows more."""
    if file := os.environ.get("NODEHEAL_PROGRESS_FILE"):
        with contextlib.suppress(OSError):  # not mounted: training goes on unwatched
            Path(file).write_text(json.dumps({"step": taken}), encoding="utf-8")


def note(directory: Path, rank: int, **what: object) -> None:
    """Rank 0's line of JSON for each step and each turn of events."""
    if rank == 0:
        line = {"run": int(os.environ.get("NODEHEAL_RUN", "0")), **what, "at": round(time.time(), 3)}
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "progress.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def arguments() -> argparse.Namespace:
    """The options, from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--checkpoint-every", type=int, default=100)
    parser.add_argument("--step-seconds", type=float, default=0.0, help="stretches a step")
    parser.add_argument("--directory", type=Path, required=True, help="for checkpoints, on a file system of all nodes")
    return parser.parse_args()


if __name__ == "__main__":
    main()
