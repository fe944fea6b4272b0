"""`nodeheal-agent slurm doctor`: checks whether Slurm is set up so that its nodes can be healed and its jobs survive
it.

It reads slurmctld's active settings, not slurm.conf, whose changes may not be active yet. It changes nothing.
"""

import argparse
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import NoReturn

from nodeheal.agent.checks.tools import run_tool
from nodeheal.agent.commands.doctor import ABSENT, BAD, GOOD, POOR, UNTRIED, Sign, say
from nodeheal.agent.runtime import config as configuration
from nodeheal.agent.slurm import prolog
from nodeheal.agent.slurm.controller import SECONDS, NoAnswerError, Run, no_answer
from nodeheal.parsers.slurm import parse_config

OLDEST = (22, 5)  # the first version that nodeheal was tested with
REBOOT_SECONDS = 600
# Seconds that Slurm must allow beyond the prolog's own: to start the script and the agent, twice, and to return the
# answer.
START_SECONDS = 20
_NO_LIMIT = 65_534  # how an unset PrologEpilogTimeout prints; INFINITE where it is set so
_FILE_BYTES = 65_536
_OURS = "nodeheal-agent"
_BINARY = b"\x7fELF"  # apart from scripts the kernel starts nothing else (execve(2): ENOEXEC)
_INTERPRETER = re.compile(rb"#![ \t]*(\S+)")
_OPERATORS = tuple("();<>|&")  # of a shell, between commands and around files
_NOT_CONFIGURED = "Could not establish a configuration source"  # after DNS errors, where a configuration may exist


def doctor(run: Run = run_tool, *, as_json: bool) -> int:
    """Print the results; returns 1 where something is WRONG, else 0."""
    try:
        signs = list(signs_of(_settings(run)))
    except NoAnswerError as error:
        signs = [Sign("slurmctld", BAD, str(error))]
    for sign in signs:
        say(sign, as_json=as_json)
    return 1 if any(sign.state == BAD for sign in signs) else 0


def _settings(run: Run) -> Mapping[str, str]:
    output = run(["scontrol", "show", "config"], SECONDS)
    if not output.is_installed:
        raise NoAnswerError(f"scontrol is in no folder of PATH: {os.environ.get('PATH', os.defpath)}")
    if output.ran.error:
        raise NoAnswerError(no_answer("scontrol", output))
    if _NOT_CONFIGURED in output.errors:
        raise NoAnswerError("scontrol finds no slurm.conf: set SLURM_CONF, or run this on the controller")
    if output.ran.exit_code:
        raise NoAnswerError(f"scontrol: {output.errors.strip() or output.last_words}")
    try:
        return parse_config(output.text)
    except ValueError as error:
        raise NoAnswerError(str(error)) from None


def signs_of(settings: Mapping[str, str]) -> Iterator[Sign]:
    """Return one result for each relevant setting."""
    controllers = settings.get("CONTROLLERS", "")
    is_whole = "DOWN" not in controllers
    yield Sign("slurmctld", GOOD if is_whole else POOR, f"{settings.get('ClusterName', '')}: {controllers}")
    yield _version(settings.get("SLURM_VERSION", ""))
    programs = _programs(settings, "Prolog")
    if programs:
        yield from _prolog(settings, programs)
    else:
        yield Sign("Prolog", POOR, "none: a job can start on a broken node, until the fault is found")
    yield _at_least(
        settings,
        "ResumeTimeout",
        REBOOT_SECONDS,
        "Slurm gives up a node that `scontrol reboot` reboots before it is back",
    )
    yield _return_to_service(settings.get("ReturnToService", ""))
    requeues = settings.get("JobRequeue") == "1"
    not_requeued = "0: only jobs of `sbatch --requeue` are requeued when their node breaks"
    yield Sign("JobRequeue", *((GOOD, "1") if requeues else (POOR, not_requeued)))
    yield _suspend(settings)
    yield _health_check(settings)


def _version(text: str) -> Sign:
    match = re.match(r"(\d+)\.(\d+)", text)
    if match is None:
        return Sign("version", UNTRIED, f"{text}: not readable as a version")
    is_new = (int(match[1]), int(match[2])) >= OLDEST
    return Sign("version", GOOD, text) if is_new else Sign("version", BAD, f"{text}: 22.05 or newer is needed")


def _prolog(settings: Mapping[str, str], programs: list[str]) -> Iterator[Sign]:
    seconds = prolog.SECONDS
    for path in programs:
        sign, its_seconds = _prolog_program(path)
        yield sign
        seconds = max(seconds, its_seconds)
    if "nohold_on_prolog_fail" in _words(settings, "SchedulerParameters"):
        yield Sign("SchedulerParameters", GOOD, "nohold_on_prolog_fail")
    else:
        held = "without nohold_on_prolog_fail a job whose prolog has failed is held until a person releases it"
        yield Sign("SchedulerParameters", BAD, held)
    if "Alloc" in _words(settings, "PrologFlags"):
        yield Sign("PrologFlags", GOOD, settings["PrologFlags"])
    else:
        late = (
            "without Alloc the prolog runs when the first step starts, and `srun` gives up before a long one has ended"
        )
        yield Sign("PrologFlags", BAD, late)
    least = seconds + START_SECONDS
    limit = _seconds(settings.get("PrologEpilogTimeout", ""))
    if limit is not None and limit < least:
        drains = f"{limit} s: a prolog that takes {seconds:g} s is ended before, which drains a healthy node"
        yield Sign("PrologEpilogTimeout", BAD, f"{drains}; set {least:g}, or none")
    else:
        yield Sign("PrologEpilogTimeout", GOOD, "none" if limit is None else f"{limit} s")
    lost = "a job whose node registers while its prolog runs, as after `scontrol reconfigure`, is taken for lost"
    yield _at_least(settings, "BatchStartTimeout", least, lost)
    if "Alloc" not in _words(settings, "PrologFlags"):
        yield _at_least(settings, "MessageTimeout", least, "`srun` waits no longer for a prolog that starts late")


def _at_least(settings: Mapping[str, str], key: str, least: float, otherwise: str) -> Sign:
    seconds = _seconds(settings.get(key, ""))
    if seconds is None or seconds >= least:
        return Sign(key, GOOD, settings.get(key, ""))
    return Sign(key, POOR, f"{seconds} s: {otherwise}; set {least:g}")


def _return_to_service(value: str) -> Sign:
    if value == "2":
        why = "2: a node that was down takes jobs as soon as it has rebooted, before its diagnostics; set 0 or 1"
        return Sign("ReturnToService", POOR, why)
    return Sign("ReturnToService", GOOD, value)


def _suspend(settings: Mapping[str, str]) -> Sign:
    """Check the settings of power saving: Slurm refuses POWER_DOWN_FORCE without a SuspendTime (22.05)."""
    programs, seconds = _programs(settings, "SuspendProgram"), _seconds(settings.get("SuspendTime", ""))
    if not programs:
        return Sign("SuspendProgram", ABSENT, "none: `replacement.by_cluster: power_down` cannot be used here")
    if seconds is None:
        refused = "SuspendTime is not set: Slurm refuses `power_down`, unless the node's partition has a SuspendTime"
        return Sign("SuspendProgram", POOR, refused)
    return Sign("SuspendProgram", GOOD, f"{programs[0]}, SuspendTime {seconds} s")


def _health_check(settings: Mapping[str, str]) -> Sign:
    programs, interval = _programs(settings, "HealthCheckProgram"), _seconds(settings.get("HealthCheckInterval", ""))
    if not programs:
        return Sign("HealthCheckProgram", ABSENT, "none: the watching agent needs none")
    if not interval:
        return Sign("HealthCheckProgram", POOR, f"{programs[0]} is never run: HealthCheckInterval is 0")
    sign, _ = _program("HealthCheckProgram", programs[0])
    return replace(sign, said=f"{sign.said}, every {interval} s") if sign.state == GOOD else sign


class _Options(argparse.ArgumentParser):
    """The prolog's option parser, which raises on an error instead of ending this process."""

    def error(self, message: str) -> NoReturn:
        """Raise ValueError, in place of ArgumentParser's exit."""
        raise ValueError(message)


def _prolog_program(path: str) -> tuple[Sign, float]:
    """Check that the prolog calls the agent with valid options, since nobody on the node sees an error there. Returns
    also its seconds, 0 where they are not readable.
    """
    sign, raw = _program("Prolog", path)
    if sign.state != GOOD:
        return sign, 0.0
    for agent, options in _calls(raw.decode("utf-8", "replace")):
        if agent.endswith(_OURS):
            return _judged(path, agent, options)
    return Sign("Prolog", POOR, f"{path} does not call `{_OURS} prolog`, as far as it can be read here"), 0.0


def _calls(script: str) -> Iterator[tuple[str, list[str]]]:
    """Return the commands that are called with the word `prolog`, and their arguments. Variables of one word are
    expanded.
    """
    variables: dict[str, str] = {}
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="".join(_OPERATORS))
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:  # a quoted text that continues in the next line
            continue
        variables |= {name: value for name, _, value in (word.partition("=") for word in words)}
        if "prolog" not in words[1:]:
            continue
        at = words.index("prolog", 1)
        called = words[at - 1]
        options = list(takewhile(lambda word: not word.startswith(_OPERATORS), words[at + 1 :]))
        if options[-1:] == ["2"] and words[at + 1 + len(options) :]:  # of `2>`
            options.pop()
        yield variables.get(called.strip("${}"), "") if called.startswith("$") else called, options


def _judged(path: str, agent: str, options: list[str]) -> tuple[Sign, float]:
    if any("$" in word for word in options):
        return Sign("Prolog", UNTRIED, f"{path}: its options cannot be read here: {' '.join(options)}"), 0.0
    parser = _Options(add_help=False, parents=[configuration.option()])
    prolog.add_arguments(parser)
    try:
        seconds = parser.parse_args(options).seconds
    except ValueError as error:
        return Sign("Prolog", BAD, f"{path} checks nothing, and every job starts: {error}"), 0.0
    if "/" in agent and not os.access(agent, os.X_OK):
        absent = f"{path} calls {agent}, which does not exist here: where it is missing, every job starts"
        return Sign("Prolog", POOR, absent), seconds
    return Sign("Prolog", GOOD, f"{path}, at most {seconds:g} s"), seconds


def _program(key: str, path: str) -> tuple[Sign, bytes]:
    """Check that slurmd can start it; returns also its text. It is installed on the nodes: here it may differ or be
    missing.
    """
    try:
        with Path(path).open("rb") as file:
            text = file.read(_FILE_BYTES)
    except OSError as error:
        return Sign(key, UNTRIED, f"{path}: cannot be read here: {error.strerror}"), b""
    named = _INTERPRETER.match(text)
    if named is None and not text.startswith(_BINARY):
        return Sign(key, BAD, f"{path} does not begin with `#!`: slurmd cannot start it (Exec format error)"), b""
    if named is not None and not os.access(named[1], os.X_OK):
        return Sign(
            key, BAD, f"{path} begins with {named[0].decode('utf-8', 'replace')}, which does not exist here"
        ), b""
    if not os.access(path, os.X_OK):
        return Sign(key, BAD, f"{path} is not executable: chmod 755"), b""
    return Sign(key, GOOD, path), text


def _programs(settings: Mapping[str, str], key: str) -> list[str]:
    """Return the programs; newer versions number them: `Prolog[0]`."""
    return [value for name, value in settings.items() if value and re.fullmatch(rf"{key}(\[\d+\])?", name)]


def _words(settings: Mapping[str, str], key: str) -> list[str]:
    return [word.strip() for word in settings.get(key, "").split(",")]


def _seconds(text: str) -> int | None:
    """Parse seconds. None: no limit, or not readable."""
    match = re.fullmatch(r"(\d+)(?: sec)?", text)
    return None if match is None or int(match[1]) == _NO_LIMIT else int(match[1])
