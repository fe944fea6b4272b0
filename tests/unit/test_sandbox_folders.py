"""The folders of the sandbox: a living cloud keeps its own, and its emails are files."""

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import demo
from sandbox.client import LOCK, is_running
from sandbox.mailbox import MailFolder


def test_a_later_demo_deletes_old_folders_and_never_that_of_a_living_cloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "BUILD", tmp_path)
    runs = [tmp_path / "sandbox" / f"run-2026{number}" for number in range(5)]
    for run in runs:
        run.mkdir(parents=True)
        (run / LOCK).touch()

    with (runs[0] / LOCK).open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        demo._fresh_directory()

    assert [run.exists() for run in runs] == [True, False, False, True, True]


def test_the_lock_ends_with_the_process_that_holds_it(tmp_path: Path) -> None:
    hold = f"""
import fcntl, time
lock = open({str(tmp_path / LOCK)!r}, "wb")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        while_it_lives = is_running(tmp_path)
        holder.kill()

    assert (while_it_lives, is_running(tmp_path)) == (True, False)


def test_each_email_is_written_once_in_the_order_in_which_it_came(tmp_path: Path) -> None:
    folder = MailFolder(tmp_path / "mail")
    list(folder.keep([("[nodeheal] approve? mi-1", "a", "")]))

    [(subject, file)] = folder.keep([("[nodeheal] approve? mi-1", "a", ""), ("[nodeheal] recovered: mi-1", "b", "")])

    assert (subject, file.name) == ("[nodeheal] recovered: mi-1", "002-nodeheal-recovered-mi-1.txt")
    assert file.read_text("utf-8") == "To: the operators\nSubject: [nodeheal] recovered: mi-1\n\nb\n"


def test_an_email_says_to_whom_it_goes_and_when_nobody_gets_it(tmp_path: Path) -> None:
    mails = [("llama has started", "Hello Ada,", "ada@example.com"), ("opt has started", "Hello,", "bob@example.com")]

    kept = MailFolder(tmp_path / "mail").keep(mails, lambda owner: owner.startswith("ada"))

    assert [file.read_text("utf-8").partition("\n")[0] for _, file in kept] == [
        "To: ada@example.com",
        "To: bob@example.com (not subscribed: nobody gets this)",
    ]
