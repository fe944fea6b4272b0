"""A small data-parallel training job: a two-layer network on synthetic data, gradients averaged over plain TCP.

It behaves as a real job does where recovery is concerned: the same result however often it is interrupted, atomic
checkpoints, a resume from the newest valid one, one more checkpoint when the node asks for it or the job is stopped,
and a prompt end on SIGTERM. Python, NumPy and nodeheal/progress.py are all it needs.

Environment: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, NODEHEAL_JOB, NODEHEAL_RUN, NODEHEAL_CHECKPOINT_DIR,
NODEHEAL_PROGRESS_FILE, and TRAINER_* for the options.
"""

import argparse
import contextlib
import hashlib
import io
import json
import logging
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: the matrices are small, and ranks share the machine
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from nodeheal import progress

Vector = NDArray[np.float64]

SEED = 20
INPUTS, HIDDEN, BATCH = 16, 32, 64
LEARNING_RATE = 0.05
JOIN_SECONDS = 60.0  # how long the ranks of a gang may take to find one another
LOST_PEER_SECONDS = 600.0  # as NCCL: a rank without its peer hangs this long unless somebody stops it
TERMINATED = 143
REQUESTS_DIRECTORY = "/run/nodeheal/checkpoint"
LOOK_SECONDS = 0.1  # how often rank 0 looks for a request
HEADER = struct.Struct("!Q")
HELLO = struct.Struct("!II")

logger = logging.getLogger("train")


@dataclass(frozen=True)
class Options:
    """What to train, and where progress is kept."""

    steps: int
    checkpoint_every: int
    step_seconds: float
    directory: Path
    rank: int
    world_size: int
    master: tuple[str, int]
    run: int
    kept: int  # checkpoints
    overflow_at: int  # the step of the first run whose update is not finite; 0: none
    resume_from: Path | None  # the checkpoint that nodeheal names; None: the newest
    request: Path | None  # where this node's agent asks for a checkpoint


class PeerLost(Exception):
    """Another rank of the gang has gone."""


class Gang:
    """All ranks of the job. Rank 0 is the hub: it collects gradients, averages them, and sends the mean to all."""

    def __init__(self, options: Options) -> None:
        self._rank = options.rank
        self._world_size = options.world_size
        self._peers: list[socket.socket] = []
        if options.world_size > 1:
            self._peers = _accept_all(options) if options.rank == 0 else [_join(options)]

    def share(self, mine: Vector) -> Vector:
        """Rank 0's vector, on every rank."""
        with _losing_a_peer():
            if self._rank != 0:
                return _receive(self._peers[0])
            for peer in self._peers:
                _send(peer, mine)
        return mine

    def mean(self, mine: Vector) -> Vector:
        """The mean of every rank's vector: the same bits on every rank, whatever the order of arrival."""
        with _losing_a_peer():
            if self._rank != 0:
                _send(self._peers[0], mine)
                return _receive(self._peers[0])
            total = mine.copy()
            for peer in self._peers:
                total += _receive(peer)
            total /= self._world_size
            for peer in self._peers:
                _send(peer, total)
        return total


def _accept_all(options: Options) -> list[socket.socket]:
    """Rank 0: one connection for each other rank, in order of rank."""
    joined: dict[int, socket.socket] = {}
    with socket.create_server(options.master) as server:
        server.settimeout(JOIN_SECONDS)
        while len(joined) < options.world_size - 1:
            peer, _ = server.accept()
            peer.settimeout(JOIN_SECONDS)
            rank, run = HELLO.unpack(_read(peer, HELLO.size))
            if run != options.run:  # a straggler of an earlier run
                peer.close()
                continue
            joined[rank] = _ready(peer)
    return [joined[rank] for rank in sorted(joined)]


def _join(options: Options) -> socket.socket:
    """Any other rank: a connection to rank 0, which may start later than we do."""
    deadline = time.monotonic() + JOIN_SECONDS
    while True:
        try:
            peer = socket.create_connection(options.master, timeout=JOIN_SECONDS)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
            continue
        peer.sendall(HELLO.pack(options.rank, options.run))
        return _ready(peer)


def _ready(peer: socket.socket) -> socket.socket:
    peer.settimeout(LOST_PEER_SECONDS)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def _send(peer: socket.socket, vector: Vector) -> None:
    body = vector.astype(">f8").tobytes()
    peer.sendall(HEADER.pack(len(body)) + body)


def _receive(peer: socket.socket) -> Vector:
    (size,) = HEADER.unpack(_read(peer, HEADER.size))
    return np.frombuffer(_read(peer, size), dtype=">f8").astype(np.float64)


def _read(peer: socket.socket, size: int) -> bytes:
    body = b""
    while len(body) < size:
        part = peer.recv(size - len(body))
        if not part:
            raise ConnectionError("closed")
        body += part
    return body


@contextlib.contextmanager
def _losing_a_peer() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PeerLost(str(error)) from error


def parameters_at_start() -> Vector:
    """The untrained network: the same on every run."""
    random = np.random.default_rng(SEED)
    return np.concatenate([random.normal(0, 0.3, INPUTS * HIDDEN), np.zeros(HIDDEN), random.normal(0, 0.3, HIDDEN)])


def loss_and_gradient(parameters: Vector, step: int, rank: int) -> tuple[float, Vector]:
    """One rank's share of a step. What it draws depends on step and rank alone: a repeated step is the same."""
    random = np.random.default_rng([SEED, step, rank])
    x = random.normal(size=(BATCH, INPUTS))
    wanted = np.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]
    split = INPUTS * HIDDEN
    w1, b1, w2 = parameters[:split].reshape(INPUTS, HIDDEN), parameters[split : split + HIDDEN], parameters[-HIDDEN:]
    hidden = np.tanh(x @ w1 + b1)
    error = hidden @ w2 - wanted
    slope = np.outer(error, w2) * (1 - hidden**2) / BATCH
    gradient = np.concatenate([(x.T @ slope).ravel(), slope.sum(axis=0), hidden.T @ error / BATCH])
    return float(np.mean(error**2)), gradient


class Checkpoints:
    """Checkpoints in a directory. Each is whole or not there; one that fails its checksum does not count."""

    def __init__(self, directory: Path, kept: int) -> None:
        self._directory = directory
        self._kept = kept
        self._lock = threading.Lock()
        self._saved = -1
        directory.mkdir(parents=True, exist_ok=True)

    def save(self, step: int, parameters: Vector) -> None:
        """Write one, then forget the oldest. Whoever comes with a step that is saved already has nothing to do."""
        with self._lock:
            if step > self._saved:
                self._write(step, parameters)
                self._saved = step

    def _write(self, step: int, parameters: Vector) -> None:
        buffer = io.BytesIO()
        np.savez(buffer, step=np.array(step), parameters=parameters)
        body = buffer.getvalue()
        path = self._directory / f"step-{step:06d}.npz"
        _write_whole(path, body)
        _write_whole(path.with_suffix(".sha256"), hashlib.sha256(body).hexdigest().encode())
        for old in sorted(self._directory.glob("step-*.npz"))[: -self._kept]:
            old.with_suffix(".sha256").unlink(missing_ok=True)
            old.unlink()

    def newest(self, wanted: Path | None) -> tuple[int, Vector] | None:
        """Step and parameters of the wanted one, or of the newest valid one."""
        for path in [wanted] if wanted else sorted(self._directory.glob("step-*.npz"), reverse=True):
            body, checksum = path.read_bytes(), path.with_suffix(".sha256")
            if not checksum.exists() or checksum.read_text() != hashlib.sha256(body).hexdigest():
                logger.warning("checkpoint %s is torn; trying the one before", path.name)
                continue
            with np.load(io.BytesIO(body)) as saved:
                return int(saved["step"]), saved["parameters"]
        return None


def _write_whole(path: Path, body: bytes) -> None:
    """A reader sees the old file or the new one, also after a power loss."""
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


class Listener:
    """Rank 0's ear: it saves the last whole step at once when it is asked to, and before the job ends on SIGTERM.

    On a thread of its own: the main one may hang in a collective operation just then, because a peer has died.
    """

    def __init__(self, checkpoints: Checkpoints, request: Path | None) -> None:
        self._latest: tuple[int, Vector] | None = None
        self._checkpoints = checkpoints
        self._request = request
        self._answered = self._asked()  # what an earlier run was asked is not for this one
        self._ends = threading.Event()

    def start(self) -> None:
        """Listen until the process ends."""
        signal.signal(signal.SIGTERM, lambda number, frame: self._ends.set())
        threading.Thread(target=self._listen, name="listener", daemon=True).start()

    def took(self, step: int, parameters: Vector, is_due: bool) -> None:
        """A step is whole; it is saved now if a checkpoint is due, and whenever somebody asks."""
        self._latest = (step, parameters)  # as a whole, so that no half step is ever saved
        if is_due:
            self._checkpoints.save(step, parameters)

    def _listen(self) -> None:
        while not self._ends.wait(LOOK_SECONDS):
            asked = self._asked()
            if asked is not None and asked != self._answered:
                self._save("asked for")
                self._answered = asked
        self._save("SIGTERM:")
        os._exit(TERMINATED)

    def _save(self, why: str) -> None:
        if self._latest is not None:
            logger.info("%s a checkpoint at step %s", why, self._latest[0])
            self._checkpoints.save(*self._latest)

    def _asked(self) -> float | None:
        """When the newest request was made, if it still holds."""
        try:
            found = json.loads(self._request.read_text(encoding="utf-8")) if self._request else {}
            return float(found["asked_at"]) if found["expires_at"] > time.time() else None
        except (OSError, ValueError, KeyError, TypeError):
            return None


class Progress:
    """One line of JSON for each step and each turn of events. A run that nobody has numbered follows the last one."""

    def __init__(self, path: Path, run: int) -> None:
        self._path = path
        self._run = run or self._last_run() + 1

    def _last_run(self) -> int:
        lines = self._path.read_text("utf-8").splitlines() if self._path.exists() else []
        return int(json.loads(lines[-1])["run"]) if lines else 0

    def note(self, **what: object) -> None:
        """Append a line in one write."""
        line = json.dumps({"run": self._run, **what, "at": round(time.time(), 3)})
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


Note = Callable[..., None]


def _keep_no_books(**what: object) -> None:
    """Progress of every rank but 0."""


def train(options: Options) -> None:
    """Train to the last step, from wherever the last run came to."""
    gang = Gang(options)
    checkpoints = Checkpoints(options.directory, options.kept) if options.rank == 0 else None
    listener = Listener(checkpoints, options.request) if checkpoints is not None else None
    note: Note = _keep_no_books
    state = np.concatenate([[0.0], parameters_at_start()])
    if checkpoints is not None:
        note = Progress(options.directory / "progress.jsonl", options.run).note
        saved = checkpoints.newest(options.resume_from)
        if saved is not None:
            state = np.concatenate([[float(saved[0])], saved[1]])
        note(event="resumed" if saved else "started", step=int(state[0]))
    state = gang.share(state)
    first, parameters = int(state[0]), state[1:].copy()
    logger.info("run %s goes on from step %s of %s", options.run, first, options.steps)
    if listener is not None:
        listener.start()
    shown = progress.Progress()
    shown.ready()
    for step in range(first + 1, options.steps + 1):
        began = time.monotonic()
        loss, gradient = loss_and_gradient(parameters, step, options.rank)
        shown.waits()
        mean = gang.mean(np.concatenate([[loss], gradient]))
        rate = np.inf if options.run == 1 and step == options.overflow_at else LEARNING_RATE
        parameters = parameters - rate * mean[1:]
        is_due = step % options.checkpoint_every == 0 or step == options.steps
        if listener is not None:
            listener.took(step, parameters, is_due)
        note(step=step, loss=float(mean[0]))
        shown.step(step, loss=float(mean[0]))
        if is_due:
            if listener is not None:  # the others have written nothing
                shown.saved(step)
            logger.info("step %s of %s, loss %.4f", step, options.steps, mean[0])
        time.sleep(max(0.0, options.step_seconds - (time.monotonic() - began)))
    note(event="finished", step=options.steps)


def options_from(arguments: list[str] | None, environment: "os._Environ[str]") -> Options:
    """Options from the command line, else from TRAINER_*; the gang from what the scheduler set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    get = environment.get
    parser.add_argument("--steps", type=int, default=int(get("TRAINER_STEPS", "200")))
    parser.add_argument("--checkpoint-every", type=int, default=int(get("TRAINER_CHECKPOINT_EVERY", "20")))
    parser.add_argument("--step-seconds", type=float, default=float(get("TRAINER_STEP_SECONDS", "0")))
    parser.add_argument("--directory", type=Path, default=Path(get("TRAINER_DIRECTORY", "checkpoints")))
    parser.add_argument("--keep", type=int, default=3, metavar="N", help="checkpoints that are kept")
    parser.add_argument(
        "--overflow-at", type=int, default=0, metavar="STEP", help="the update of this step overflows, in the first run"
    )
    given = parser.parse_args(arguments)
    requests = Path(get("NODEHEAL_CHECKPOINT_DIR", REQUESTS_DIRECTORY))
    return Options(
        steps=given.steps,
        checkpoint_every=given.checkpoint_every,
        step_seconds=given.step_seconds,
        directory=given.directory,
        rank=int(get("RANK", "0")),
        world_size=int(get("WORLD_SIZE", "1")),
        master=(get("MASTER_ADDR", "127.0.0.1"), int(get("MASTER_PORT", "29500"))),
        run=int(get("NODEHEAL_RUN", "0")),
        kept=given.keep,
        overflow_at=given.overflow_at,
        resume_from=Path(get("NODEHEAL_RESUME_FROM", "")) if get("NODEHEAL_RESUME_FROM") else None,
        request=requests / f"{get('NODEHEAL_JOB')}.json" if get("NODEHEAL_JOB") else None,
    )


def main(arguments: list[str] | None = None) -> int:
    """0 when done, 143 on SIGTERM, 1 when a peer was lost and nobody stopped us."""
    # At once, but for rank 0 when it trains: a checkpoint is renamed into place or not there at all.
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(TERMINATED))
    options = options_from(arguments, os.environ)
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank {options.rank} %(message)s")
    try:
        train(options)
    except PeerLost as error:
        logger.error("a peer is gone (%s): hanging as a collective does, until somebody stops this rank", error)
        time.sleep(LOST_PEER_SECONDS)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
