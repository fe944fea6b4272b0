"""What a training program shows of itself, as the agent reads it."""

import ast
import json
import math
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from nodeheal import progress as module
from nodeheal.agent.runtime.training_files import FILE_BYTES, StepRecord, files_by_run, records_in
from nodeheal.agent.runtime.trainings import Trainings
from nodeheal.contract import names
from nodeheal.contract.training import ENDED
from nodeheal.progress import Progress

SOURCE = Path(module.__file__).read_text("utf-8")


class Times:
    """Both clocks that the module reads."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1_796_000_000.0 + self.now


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    times = Times()
    monkeypatch.setattr(module, "time", times)
    return times


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file of local rank 0."""
    for name in ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / Path(names.progress_file("llama", 2, 900)).name
    monkeypatch.setenv(names.PROGRESS_VARIABLE, str(file))
    return file


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def records(file: Path) -> list[StepRecord]:
    return sorted(records_in(file.read_bytes()), key=lambda record: record.order)


def test_a_step_is_shown_with_what_the_program_knows_of_it(file: Path, times: Times) -> None:
    progress = Progress()
    progress.step(2036, loss=2.5)
    times.now += 0.75

    progress.step(2037, loss=2.25, compute_seconds=0.5, tokens=8_192)

    assert lines(file) == [
        {"step": 2036, "at": 1_796_001_000.0, "loss": 2.5},
        {
            "step": 2037,
            "at": 1_796_001_000.75,
            "step_seconds": 0.75,
            "compute_seconds": 0.5,
            "loss": 2.25,
            "tokens": 8_192,
        },
    ]


def test_a_pause_counts_for_no_step_and_is_shown_while_it_lasts(file: Path, times: Times) -> None:
    progress = Progress()
    progress.step(1)
    times.now += 1.0
    with progress.pause("Evaluation 2"):
        during = lines(file)[-1]
        times.now += 100.0
        with progress.pause("checkpoint"):
            inside = lines(file)[-1]
            times.now += 10.0
    after = lines(file)[-1]
    times.now += 0.5

    progress.step(2)
    times.now += 3.0
    progress.step(3)

    assert (during["step"], during["pause"], inside["pause"]) == (1, "evaluation", "checkpoint")
    assert "pause" not in after
    assert [line["step_seconds"] for line in lines(file) if "step_seconds" in line] == [1.5, 3.0]


def test_a_block_that_raises_ends_its_pause(file: Path, times: Times) -> None:
    progress = Progress()
    progress.step(1)
    with pytest.raises(RuntimeError, match="evaluation"), progress.pause("evaluation"):
        times.now += 5.0
        raise RuntimeError("evaluation")
    times.now += 1.0

    progress.step(2)

    assert lines(file)[-1]["step_seconds"] == 1.0


def test_a_rank_that_waits_is_shown_until_its_step_is_done_with_its_own_work(file: Path, times: Times) -> None:
    progress = Progress()
    progress.waits()
    progress.step(1)
    with progress.pause("evaluation"):
        times.now += 10.0
    times.now += 0.25
    progress.waits()
    progress.saved(1)
    times.now += 0.5

    progress.step(2)
    progress.step(3, compute_seconds=0.125)

    assert [record.waits for record in records(file)] == [False, False, False, True, True, False, False]
    assert [record.compute_seconds for record in records(file)[-2:]] == [0.25, 0.125]


def test_a_loss_that_is_no_number_is_shown_with_the_last_step_of_which_it_was_one(file: Path) -> None:
    progress = Progress()
    progress.step(1, loss=math.nan)
    progress.step(2, loss=2.0)
    progress.step(3)
    progress.step(4, loss=math.inf)
    progress.step(5, loss=math.nan)
    progress.step(6, loss=1.0)

    assert [record.good_step for record in records(file)] == [None, None, None, 2, 2, None]


def test_a_checkpoint_is_shown_from_then_on(file: Path, times: Times) -> None:
    progress = Progress()
    progress.step(100)
    progress.saved(100)
    times.now += 2.0

    progress.step(101)

    assert [record.saved for record in records(file)] == [None, 100, 100]
    assert records(file)[-1].saved_at == 1_796_001_000.0


def test_a_loss_that_is_not_finite_is_no_number(file: Path) -> None:
    progress = Progress()
    for step, loss in enumerate((math.nan, math.inf, -math.inf, 10.0**40)):
        progress.step(step, loss=loss)

    assert [line["loss"] for line in lines(file)] == ["nan", "nan", "nan", 1e40]
    assert all(math.isnan(record.loss or 0.0) for record in records(file))


class OfFramework:
    """A number of a framework that cannot be read."""

    def __float__(self) -> float:
        raise RuntimeError("the device is lost")

    def __int__(self) -> int:
        raise RuntimeError("the device is lost")


@pytest.mark.parametrize("value", [None, "much", [1], OfFramework(), 10**400])
def test_what_is_no_number_is_left_out_and_stops_no_training(file: Path, value: Any) -> None:
    progress = Progress()
    progress.step(5)

    progress.step(value, loss=value, compute_seconds=value, tokens=value)
    progress.saved(value)

    assert {line["step"] for line in lines(file)} == {5}
    assert not {"loss", "compute_seconds", "tokens", "saved"} & {key for line in lines(file) for key in line}


@pytest.mark.parametrize(("step", "shown"), [(0, 0), (10**18 - 1, 10**18 - 1), (10**18, 7), (-1, 7)])
def test_a_step_has_at_most_eighteen_digits(file: Path, step: int, shown: int) -> None:
    progress = Progress()
    progress.step(7)
    progress.step(step)

    assert lines(file)[1]["step"] == shown


def test_a_line_of_the_largest_values_is_a_whole_one(file: Path, times: Times) -> None:
    progress = Progress()
    most = 10**18 - 1
    progress.saved(most)
    progress.step(most, loss=-1.234567e-100, compute_seconds=1.234567e-100, tokens=most)
    times.now += 1.234567e-7
    with progress.pause("a" * 99):
        progress.step(most, loss=-1.234567e-100, compute_seconds=1.234567e-100, tokens=most)

    content = file.read_bytes()
    assert {len(line) for line in content.splitlines(keepends=True)} == {192}
    assert [line["step"] for line in lines(file)] == [most] * 4
    assert (lines(file)[2]["pause"], lines(file)[2]["loss"]) == ("a" * 16, -1.234567e-100)


def test_a_line_holds_every_value_of_a_usual_training(file: Path, times: Times) -> None:
    progress = Progress()
    progress.step(10_000_000)
    progress.saved(10_000_000)
    times.now += 123.4567891
    progress.step(10_000_001, loss=0.0001234567891, compute_seconds=100.12345678, tokens=16_777_216)

    keys = {"step", "at", "step_seconds", "compute_seconds", "loss", "tokens", "saved", "saved_at"}
    assert set(lines(file)[-1]) == keys


def test_the_file_is_a_ring_of_the_last_steps(file: Path) -> None:
    progress = Progress()
    for step in range(1_000):
        progress.step(step)

    assert file.stat().st_size == FILE_BYTES
    assert [record.step for record in records(file)] == list(range(936, 1_000))


def test_a_program_that_is_ready_has_touched_an_empty_file(file: Path) -> None:
    file.write_text("of an earlier attempt")
    progress = Progress()

    progress.ready()
    os.utime(file, (1, 1))
    progress.saved(5)

    assert file.read_bytes() == b""
    assert file.stat().st_mtime > 1


def test_nothing_is_written_before_the_first_call(file: Path) -> None:
    Progress()

    assert not file.exists()


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, 0),
        ({"LOCAL_RANK": "0"}, 0),
        ({"LOCAL_RANK": "3"}, 3),
        ({"SLURM_LOCALID": "4"}, 4),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "5"}, 5),
        ({"LOCAL_RANK": "1", "SLURM_LOCALID": "0"}, 1),
        ({"LOCAL_RANK": "none", "SLURM_LOCALID": "2"}, 2),
    ],
)
@pytest.mark.parametrize("limit_seconds", [None, 900])
def test_each_local_rank_has_a_file_of_its_own(
    file: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], rank: int, limit_seconds: int | None
) -> None:
    of_rank_0 = file.with_name(Path(names.progress_file("llama", 2, limit_seconds)).name)
    monkeypatch.setenv(names.PROGRESS_VARIABLE, str(of_rank_0))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    Progress().step(1)

    [(run, ranks)] = files_by_run(file.parent)
    assert (run, ranks) == ("llama/2", {rank: file.with_name(f"llama.2.{rank}.steps") if rank else of_rank_0})


def test_without_the_variable_nothing_happens(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(names.PROGRESS_VARIABLE)

    shows_everything(Progress())

    assert list(tmp_path.iterdir()) == []


def shows_everything(progress: Progress) -> None:
    progress.ready()
    progress.step(1, loss=1.0)
    with progress.pause("evaluation"):
        progress.saved(1)


def test_a_folder_that_is_not_mounted_stops_no_training(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(names.PROGRESS_VARIABLE, str(tmp_path / "gone" / file.name))
    progress = Progress()
    shows_everything(progress)
    (tmp_path / "gone").mkdir()

    progress.step(2)

    assert [record.step for record in records(tmp_path / "gone" / file.name)] == [2]


def test_a_link_is_not_followed(file: Path, tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("precious")
    file.symlink_to(tmp_path / "weights")

    shows_everything(Progress())

    assert (tmp_path / "weights").read_text() == "precious"


def test_a_full_folder_stops_no_training(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Progress()
    progress.step(1)

    def no_space(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", no_space)
    progress.step(2)
    monkeypatch.undo()
    progress.step(3)

    assert [record.step for record in records(file)] == [1, 3]


def test_a_thread_may_show_its_checkpoints_while_the_program_trains(file: Path) -> None:
    progress = Progress()
    progress.ready()

    def save() -> None:
        for step in range(500):
            progress.saved(step)

    saver = threading.Thread(target=save)
    saver.start()
    for step in range(500):
        with progress.pause("data"):
            progress.step(step)
    saver.join()

    assert len(records(file)) == 64
    assert records(file)[-1].saved == 499


def test_the_module_runs_alone_in_an_old_image() -> None:
    tree = ast.parse(SOURCE, feature_version=(3, 8))

    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports}
    assert {str(name).partition(".")[0] for name in modules} <= sys.stdlib_module_names
    assert "from __future__ import annotations\n" in SOURCE, "or `float | None` is evaluated"


PROGRAM = """
import os
from nodeheal.progress import Progress
progress = Progress()
{shows}
child = os.fork()
if child == 0:
    raise SystemExit  # as a worker that loads data does, whose end is not that of the training
os.waitpid(child, 0)
{ends}
"""


def program(file: Path, shows: str, ends: str) -> list[StepRecord]:
    """The records that a program has left."""
    subprocess.run([sys.executable, "-c", PROGRAM.format(shows=shows, ends=ends)], check=False, capture_output=True)
    return records(file) if file.exists() else []


@pytest.mark.parametrize("ends", ["", "raise RuntimeError", "progress.pause('evaluation').__enter__()"])
def test_a_program_that_has_ended_says_so_however_it_ends(file: Path, ends: str) -> None:
    *_, last = program(file, "progress.step(7); progress.waits()", ends)

    assert (last.step, last.pause, last.waits) == (7, ENDED, False)


def test_a_program_that_is_killed_says_nothing_of_its_end_and_its_children_nothing_of_theirs(file: Path) -> None:
    [killed] = program(file, "progress.step(7)", "os.kill(os.getpid(), 9)")

    assert (killed.step, killed.pause) == (7, None)


def test_a_program_that_has_ended_without_a_step_leaves_no_file(file: Path) -> None:
    assert program(file, "", "") == []
    assert not file.exists()


def test_the_agent_sees_a_pause_that_begins_right_after_a_step(file: Path) -> None:
    progress = Progress()
    for step in range(200):
        progress.step(step)
        with progress.pause("evaluation"):
            [training] = Trainings(file.parent, lambda: 0.0, lambda: 0.0).look()
            assert training.pause == "evaluation"
