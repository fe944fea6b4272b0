"""`nodeheal jobs submit --slurm`: a batch script is looked over, and handed to sbatch as the user who types it."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

import typer

from nodeheal.cli.cluster_views import SlurmSubmission
from nodeheal.cli.job_file import bytes_of
from nodeheal.cli.job_list import INCOMPLETE
from nodeheal.cli.job_submitted import warn
from nodeheal.cli.say import refuse, say, say_json
from nodeheal.parsers.sbatch import (
    BatchScript,
    all_options,
    doubts_of,
    may_be_submitted,
    parse_script,
    refuses_requeue,
)

FAILED = 1
SECONDS = 120.0  # at most: sbatch itself gives up sooner, or repeats
LOOK = "squeue --me --states=all --sort=-V"
QUIET_SECONDS = 5.0  # until a person is told what is waited for


def submit_batch(words: Sequence[str], *, dry_run: bool, as_json: bool) -> None:
    """Submit a script so that it may be requeued, or with `dry_run` have sbatch only test it.

    `words` stand as after `sbatch`: its options, the script, the script's own arguments.
    """
    options = list(takewhile(lambda word: word.startswith("-"), words))
    named, *arguments = words[len(options) :] or refuse(
        "name the batch script, as after sbatch: OPTIONS SCRIPT ARGUMENTS"
    )
    file = Path(named)
    if options and not file.exists():
        refuse(f"{file}: there is no such script; write a value of sbatch's with its option: --nodes=2, -N2")
    script = _read(file)
    if shutil.which("sbatch") is None:
        refuse("sbatch is not on PATH: run this where you would run sbatch, such as on a login node of the cluster")
    given = all_options(script, options, os.environ)
    doubts = doubts_of(script, given, os.environ)
    ours = ["--test-only" if dry_run else "--parsable", *([] if refuses_requeue(given) else ["--requeue"])]
    printed, errors = _run(["sbatch", *ours, *options, str(file.absolute()), *arguments], dry_run=dry_run)
    job, _, cluster = ("" if dry_run else printed.strip()).partition(";")
    text = " ".join(errors.split())
    if as_json:
        submission = SlurmSubmission(
            job=job or None, cluster=cluster or None, arguments=tuple(arguments), warnings=tuple(doubts), sbatch=text
        )
        say_json(submission)
        return
    warn(doubts)
    if text:
        say(text)
    if job:
        handed_on = f", its script with {shlex.join(arguments)}" if arguments else ""
        say(f"job {job} is submitted{handed_on}; see `squeue --job={job}`")


def _read(file: Path) -> BatchScript:
    if file.exists() and (not file.is_file() or str(file.absolute()).startswith("/dev/")):
        refuse(f"{file}: it is not a regular file: read here, it would be empty for sbatch")
    try:
        return parse_script(bytes_of(file).decode("utf-8", "replace"))
    except ValueError as error:
        refuse(f"{file}: {error}")


def _run(command: list[str], *, dry_run: bool) -> tuple[str, str]:
    """What sbatch has printed, and on stderr. The exit code is INCOMPLETE where the job may be submitted."""
    try:
        program = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    except OSError as error:
        refuse(f"sbatch: {error.strerror}")
    try:
        output, errors = _ended(program)
    except subprocess.TimeoutExpired:
        errors, is_known = f"sbatch had not ended in {SECONDS:g} s", dry_run
    else:
        is_known = dry_run or not may_be_submitted(errors)
        if program.returncode == 0:
            return output, errors
    if is_known:
        say(f"sbatch has not taken it: {shlex.join(command)}", *errors.splitlines(), aside=True)
        raise typer.Exit(FAILED)
    # A second submission would be a second run, in the same directory of checkpoints.
    say(f"it is not known whether the job is submitted: {shlex.join(command)}", *errors.splitlines(), aside=True)
    say(f"once Slurm answers, look before you submit again, the newest job is first: `{LOOK}`", aside=True)
    raise typer.Exit(INCOMPLETE)


def _ended(program: "subprocess.Popen[str]") -> tuple[str, str]:
    """What it has printed. Nothing of it is left, whatever comes between. Raises TimeoutExpired."""
    with program:
        try:
            with suppress(subprocess.TimeoutExpired):
                return program.communicate(timeout=QUIET_SECONDS)
            say(f"sbatch has not answered yet; it is ended after {SECONDS:g} s at the latest", aside=True)
            return program.communicate(timeout=SECONDS - QUIET_SECONDS)
        except BaseException:
            program.kill()
            raise
