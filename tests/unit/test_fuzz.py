"""The fuzzers find what they are made to find, and every reader stands some hundred of their inputs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nodeheal.api.job_file import JobFileRefused, parse_job_file
from tests import fuzz

SEED = 20_261_124
INPUTS = 150


@pytest.mark.parametrize("target", fuzz.targets(), ids=lambda one: one.name)
def test_a_reader_stands_mutated_inputs(target: fuzz.Target) -> None:
    assert fuzz.fuzz(target, SEED, most=INPUTS) == INPUTS


def raises(data: bytes) -> None:
    if b"\0" in data:
        raise IndexError("planted")


def hangs(data: bytes) -> None:
    while b"\0" in data:
        pass


@pytest.mark.parametrize(("read", "why"), [(raises, "IndexError: planted"), (hangs, "of processor")])
def test_an_input_that_breaks_a_reader_is_kept_and_found_again_by_its_seed(
    read: Callable[[bytes], object],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(fuzz, "SLOW_SECONDS", 0.05)
    monkeypatch.setattr(fuzz, "ROOT", tmp_path)
    monkeypatch.setattr(fuzz, "KEPT", tmp_path / "kept")
    target = fuzz.Target("planted", read, [b"seed"])
    monkeypatch.setattr(fuzz, "targets", lambda: [target])

    assert fuzz.main(["--seed", "7", "--seconds", "60"]) == 1

    (kept,) = (tmp_path / "kept").iterdir()
    assert why in capsys.readouterr().out
    assert why in fuzz.why_broken(target, kept.read_bytes())
    found = fuzz.fuzz(target, 7, most=100_000)
    assert isinstance(found, fuzz.Broken)
    assert found.data == kept.read_bytes()


def test_what_a_reader_promises_to_raise_does_not_break_it() -> None:
    target = fuzz.Target("job-file", parse_job_file, [b"nodes"], (JobFileRefused,))

    assert fuzz.why_broken(target, b"nodes: [") == ""


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("0x" + "f" * 4_000, "a number of more than 64 characters"),
        ("0x" + "f" * 40, "does not fit into 64 bits"),
        ("1:" * 30 + "1", "does not fit into 64 bits"),
        ("1" * 5_000, "a number of more than 64 characters"),
    ],
)
def test_a_number_without_end_is_refused_by_its_line(value: str, why: str) -> None:
    """L2: `nodes: 0xfff...` was a traceback."""
    with pytest.raises(JobFileRefused) as refused:
        parse_job_file(f"name: llama\nnodes: {value}\n".encode())

    (complaint,) = refused.value.complaints
    assert (complaint.line, why in complaint.why) == (2, True)


def test_aliases_cannot_stand_for_more_text_than_a_file_holds() -> None:
    """One long text and thousands of aliases of it took gigabytes to check."""
    document = f"name: &a {'x' * 100_000}\ncommand: [{', '.join(['*a'] * 100)}]\n"

    with pytest.raises(JobFileRefused, match="characters"):
        parse_job_file(document.encode())
