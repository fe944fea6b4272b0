"""`nodeheal-agent prolog`: Slurm's Prolog on a compute node. Its exit code says whether a job may start here.

0: the job starts. 1: Slurm drains the node and requeues the job. Only a node that has failed or hangs is drained. What
could not be checked and internal errors must not stop a cluster.

A failed diagnostic is reported as findings of DCGM (`HealthEvent`), which open an incident. `DiagnosticsFinished` would
open none: the control plane only records an answer that it has not requested. The source is the check `dcgm`. That
check does not show what only a diagnostic shows, so a node that is asked to confirm denies it, and then its diagnostics
decide. The watching agent reports the findings of checks, so they are not reported here.
"""

import argparse
import contextlib
import json
import logging
import os
import re
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NoReturn

from nodeheal.agent.checks import clock_skew, dcgm, dcgm_counters, own, progress
from nodeheal.agent.checks.check import CheckContext, NodeCheck
from nodeheal.agent.checks.hardware import has_nvidia
from nodeheal.agent.checks.registry import chosen
from nodeheal.agent.checks.tools import run_tool
from nodeheal.agent.commands.check_now import NOT_HERE, CheckRow, answers_of, check_name, row_of
from nodeheal.agent.commands.node_command import end_well_when_terminated, number, report
from nodeheal.agent.identity.machine import identity
from nodeheal.agent.node_commands import diag
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.compose import event_bus, open_spool
from nodeheal.agent.runtime.config import AgentConfig, given
from nodeheal.agent.runtime.probe import killed_with
from nodeheal.agent.runtime.safe_files import is_own, open_file, open_folder, replace_file
from nodeheal.agent.transport.event import EventFactory, HealthEvent, clip, verdict_of
from nodeheal.contract.check_seconds import HEALTHY_SECONDS
from nodeheal.contract.json_text import read_json
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.parsers.dcgm_diag import UNNAMED
from nodeheal.parsers.finding import Finding, ToolReport
from nodeheal.parsers.tool_report import GRAVITY, unknown

EXIT_STARTS, EXIT_DRAINS = 0, 1
SECONDS, VALID_SECONDS = 180.0, 600.0  # by default
LEAST_SECONDS, LONGEST_SECONDS = 30.0, 86_400.0
END_SECONDS, KILL_SECONDS = 5.0, 1.0  # to end what hangs: a check takes two, a tool takes two
REPORT_SECONDS = 15.0
RESERVE_SECONDS = REPORT_SECONDS + END_SECONDS  # reserved after the answer; never more than a quarter of all
TICK_SECONDS = 0.02
MIG_SECONDS = 20.0
MIG_QUERY = ("nvidia-smi", "--query-gpu=mig.mode.current", "--format=csv,noheader")
PASS_FILE = "prolog-pass.json"
PASS_CHARACTERS = 4_096
FINDINGS = 16  # findings reported of one diagnostic
SAID_CHARACTERS = 1_000
# Slurm sets no PATH for its prolog.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/aws/neuron/bin:/opt/amazon/efa/bin"
# `progress` is about a job, not the node. `clock_skew` needs AWS: jobs must start while AWS is out of reach.
# `dcgm_counters` shows no rise at one look.
_NOT_OF_A_PROLOG = (progress.CHECK.name, clock_skew.CHECK.name, dcgm_counters.CHECK.name)
_JOB_ID = re.compile(r"[0-9]{1,12}")
_READ_BYTES = 65_536

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PrologVerdict:
    """The verdict for the job, and the reason. Only FAILED prevents its start."""

    verdict: str
    reason: str


Say = Callable[[PrologVerdict], None]


@dataclass(frozen=True)
class Terms:
    """The requested checks. `until`: when the answer is due, by the monotonic clock."""

    level: int
    valid_seconds: float
    without: tuple[str, ...]
    until: float
    job: str = ""

    @property
    def rest_seconds(self) -> float:
        """Seconds left for a tool, with a reserve to end it."""
        return self.until - END_SECONDS - time.monotonic()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: the level and the deadline."""
    levels = [0, *sorted(HEALTHY_SECONDS)]
    parser.add_argument(
        "--level", type=int, choices=levels, default=1, help="level of DCGM's diagnostic; 0: none; default 1"
    )
    parser.add_argument(
        "--seconds",
        type=number(LEAST_SECONDS, LONGEST_SECONDS),
        default=SECONDS,
        help=f"seconds for all of it; default {SECONDS:g}",
    )
    valid = f"seconds for which a pass is reused; 0: never; default {VALID_SECONDS:g}"
    parser.add_argument("--valid-seconds", type=number(0, LONGEST_SECONDS), default=VALID_SECONDS, help=valid)
    left_out = "comma-separated checks to leave out; own: all of your own"
    parser.add_argument("--without", type=check_names, default=(), metavar="NAMES", help=left_out)


def check_names(text: str) -> tuple[str, ...]:
    """An option's type: comma-separated names of checks."""
    return tuple(map(check_name, filter(None, text.split(","))))


def carry_out(arguments: argparse.Namespace) -> int:
    """Check the node within the seconds; returns the exit code."""
    began, match = time.monotonic(), _JOB_ID.fullmatch(os.environ.get("SLURM_JOB_ID", ""))
    os.environ.setdefault("PATH", PATH)
    ends_at = began + arguments.seconds
    until = ends_at - min(RESERVE_SECONDS, arguments.seconds / 4)
    terms = Terms(arguments.level, arguments.valid_seconds, arguments.without, until, match[0] if match else "")
    try:
        answer = _answer(partial(_look, arguments, terms), until, ends_at)
    except Exception as error:
        answer = _broken(error)
    fields = {"job": terms.job, "verdict": answer.verdict, "found": answer.reason}
    fields["seconds"] = f"{time.monotonic() - began:.1f}"
    if answer.verdict == Verdict.FAILED:
        logger.error("the node has failed: the job must not start here", extra=fields)
        return EXIT_DRAINS
    level = logging.INFO if answer.verdict == Verdict.OK else logging.WARNING
    logger.log(level, "the job may start here", extra=fields)
    return EXIT_STARTS


def _answer(look: Callable[[Say], None], until: float, ends_at: float) -> PrologVerdict:
    """Return the verdict of the check process. It is a separate process that is ended in time: reading a file may hang
    as well.

    After a bad verdict it may go on, to report it.
    """
    reader, writer = os.pipe()
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        _be_the_look(look, parent, writer)
    os.close(writer)
    try:
        line = _line(reader, until)
        if line is None:
            return PrologVerdict(Verdict.FAILED, "it hangs: the checks gave no answer in time")
        if not line:
            return PrologVerdict(Verdict.UNKNOWN, "the checks ended without an answer")
        answer = PrologVerdict(**read_json(line))
        _line(reader, min(time.monotonic() + REPORT_SECONDS, ends_at - END_SECONDS))
        return answer
    finally:
        os.close(reader)
        _end(pid, ends_at)


def _be_the_look(look: Callable[[Say], None], parent: int, writer: int) -> NoReturn:
    """Run the checks in the separate process, which ends with its parent and ends its tools with it.

    It closes Slurm's pipe: slurmd waits for the end of that, and so for a process that cannot be killed.
    """
    say = partial(_say, writer)
    try:
        killed_with(parent)()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        end_well_when_terminated()
        look(say)
    except Exception as error:  # after the answer, nobody reads the pipe
        say(_broken(error))
    finally:
        os._exit(0)


def _say(writer: int, answer: PrologVerdict) -> None:
    short = replace(answer, reason=clip(answer.reason, SAID_CHARACTERS))
    os.write(writer, f"{json.dumps(asdict(short))}\n".encode())


def _broken(error: Exception) -> PrologVerdict:
    return PrologVerdict(Verdict.UNKNOWN, f"the node was not checked: {type(error).__name__}: {error}")


def _line(reader: int, until: float) -> bytes | None:
    """Return the next line; empty where the other end was closed first, None at the deadline."""
    news, data = select.poll(), b""
    news.register(reader, select.POLLIN)
    while not data.endswith(b"\n"):
        rest = until - time.monotonic()
        if rest <= 0 or not news.poll(rest * 1000):
            return None
        more = os.read(reader, _READ_BYTES)
        if not more:
            return b""
        data += more
    return data


def _end(pid: int, ends_at: float) -> None:
    """Kill the check process. One that blocks in the driver cannot be killed, and is left behind."""
    for sent, seconds in ((signal.SIGTERM, END_SECONDS - KILL_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
        until = min(time.monotonic() + seconds, ends_at)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, sent)
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if time.monotonic() >= until:
                break
            time.sleep(TICK_SECONDS)
        else:
            return


def _look(arguments: argparse.Namespace, terms: Terms, say: Say) -> None:
    """Run all checks: send the verdict, then report the findings. Raises ConfigError, OSError."""
    config, clock = given(arguments), Clock()
    boot_id = config.boot_id()
    checks = [check for check in chosen(config) if not _is_left_out(check.name, terms.without)]
    names = [check.name for check in checks]
    asked = {"node_id": config.node_id, "boot_id": boot_id, "level": terms.level, "checks": names}
    passes = _Passes(config, asked, clock)
    if passes.is_valid(terms.valid_seconds):
        say(PrologVerdict(Verdict.OK, "the node has passed recently"))
        return
    place = CheckContext(config, run_tool)
    rows = [row for row in _rows(checks, place, terms) if row.verdict != NOT_HERE]
    verdicts = [Verdict(row.verdict) for row in rows]
    words = [f"{row.check}: {'; '.join(row.said)}" for row in rows if row.verdict != Verdict.OK]
    diagnosis = ToolReport(Verdict.OK)
    if Verdict.FAILED not in verdicts:
        diagnosis = _diagnosed(boot_id, place, terms, passes, clock)
        words += [f"dcgmi diag: {diagnosis.reason}"] * bool(diagnosis.reason)
    worst = max([*verdicts, diagnosis.verdict], key=GRAVITY.index)
    passes.keep(worst, terms.valid_seconds)
    say(PrologVerdict(worst, "; ".join(words) or f"{len(rows)} checks found nothing"))
    if diagnosis.verdict is Verdict.FAILED:
        _report(diagnosis, config, boot_id, terms.job, clock.utc_now())


def _is_left_out(name: str, without: tuple[str, ...]) -> bool:
    is_own = own.is_name(name) and own.FOLDER in without
    return is_own or name in (*_NOT_OF_A_PROLOG, *without)


def _rows(checks: Sequence[NodeCheck], place: CheckContext, terms: Terms) -> Iterator[CheckRow]:
    """Return the row of each check. A check that hangs has failed even with a shortened deadline, since it blocks the
    prolog.

    An operator's own check has not: a broken one is broken on all nodes, and would drain them all.
    """
    rest = max(0.1, terms.rest_seconds)
    timely = [replace(check, deadline_seconds=min(check.deadline_seconds, rest)) for check in checks]
    for answer, terms_of_it, seconds in answers_of(timely, place):
        row = row_of(answer, terms_of_it, seconds)
        is_cut = answer.hung and terms_of_it.deadline_seconds == rest and not own.is_name(answer.name)
        yield replace(row, verdict=Verdict.FAILED.value) if is_cut else row


def _diagnosed(boot_id: str, place: CheckContext, terms: Terms, passes: "_Passes", clock: Clock) -> ToolReport:
    """Return the verdict of DCGM's diagnostic. OK without a reason: this node has nothing for it to test."""
    if not terms.level or not has_nvidia(place):
        return ToolReport(Verdict.OK)
    if _is_mig(place):
        return ToolReport(Verdict.OK, reason="left out under MIG")
    needed = HEALTHY_SECONDS[terms.level]
    patience = terms.rest_seconds - needed
    if patience <= 0:
        return unknown(f"left out: level {terms.level} takes up to {needed} s, give more --seconds")
    until = clock.utc_now().timestamp() + patience
    command = diag.DiagnoseCommand(terms.level, "prolog", boot_id, until)
    with diag.alone(Path(place.config.orders_dir), command, place.config, clock) as refusal:
        if refusal:
            return unknown(f"left out: other diagnostics run here ({refusal})")
        if passes.is_valid(terms.valid_seconds):  # of a simultaneous prolog
            return ToolReport(Verdict.OK)
        [(diagnosis, _, _)] = diag.run_all(replace(command, deadline_seconds=terms.rest_seconds), place.config, clock)
    return diagnosis


def _is_mig(place: CheckContext) -> bool:
    """Whether a GPU is split into MIG instances: DCGM's diagnostic does not run there."""
    output = place.run(MIG_QUERY, MIG_SECONDS)
    return "Enabled" in (line.strip() for line in output.text.splitlines())


def _report(diagnosis: ToolReport, config: AgentConfig, boot_id: str, job: str, at: datetime) -> None:
    """Send the findings. All are stored first: the watching agent sends those that this process cannot."""
    events = list(events_of(diagnosis, EventFactory(identity(config), boot_id), job, at))
    spool, clock = open_spool(config), Clock()
    spool.put(events)
    bus = event_bus(config, clock)
    for event in events:
        report(event, spool, bus)


def events_of(diagnosis: ToolReport, event_factory: EventFactory, job: str, at: datetime) -> Iterator[HealthEvent]:
    """Create events for the findings that made the diagnostic fail. Without findings, as for one that hangs, there is a
    code of its own.

    Where the catalog rates none as FAILED, all are reported, because the diagnostic has failed nevertheless.
    """
    grave = [finding for finding in diagnosis.findings if verdict_of(finding) is Verdict.FAILED]
    unnamed = Finding(Family.dcgm, UNNAMED, None, diagnosis.reason, verdict=Verdict.FAILED)
    for place, finding in enumerate((grave or list(diagnosis.findings) or [unnamed])[:FINDINGS]):
        yield event_factory.found(
            finding,
            source=dcgm.CHECK.name,
            position=f"prolog/{job}/{at.timestamp()}/{place}",
            at=at,
            evidence=f"dcgmi diag in the prolog of job {job or '?'}: {finding.message or diagnosis.reason}",
        )


class _Passes:
    """Stores the last pass of this node, in root's folder: of the same node, boot, level and checks.

    It is dated by the seconds since boot, which nobody can set, so setting the clock does not extend it.
    """

    def __init__(self, config: AgentConfig, terms: dict[str, object], clock: Clock) -> None:
        self._folder, self._terms, self._clock = Path(config.orders_dir), terms, clock

    def is_valid(self, seconds: float) -> bool:
        """Whether there is a pass that is not older than these seconds."""
        record = self._read() if seconds else None
        if record is None:
            return False
        at = record.pop("at", None)
        if record != self._terms or not isinstance(at, float):
            return False
        return 0 <= self._clock.since_boot() - at < seconds

    def keep(self, verdict: str, seconds: float) -> None:
        """Store a pass, where everything could be checked. A node that has failed has no pass."""
        file = self._folder / PASS_FILE
        try:
            if verdict in (Verdict.OK, Verdict.DEGRADED) and seconds:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                replace_file(file, json.dumps({**self._terms, "at": self._clock.since_boot()}), 0o600)
            elif verdict == Verdict.FAILED:
                file.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("the prolog's pass cannot be stored", extra={"file": file, "why": error})

    def _read(self) -> dict[str, object] | None:
        """Read the stored pass, if it is root's own."""
        try:
            folder = open_folder(self._folder)
        except OSError:
            return None
        try:
            with open_file(PASS_FILE, inside=folder) as file:
                is_ours, text = is_own(file.fileno()) and is_own(folder), file.read(PASS_CHARACTERS)
            record = read_json(text) if is_ours else None
        except (OSError, ValueError):
            return None
        finally:
            os.close(folder)
        return record if isinstance(record, dict) else None
