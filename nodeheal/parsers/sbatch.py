"""Parses a batch script for Slurm, and finds what would prevent a restart of its job. Pure, standard library."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

DIRECTIVE = "#SBATCH"
_SHELLS = re.compile(r"#!\s*\S*/(env\s+)?(ba|da|k|z)?sh\b")
# The start of a shell command: at a line's beginning, after an operator or a keyword, after assignments.
_SRUN = re.compile(
    r"(?:^|[;&|(){!`]|\b(?:then|do|else|exec|nohup|time|if|while|until)\s)\s*(?:\w+=\S*\s+)*srun\s(?P<rest>[^;&|]*)"
)
# `<<END`, `<<-'END'`, and not `<<<`.
_HERE = re.compile(r"(?<!<)<<(?P<tabs>-?)\s*['\"\\]?(?P<end>[A-Za-z_]\w*)")
_REQUEUE = re.compile(r"--(?:no-r|req)[a-z]*")
# srun accepts abbreviated long options; 0 means that the other ranks continue.
_KILLS = re.compile(r"(?:^|\s)(?:--kill-on-b[a-z-]*(?![a-z-])|-K)(?!=?0)")
# sbatch prints these when it has lost its controller after the request: the job may have been accepted. From
# slurm_errno.c.
_LOST = re.compile(
    r"Socket timed out|Zero Bytes were transmitted|Message receive failure|"
    r"Unable to contact slurm controller \((?:send|receive|shutdown) failure\)"
)


@dataclass(frozen=True)
class BatchScript:
    """`options`: those of its #SBATCH lines, in order. `late`: numbers of the #SBATCH lines that sbatch ignores."""

    options: tuple[str, ...]
    late: tuple[int, ...]
    commands: tuple[str, ...]  # its other lines, continued ones joined, without comments; empty: not a shell script


def parse_script(text: str) -> BatchScript:
    """Parse the script. Raises ValueError where sbatch would refuse it."""
    lines = text.split("\n")
    if not lines[0].startswith("#!"):
        raise ValueError("it is not a batch script: its first line must begin with #! and name an interpreter")
    first = next((at for at, line in enumerate(lines) if line.strip()[:1] not in ("", "#")), len(lines))
    options: list[str] = []
    for line in lines[:first]:
        if _is_directive(line):
            options += _words(line.removeprefix(DIRECTIVE))
    is_shell = bool(_SHELLS.match(lines[0]))
    texts = _here_documents(lines) if is_shell else set()
    late = tuple(at + 1 for at, line in enumerate(lines) if at >= first and at not in texts and _is_directive(line))
    own = [line for at, line in enumerate(lines) if at >= first and at not in texts]
    return BatchScript(tuple(options), late, tuple(_commands(own)) if is_shell else ())


def is_batch_script(raw: bytes) -> bool:
    """Whether these bytes look like a file for sbatch: an interpreter, or options of sbatch."""
    return raw.startswith(b"#!") or any(_is_directive(line) for line in raw.decode("utf-8", "replace").split("\n"))


def all_options(script: BatchScript, options: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Return sbatch's effective options, the last one counting: the script's, its environment's, then those of its
    command.
    """
    requeue = [f"--{name}" for name in ("requeue", "no-requeue") if _variable(name) in variables]
    mode = variables.get(_variable("open-mode"))
    return [*script.options, *requeue, *([f"--open-mode={mode}"] if mode else []), *options]


def refuses_requeue(given: Sequence[str]) -> bool:
    """Whether its owner forbids a restart. `given`: all options."""
    return _requeues(given)[-1:] == [False]


def may_be_submitted(errors: str) -> bool:
    """Whether the job may run, although sbatch has failed. `errors`: its output."""
    return bool(_LOST.search(errors))


def doubts_of(script: BatchScript, given: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Return what would prevent the job's restart, a line each. `given`: all options. `variables`: the environment of
    sbatch, which the job inherits.
    """
    return [*_late(script), *_requeue(given), *_log(given), *_ranks(script, variables), *_budget(script)]


def _late(script: BatchScript) -> Iterator[str]:
    for number in script.late:
        yield f"line {number}: sbatch ignores {DIRECTIVE} after the first command"


def _requeue(given: Sequence[str]) -> Iterator[str]:
    if refuses_requeue(given):
        yield "--no-requeue: its owner does not allow a restart, so it ends with its node"
    elif not _requeues(given):
        yield f"no `{DIRECTIVE} --requeue`: it is added now; without it the cluster's JobRequeue decides"


def _log(given: Sequence[str]) -> Iterator[str]:
    words = [word for option in given for word in option.split("=", 1 if option.startswith("--open-mode=") else 0)]
    modes = [mode for option, mode in pairwise(words) if option == "--open-mode"]
    if not modes or not modes[-1].startswith("a"):
        yield "no --open-mode=append: a restart overwrites its log, unless the cluster has JobFileAppend=1"


def _ranks(script: BatchScript, variables: Mapping[str, str]) -> Iterator[str]:
    set_there = any("SLURM_KILL_BAD_EXIT" in command for command in script.commands)
    if set_there or variables.get("SLURM_KILL_BAD_EXIT"):
        return
    steps = [step["rest"] for command in script.commands for step in _SRUN.finditer(command)]
    if any(not _KILLS.search(step) for step in steps):
        yield (
            "srun without --kill-on-bad-exit: when one rank dies the others wait for it, unless the cluster has "
            "KillOnBadExit=1"
        )


def _budget(script: BatchScript) -> Iterator[str]:
    text = "\n".join(script.commands)
    if re.search(r"\bscontrol\s+requeue", text) and "SLURM_RESTART_COUNT" not in text:
        yield "it requeues itself without checking SLURM_RESTART_COUNT: a fault of its own restarts it without end"


def _requeues(given: Sequence[str]) -> list[bool]:
    """Return the values of the two options. sbatch accepts abbreviations."""
    return [option.startswith("--r") for option in given if _REQUEUE.fullmatch(option)]


def _variable(option: str) -> str:
    return f"SBATCH_{option.replace('-', '_').upper()}"


def _is_directive(line: str) -> bool:
    return line == DIRECTIVE or line.startswith((f"{DIRECTIVE} ", f"{DIRECTIVE}\t"))


def _words(text: str) -> list[str]:
    """Split like a shell. Invalid text gives no words: sbatch refuses it."""
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return []


def _here_documents(lines: Sequence[str]) -> set[int]:
    """Return the indexes of the lines in here-documents, their ends included. One without an end does not count: `1 <<
    x` looks like a start, too.
    """
    indexes: set[int] = set()
    for at, line in enumerate(lines):
        if at in indexes or line.lstrip().startswith("#"):
            continue
        begin = at + 1
        for here in _HERE.finditer(line):
            indent = "\t" if here["tabs"] else ""
            end = next((row for row in range(begin, len(lines)) if lines[row].lstrip(indent) == here["end"]), None)
            if end is not None:
                indexes |= set(range(begin, end + 1))
                begin = end + 1
    return indexes


def _commands(lines: Sequence[str]) -> Iterator[str]:
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return (line.strip() for line in joined.splitlines() if line.strip() and not line.strip().startswith("#"))
