"""Where the processes of a job stand: their own alone, and without what people keep secret."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from nodeheal.agent.evidence import stacks

# As py-spy 0.4 prints it.
PRINTED = """Process 42: python train.py --token secret
Python v3.11.7 (/usr/bin/python3.11)

Thread 42 (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2501)
    <module> (train.py:77)
"""


@pytest.fixture(autouse=True)
def processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(stacks, "PROC", tmp_path / "proc")
    for pid, environment in (("42", b"A=1\0NODEHEAL_JOB=llama\0"), ("7", b"NOT_NODEHEAL_JOB=x\0"), ("9", b"")):
        folder = tmp_path / "proc" / pid
        folder.mkdir(parents=True)
        (folder / "environ").write_bytes(environment)
        (folder / "comm").write_text("python\n")
    (tmp_path / "proc" / "8").mkdir()  # has just ended
    return tmp_path


def spy(folder: Path, script: str) -> str:
    """A py-spy that does this instead."""
    made = folder / "py-spy"
    made.write_text(f"#!/bin/sh\n{script}\n")
    made.chmod(made.stat().st_mode | stat.S_IXUSR)
    return str(made)


def test_only_processes_of_a_job_are_looked_into_and_no_argument_of_theirs_is_told(processes: Path) -> None:
    (processes / "printed").write_text(PRINTED)

    told = list(stacks.stacks(spy(processes, f'[ "$*" = "dump --pid 42" ] && cat {processes}/printed')))

    assert told[0] == "== 42 python"
    assert "    all_reduce (torch/distributed/distributed_c10d.py:2501)" in told
    assert "secret" not in "".join(told)
    assert not [line for line in told if line.startswith("== ") and "42" not in line]


def test_a_process_that_cannot_be_looked_into_says_why(processes: Path) -> None:
    told = list(stacks.stacks(spy(processes, "echo 'Error: not a Python process' >&2; exit 1")))

    assert told == ["== 42 python", "(Error: not a Python process)"]


def test_one_that_hangs_holds_up_nothing(processes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "SECONDS", 0.2)

    assert list(stacks.stacks(spy(processes, "exec sleep 30"))) == ["== 42 python", "(no answer within 0.2 s)"]


def test_a_tool_that_is_no_program_says_so(processes: Path) -> None:
    assert list(stacks.stacks(str(processes))) == ["== 42 python", "(Permission denied)"]


def test_without_py_spy_its_absence_is_told() -> None:
    assert list(stacks.stacks(None)) == [stacks.MISSING]


def test_as_a_command_it_ends_well_whatever_is_installed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nodeheal.agent.evidence.stacks"],
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, "PATH": "/nonexistent"},
    )

    assert done.returncode == 0, done.stderr
