"""Progress files, whatever a job has written there."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from nodeheal.agent.runtime import training_files
from nodeheal.agent.runtime.training_files import (
    FILE_BYTES,
    LINES,
    StepRecord,
    files_by_run,
    read_progress,
    records_in,
    step_in,
)


def line(**values: Any) -> bytes:
    return json.dumps(values).encode().ljust(191) + b"\n"


def test_a_line_is_a_record() -> None:
    values = {"at": 5.5, "step_seconds": 0.5, "compute_seconds": 0.25, "loss": -2.5, "saved": 7, "saved_at": 4.5}

    [record] = records_in(line(step=9, tokens=5, pause="evaluation", **values))

    assert record == StepRecord(9, 5.5, 0.5, 0.25, -2.5, 7, 4.5, "evaluation")


@pytest.mark.parametrize(
    "content", [b'{"step": 2037}', b'{\n "step": 2037\n}\n', b'{"step": 2037, "limit_seconds": 60}']
)
def test_a_file_may_be_one_object(content: bytes) -> None:
    assert step_in(content) == 2037


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"touched", b"[1]", b"7", b"\xff\0", b"[" * FILE_BYTES, b'{"at": 5}', b'{"step": 1000000000000000000}'),
        *(b'{"step": -1}', b'{"step": true}', b'{"step": 1e3}', b'{"step": "5"}'),
    ],
)
def test_what_has_no_step_is_no_record(content: bytes) -> None:
    assert records_in(content) == []
    assert step_in(content) is None


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"at": -1}, "at"),
        ({"at": "5"}, "at"),
        ({"step_seconds": math.nan}, "step_seconds"),
        ({"step_seconds": math.inf}, "step_seconds"),
        ({"compute_seconds": 10**400}, "compute_seconds"),
        ({"loss": "much"}, "loss"),
        ({"loss": [1]}, "loss"),
        ({"saved": 1.5}, "saved"),
        ({"saved_at": None}, "saved_at"),
        ({"pause": "Evaluation"}, "pause"),
        ({"pause": "a" * 17}, "pause"),
        ({"pause": 5}, "pause"),
    ],
)
def test_a_value_that_has_not_its_form_is_left_out(values: dict[str, Any], field: str) -> None:
    [record] = records_in(line(step=1, **values))

    assert getattr(record, field) is None


@pytest.mark.parametrize("loss", ["nan", math.nan, math.inf, -math.inf, 1e31, -1e31, 10**400])
def test_a_loss_that_is_not_finite_is_no_number(loss: Any) -> None:
    [record] = records_in(json.dumps({"step": 1, "loss": loss}).encode())

    assert record.loss is not None
    assert math.isnan(record.loss)


def test_a_torn_line_hides_no_other() -> None:
    content = line(step=1) + b'{"step":2,"at'.ljust(191) + b"\n" + b"\0" * 192 + line(step=4)

    assert [record.step for record in records_in(content)] == [1, 4]


def test_the_last_step_is_the_highest_wherever_the_ring_has_come_to() -> None:
    assert step_in(line(step=65) + line(step=66) + line(step=3)) == 66


def test_no_more_lines_are_read_than_a_ring_has() -> None:
    assert len(records_in(b'{"step": 1}\n' * 1_000)) == LINES


def test_no_more_is_read_than_a_ring_has(tmp_path: Path) -> None:
    (tmp_path / "llama.1.steps").write_bytes(b"x" * 100_000)

    assert len(read_progress(tmp_path / "llama.1.steps")) == FILE_BYTES


def test_records_of_a_step_are_ordered_by_time_and_others_by_step() -> None:
    pause, step, of_a_wrong_clock = StepRecord(5, at=9.0), StepRecord(5, at=8.0), StepRecord(4, at=99.0)

    assert sorted([pause, StepRecord(5), of_a_wrong_clock, step], key=lambda one: one.order) == [
        of_a_wrong_clock,
        StepRecord(5),
        step,
        pause,
    ]


def test_files_are_of_runs_and_ranks_and_the_run_that_was_written_last_is_first(tmp_path: Path) -> None:
    names = [
        "llama.2.900.json",
        "llama.2.7.steps",
        "llama.2.63.steps",
        "eval.7.steps",
        "old.1.60.json",
    ]
    others = ["llama.json", "llama.2.64.steps", "llama.2.0.steps", "llama.2.1.json.new", "LLAMA.1.steps", "a.b.1.steps"]
    for age, name in enumerate([*names, *others]):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1_000 - age, 1_000 - age))

    assert files_by_run(tmp_path) == [
        (
            "llama/2",
            {
                0: tmp_path / "llama.2.900.json",
                7: tmp_path / "llama.2.7.steps",
                63: tmp_path / "llama.2.63.steps",
            },
        ),
        ("eval/7", {0: tmp_path / "eval.7.steps"}),
        ("old/1", {0: tmp_path / "old.1.60.json"}),
    ]


@pytest.mark.parametrize("newer", ["llama.1.60.json", "llama.1.steps"])
def test_of_two_files_of_a_rank_the_newer_counts(tmp_path: Path, newer: str) -> None:
    for name in ("llama.1.60.json", "llama.1.steps"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (5, 6 if name == newer else 5))

    assert files_by_run(tmp_path) == [("llama/1", {0: tmp_path / newer})]


def test_a_folder_that_nobody_has_created_has_no_files(tmp_path: Path) -> None:
    assert files_by_run(tmp_path / "nowhere") == []


def test_a_file_that_goes_meanwhile_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("eval.1.steps", "llama.1.steps"):
        (tmp_path / name).touch()
    scandir = os.scandir

    class Listing:
        """As the folder was before a job removed a file."""

        def __enter__(self) -> list[os.DirEntry[str]]:
            with scandir(tmp_path) as entries:
                listed = list(entries)
            (tmp_path / "eval.1.steps").unlink()
            return listed

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(os, "scandir", lambda _: Listing())

    assert [run for run, _ in files_by_run(tmp_path)] == ["llama/1", "eval/1"]


def test_a_folder_full_of_files_costs_no_more_than_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_files, "ENTRIES", 10)
    for number in range(30):
        (tmp_path / f"llama.{number}.steps").touch()

    assert len(files_by_run(tmp_path)) == 10
