"""`nodeheal checkpoints`: the researcher's view of what a restart would find."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nodeheal.cli.main import app
from tests.support import checkpoint_trees as trees

RUN = CliRunner()


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """Three checkpoints, the newest of which was being written."""
    trees.megatron(tmp_path, 100, 200, 300, tracked="200")
    return tmp_path


def test_the_list_says_of_each_whether_it_is_whole_and_why_not(llama: Path) -> None:
    result = RUN.invoke(app, ["checkpoints", "list", str(llama)])

    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split()[:3] for line in lines[1:4]] == [
        ["300", "BROKEN", "iter_0000300"],
        ["200", "whole", "iter_0000200"],
        ["100", "whole", "iter_0000100"],
    ]
    assert "latest_checkpointed_iteration.txt still says 200" in lines[1]
    assert lines[-1] == "megatron: 2 checkpoints of 3 whole"


def test_the_latest_is_a_path_that_a_script_can_use(llama: Path) -> None:
    result = RUN.invoke(app, ["checkpoints", "latest", str(llama)])

    assert (result.exit_code, result.stdout) == (0, f"{llama}/iter_0000200\n")
    assert result.stderr.startswith("skipped iter_0000300: it was not finished")


def test_verify_fails_where_one_is_not_whole(llama: Path) -> None:
    assert RUN.invoke(app, ["checkpoints", "verify", str(llama)]).exit_code == 1

    (llama / "latest_checkpointed_iteration.txt").write_text("300")
    assert RUN.invoke(app, ["checkpoints", "verify", str(llama)]).exit_code == 0


@pytest.mark.parametrize("command", ["list", "latest", "verify"])
def test_programs_get_json(llama: Path, command: str) -> None:
    told = json.loads(RUN.invoke(app, ["checkpoints", command, str(llama), "--json"]).stdout)

    assert told["newest_valid"] == f"{llama}/iter_0000200"
    assert [one["step"] for one in told["checkpoints"]][:2] == [300, 200]


def test_another_format_than_is_there_finds_nothing(llama: Path) -> None:
    result = RUN.invoke(app, ["checkpoints", "latest", str(llama), "--format", "hugging_face"])

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"{llama}: no whole checkpoint of a format that nodeheal knows\n"


def test_a_directory_that_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    result = RUN.invoke(app, ["checkpoints", "list", str(tmp_path / "gone")])

    assert result.exit_code == 1
    assert result.stderr == f"{tmp_path}/gone: the directory cannot be listed: No such file or directory\n"
