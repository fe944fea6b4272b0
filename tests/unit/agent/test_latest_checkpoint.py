"""`nodeheal-agent latest-checkpoint`: what a batch script goes on from, on a node that has only the agent."""

from pathlib import Path

import pytest

from nodeheal.agent.main import main
from tests.support import checkpoint_trees as trees


def test_it_prints_the_newest_whole_one_and_says_what_it_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trees.megatron(tmp_path / "llama", 100, 200, 300, tracked="200")
    monkeypatch.chdir(tmp_path)

    assert main(["latest-checkpoint", "llama"]) == 0

    said = capsys.readouterr()
    assert said.out == f"{tmp_path}/llama/iter_0000200\n"
    assert said.err.startswith("skipped iter_0000300: it was not finished")


@pytest.mark.parametrize(
    ("name", "words"),
    [("empty", "no whole checkpoint of a format that nodeheal knows"), ("gone", "the directory cannot be listed")],
)
def test_where_none_is_whole_it_prints_nothing_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, words: str
) -> None:
    (tmp_path / "empty").mkdir()

    assert main(["latest-checkpoint", str(tmp_path / name), "--format", "megatron"]) == 1

    said = capsys.readouterr()
    assert (said.out, said.err.startswith(f"{tmp_path}/{name}: {words}")) == ("", True)
