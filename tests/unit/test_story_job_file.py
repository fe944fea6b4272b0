"""The job of a story: a file that the command takes, and the command."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from nodeheal.api.job_file import parse_job_file
from nodeheal.contract.job_spec import JobSpec
from nodeheal.contract.vocabulary import CheckpointFormat
from nodeheal.domain.jobs.owner import Owner, parse_owner
from nodeheal.services.jobs.prepare_job import file_doubts
from sandbox.job_file import NotSubmitted, submit, typed, write_job_file
from sandbox.stories import STORIES

ADA = Owner("ada@example.com", "Ada")
REBOOT = STORIES["fixed-by-reboot"].script
DDP = replace(REBOOT, example="torchrun", format=CheckpointFormat.torch_save, environment={"OMP_NUM_THREADS": "1"})
SCRIPTS = [pytest.param(named.script, id=name) for name, named in STORIES.items()] + [pytest.param(DDP, id="torchrun")]


def written(script: object, tmp_path: Path) -> tuple[Path, JobSpec]:
    file = write_job_file(script, ADA, tmp_path / "checkpoints", tmp_path)  # type: ignore[arg-type]
    return file, parse_job_file(file.read_bytes())


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_file_of_every_story_is_one_that_the_command_takes_without_a_doubt(script: object, tmp_path: Path) -> None:
    _, spec = written(script, tmp_path)

    assert file_doubts(spec) == []
    assert (spec.name, spec.pool, spec.nodes) == (script.job, script.pool, 2)  # type: ignore[attr-defined]
    assert parse_owner(str(spec.owner)) == ADA


@pytest.mark.parametrize(("script", "starts"), [(REBOOT, ["python", "train.py"]), (DDP, ["./launch.sh"])])
def test_it_is_the_examples_own_where_the_sandbox_has_nothing_to_say(
    script: object, starts: list[str], tmp_path: Path
) -> None:
    _, spec = written(script, tmp_path)

    directory = str(tmp_path / "checkpoints")
    assert list(spec.command[: len(starts)]) == starts
    assert spec.command[-1] == f"--directory={directory}"
    assert spec.checkpoints is not None
    assert (spec.checkpoints.directory, spec.spares, spec.hang_seconds) == (directory, 0, None)
    assert spec.restarts.in_window == 20 if starts[0] == "python" else spec.restarts.without_progress == 3


def test_what_is_shown_is_what_a_person_types(tmp_path: Path) -> None:
    file, _ = written(REBOOT, tmp_path)

    assert typed(file) == "nodeheal jobs submit llama-pretrain.yaml"


def test_a_file_that_the_command_refuses_is_told_with_its_words(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\npool: demo\nnodes: many\nimage: numpy-trainer\n")

    with pytest.raises(NotSubmitted, match=r"mine\.yaml:3: nodes: "):
        submit(file, os.environ)
