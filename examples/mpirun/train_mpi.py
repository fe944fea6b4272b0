"""A small data-parallel training over MPI, with NumPy alone: it can be interrupted, and goes on where it was."""

import argparse
import contextlib
import hashlib
import io
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

SEED, INPUTS, BATCH, KEPT = 20, 16, 64, 3
TERMINATED = 143


def main() -> None:
    """Train to the last step, from wherever the last run came to."""
    options, everybody = arguments(), MPI.COMM_WORLD
    ends: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: ends.append(number))
    rank = everybody.Get_rank()
    first, weights = everybody.bcast(newest(options.directory) if rank == 0 else None)
    note(options.directory, rank, event="resumed" if first else "started", step=first)
    for step in range(first + 1, options.steps + 1):
        show_step(step - 1)
        loss, gradient = loss_and_gradient(weights, step, rank)
        mean = everybody.allreduce(np.array([loss, float(bool(ends)), *gradient])) / everybody.Get_size()
        weights = weights - 0.05 * mean[2:]
        is_over = mean[1] > 0  # one rank was asked to end, so all of them do: after this step
        if rank == 0 and (is_over or step % options.checkpoint_every == 0 or step == options.steps):
            save(options.directory, step, weights)
        note(options.directory, rank, step=step, loss=float(mean[0]))
        if is_over:
            raise SystemExit(TERMINATED)
        time.sleep(options.step_seconds)
    note(options.directory, rank, event="finished", step=options.steps)


def loss_and_gradient(weights: Any, step: int, rank: int) -> tuple[float, Any]:
    """Of a line through this rank's samples: they depend on nothing but the step and the rank."""
    samples = np.random.default_rng([SEED, step, rank])
    inputs = samples.standard_normal((BATCH, INPUTS))
    wrong = inputs @ weights - inputs @ np.arange(INPUTS)
    return float(np.mean(wrong**2)), 2 * inputs.T @ wrong / BATCH


def save(directory: Path, step: int, weights: Any) -> None:
    """A file and its checksum, each renamed into place; what is oldest goes."""
    buffer = io.BytesIO()
    np.savez(buffer, step=np.array(step), parameters=weights)
    path = directory / f"step-{step:06d}.npz"
    for file, body in ((path, buffer.getvalue()), (path.with_suffix(".sha256"), digest(buffer.getvalue()))):
        fresh = file.with_name(f".{file.name}.new")
        fresh.write_bytes(body)
        fresh.replace(file)
    for old in sorted(directory.glob("step-*.npz"))[:-KEPT]:
        old.with_suffix(".sha256").unlink(missing_ok=True)
        old.unlink()


def newest(directory: Path) -> tuple[int, Any]:
    """Step and weights of nodeheal's hint, or of the newest file that is whole."""
    directory.mkdir(parents=True, exist_ok=True)
    hint = os.environ.get("NODEHEAL_RESUME_FROM", "")
    for path in [*([Path(hint)] if hint else []), *sorted(directory.glob("step-*.npz"), reverse=True)]:
        checksum = path.with_suffix(".sha256")
        if path.is_file() and checksum.is_file() and checksum.read_bytes() == digest(path.read_bytes()):
            with np.load(path) as saved:
                return int(saved["step"]), saved["parameters"]
    return 0, np.zeros(INPUTS)


def digest(body: bytes) -> bytes:
    """As the checksum's file holds it."""
    return hashlib.sha256(body).hexdigest().encode()


def note(directory: Path, rank: int, **what: object) -> None:
    """Rank 0's line of JSON for each step and each turn of events."""
    if rank == 0:
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--checkpoint-every", type=int, default=100)
    parser.add_argument("--step-seconds", type=float, default=0.0, help="stretches a step")
    parser.add_argument("--directory", type=Path, required=True, help="for checkpoints, on a file system of all nodes")
    return parser.parse_args()


if __name__ == "__main__":
    main()
