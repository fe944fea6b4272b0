"""`nodeheal jobs submit --slurm`: a batch script is looked over, and handed to sbatch as the user who types it."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import typer

from nodeheal.cli.job_file import bytes_of
from nodeheal.cli.job_submitted import warn
from nodeheal.cli.say import refuse, say, say_json
from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.parsers.sbatch import BatchScript, all_options, doubts_of, parse_script, refuses_requeue

FAILED = 1
SECONDS = 120.0  # sbatch waits for a controller that is down, and repeats


def submit_batch(file: Path, options: Sequence[str], *, dry_run: bool, as_json: bool) -> None:
    """Submit it so that it may be requeued, or with `dry_run` have sbatch only test it."""
    script = _read(file)
    stray = [option for option in options if not option.startswith("-") or option == "--"]
    if stray:
        # sbatch would take a word for the script.
        refuse(f"{stray[0]!r} is no option of sbatch; write a value with its option: --nodes=2, -N2")
    if shutil.which("sbatch") is None:
        refuse("sbatch is not on PATH: run this where you would run sbatch, such as on a login node of the cluster")
    given = all_options(script, options, os.environ)
    doubts = doubts_of(script, given, os.environ)
    ours = ["--test-only" if dry_run else "--parsable", *([] if refuses_requeue(given) else ["--requeue"])]
    done = _run(["sbatch", *ours, *options, str(file.absolute())])
    job, _, cluster = ("" if dry_run else done.stdout.strip()).partition(";")
    said = " ".join(done.stderr.split())
    if as_json:
        told = {"job": job or None, "scheduler": SchedulerKind.SLURM.value, "cluster": cluster or None}
        say_json({**told, "warnings": doubts, "sbatch": said})
        return
    warn(doubts)
    if said:
        say(said)
    if job:
        say(f"job {job} is submitted; see `squeue --job={job}`")


def _read(file: Path) -> BatchScript:
    try:
        return parse_script(bytes_of(file).decode("utf-8", "replace"))
    except ValueError as error:
        refuse(f"{file}: {error}")


def _run(command: list[str]) -> "subprocess.CompletedProcess[str]":
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        say(f"sbatch had not ended in {SECONDS:g} s. Look whether it has submitted: `squeue --me`", aside=True)
        raise typer.Exit(FAILED) from None
    except OSError as error:
        refuse(f"sbatch: {error.strerror}")
    if done.returncode != 0:
        say(f"sbatch has not taken it: {shlex.join(command)}", *done.stderr.splitlines(), aside=True)
        raise typer.Exit(FAILED)
    return done
