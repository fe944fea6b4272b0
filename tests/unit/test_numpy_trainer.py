"""The example job survives what nodeheal does to it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TRAIN = Path(__file__).resolve().parents[2] / "examples" / "numpy-trainer" / "train.py"
pytest.importorskip("numpy")

JOB = "drill"
Job = Callable[..., "list[subprocess.Popen[bytes]]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Job]:
    """Starts the ranks of a gang; what is left of them at the end is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def run(directory: Path, *, ranks: int = 2, run: int = 1, **options: object) -> "list[subprocess.Popen[bytes]]":
        gang = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        asked = {"NODEHEAL_JOB": JOB, "NODEHEAL_CHECKPOINT_DIR": str(directory)}
        arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        found = [
            subprocess.Popen(
                [sys.executable, str(TRAIN), f"--directory={directory}", *arguments],
                env={**os.environ, **gang, **asked, "RANK": str(rank), "NODEHEAL_RUN": str(run)},
                stderr=subprocess.DEVNULL,
            )
            for rank in range(ranks)
        ]
        started.extend(found)
        return found

    yield run
    for process in started:
        process.kill()
        process.wait()


def test_the_loss_falls_and_every_rank_ends_well(tmp_path: Path, start: Job) -> None:
    ranks = start(tmp_path, steps=60, checkpoint_every=20)

    codes = [rank.wait(60) for rank in ranks]

    losses = losses_by_step(tmp_path)
    assert codes == [0, 0]
    assert losses[60] < losses[1] / 2
    assert events(tmp_path) == [("started", 0), ("finished", 60)]


def test_a_killed_gang_resumes_from_its_last_checkpoint_and_comes_to_the_same_loss(tmp_path: Path, start: Job) -> None:
    undisturbed = start(tmp_path / "undisturbed", steps=80, checkpoint_every=10)
    assert [rank.wait(60) for rank in undisturbed] == [0, 0]
    disturbed = tmp_path / "disturbed"
    first, second = start(disturbed, steps=80, checkpoint_every=10, step_seconds=0.02)
    wait_for(lambda: max(losses_by_step(disturbed), default=0) >= 35)

    second.send_signal(signal.SIGABRT)
    second.wait(10)
    first.send_signal(signal.SIGTERM)
    code = first.wait(10)
    reached = max(losses_by_step(disturbed))
    again = start(disturbed, run=2, steps=80, checkpoint_every=10)

    assert code == 143
    assert [rank.wait(60) for rank in again] == [0, 0]
    resumed = dict(events(disturbed))["resumed"]
    assert reached - 10 <= resumed <= reached
    assert losses_by_step(disturbed)[80] == pytest.approx(losses_by_step(tmp_path / "undisturbed")[80], rel=1e-9)


def test_a_torn_checkpoint_is_skipped_for_the_one_before(tmp_path: Path, start: Job) -> None:
    (alone,) = start(tmp_path, ranks=1, steps=30, checkpoint_every=10)
    assert alone.wait(60) == 0
    newest = tmp_path / "step-000030.npz"
    newest.write_bytes(newest.read_bytes()[:100])

    (again,) = start(tmp_path, ranks=1, run=2, steps=30, checkpoint_every=10)

    assert again.wait(60) == 0
    assert ("resumed", 20) in events(tmp_path)


def test_a_rank_that_has_lost_its_peer_hangs_until_it_is_stopped(tmp_path: Path, start: Job) -> None:
    first, second = start(tmp_path, steps=10_000, checkpoint_every=1000, step_seconds=0.01)
    wait_for(lambda: len(losses_by_step(tmp_path)) > 3)

    first.kill()
    first.wait(10)
    time.sleep(0.3)

    assert second.poll() is None
    second.terminate()
    assert second.wait(10) == 143


def test_a_checkpoint_that_is_asked_for_brings_the_resumed_step_up_to_the_fault(tmp_path: Path, start: Job) -> None:
    first, second = start(tmp_path, steps=10_000, checkpoint_every=1000, step_seconds=0.01)
    wait_for(lambda: len(losses_by_step(tmp_path)) > 30)
    second.kill()  # from here on rank 0 hangs, as in a collective operation
    second.wait(10)
    time.sleep(0.2)
    at_fault = max(losses_by_step(tmp_path))

    ask(tmp_path, expires_in=60)

    wait_for(lambda: whole_checkpoints(tmp_path) == [at_fault])
    assert first.poll() is None  # it was asked, not stopped
    first.kill()  # so that nothing is saved on the way out
    first.wait(10)
    again = start(tmp_path, run=2, steps=at_fault + 5, checkpoint_every=1000)
    assert [rank.wait(60) for rank in again] == [0, 0]
    assert ("resumed", at_fault) in events(tmp_path)


def test_a_request_that_has_expired_or_was_for_an_earlier_run_is_not_answered(tmp_path: Path, start: Job) -> None:
    ask(tmp_path, expires_in=60)
    start(tmp_path, ranks=1, steps=10_000, checkpoint_every=9_999, step_seconds=0.01)
    wait_for(lambda: len(losses_by_step(tmp_path)) > 10)

    ask(tmp_path, expires_in=-1)
    time.sleep(0.5)

    assert whole_checkpoints(tmp_path) == []


def test_a_job_that_is_stopped_saves_its_last_whole_step_first(tmp_path: Path, start: Job) -> None:
    first, second = start(tmp_path, steps=10_000, checkpoint_every=1000, step_seconds=0.01)
    wait_for(lambda: len(losses_by_step(tmp_path)) > 10)

    for rank in (first, second):
        rank.terminate()

    assert [first.wait(10), second.wait(10)] == [143, 143]
    [saved] = whole_checkpoints(tmp_path)
    assert saved >= max(losses_by_step(tmp_path)) - 1  # a step may end between the checkpoint and the exit


def ask(directory: Path, expires_in: float) -> None:
    """As the agent of the node does."""
    request = {"job_id": JOB, "asked_at": time.time(), "expires_at": time.time() + expires_in}
    fresh = directory / f".{JOB}.new"
    fresh.write_text(json.dumps(request))
    fresh.replace(directory / f"{JOB}.json")


def whole_checkpoints(directory: Path) -> list[int]:
    """The steps of the checkpoints that are whole."""
    return sorted(int(path.stem.removeprefix("step-")) for path in directory.glob("step-*.sha256"))


def lines(directory: Path) -> list[dict[str, Any]]:
    path = directory / "progress.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def losses_by_step(directory: Path) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in lines(directory) if "loss" in line}


def events(directory: Path) -> list[tuple[str, int]]:
    return [(line["event"], line["step"]) for line in lines(directory) if "event" in line]


def wait_for(is_so: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
