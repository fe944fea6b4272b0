"""Parses what Slurm's `sinfo` and `squeue` print with nodeheal's formats. Pure, standard library.

Their JSON changed its shape with nearly every release, and `squeue --json` of 22.05 ignores its filters. The format
options did not change.
"""

import re
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nodeheal.contract import words

# Slurm prints times in its machine's time zone. With this environment `sinfo` and `squeue` print epoch seconds.
TIMES = {"SLURM_TIME_FORMAT": "%s"}
# The fields of `sinfo --format`: name, address, state, who gave the reason and when, the reason.
_NODE_FIELDS = ("%N", "%o", "%T", "%u", "%H", "%E")
# The fields of `squeue --Format`, and how many characters of each Slurm prints at most: owners choose some of them.
_JOB_FIELDS = {
    "JobArrayID": 64,
    "State": 20,
    "UserName": 64,
    "Requeue": 8,
    "RestartCnt": 12,
    "BatchFlag": 8,
    "Partition": 64,
    "NumNodes": 12,
    "NodeList": 256,
    "PriorityLong": 20,
    "exit_code": 12,
    "SubmitTime": 20,
    "StartTime": 20,
    "EndTime": 20,
    "Reason": 64,
    "Name": 64,
}
# What a record may have at most: a character has up to four bytes, and each field a mark.
_RECORD_CHARACTERS = 4 * sum(_JOB_FIELDS.values())
# nodeheal's reason is exactly this and the incident's id: a person's may begin with it, too.
OUR_REASON = "nodeheal:"
NO_REASON = "none"

# Suffixes of a state in `sinfo`: not responding, powered off, and so on. The word before it is the state.
_MARKS = "*~#!%$@^-+"
# States in which Slurm gives a node work; unknown: as soon as slurmctld, which has lost its state, hears from it.
_IN_SERVICE = frozenset({"allocated", "completing", "idle", "mixed", "planned", "reserved", "blocked", "unknown"})
# The state of a job whose nodes are not free yet: it has ended, or was requeued.
COMPLETING = "COMPLETING"
# States of a job that has ended (squeue(1), JOB STATE CODES).
_OVER = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED"}
    | {"TIMEOUT"}
)
# States of a job that waits for its nodes: its start time is a forecast.
_WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
# Reasons that Slurm itself gives, from the source of 22.05 and of 26.05: src/slurmctld (agent.c, job_mgr.c, node_mgr.c,
# ping_nodes.c, power_save.c, proc_req.c), src/slurmd/slurmstepd, src/interfaces/gres.c, slurm_errno.c.
_SLURMS_WORDS = frozenset(
    {
        "Not responding",
        "Prolog error",
        "Prolog/Epilog failure",
        "Epilog error",
        "Job env setup error",
        "batch job complete failure",
        "Kill task failed",
        "Job step not running",
        "Duplicate jobid",
        "Bad core count",
        "SlurmdSpoolDir is full",
        "Node unexpectedly rebooted",
        "ResumeTimeout reached",
        "Reboot ASAP",
        "reboot complete",
        "reboot issued",
        "reboot requested",
        "reboot timed out",
    }
)
_STEPD = re.compile(r"(?:Kill task failed|Job step not running) \(JobId=\d+ StepId=[\w.+-]+\)")  # since 25.05
# Differences to the node's configuration; several are separated by commas. Each is matched whole: a person may write
# "Low RealMemory, ada swaps a DIMM", too. Those about cores, features and links in gres.conf are not here: a person
# corrects that file.
_GRES = r"gres/[\w.-]+(?::[\w.-]+)?"
_MISFITS = (
    r"Low socket\*core\*thread count",
    r"Low CPUs",
    r"Low RealMemory \(reported:\d+ < \d+\.\d+% of configured:\d+\)",
    r"Low TmpDisk",
    r"CoreSpec differ",
    r"Could not unpack gres data",
    rf"{_GRES} count (?:reported lower than configured|too low) \(\d+ < \d+\)",
    rf"{_GRES} count changed and jobs are using them \(\d+ != \d+\)",
    rf"{_GRES} type changed and jobs are using them",
    rf"{_GRES} type \([\w.-]+\) reported but not configured",
)
_MISFIT = re.compile(rf"(?:{'|'.join(_MISFITS)})(?:, (?:{'|'.join(_MISFITS)}))*")
_THEN = " : "  # precedes what Slurm adds to an existing reason


@dataclass(frozen=True)
class SlurmNode:
    """A node as Slurm has it. `state`: Slurm's long word, without suffixes. `since`: epoch seconds of the reason."""

    name: str
    address: str
    state: str
    reason: str = ""
    reason_by: str = ""
    since: int | None = None

    @property
    def is_in_service(self) -> bool:
        """Whether Slurm gives it work."""
        return self.state in _IN_SERVICE

    @property
    def incident(self) -> str:
        """Return the incident in nodeheal's reason; empty: nodeheal did not give the reason. Slurm may have added to
        it.
        """
        ours, *added = self.reason.split(_THEN)
        named = ours.removeprefix(OUR_REASON)
        is_ours = named != ours and re.fullmatch(words.INCIDENT, named) and all(map(_is_slurms, added))
        return named if is_ours else ""

    @property
    def is_ours(self) -> bool:
        """Whether nodeheal gave the reason."""
        return bool(self.incident)

    def is_ours_for_another(self, incident: str) -> bool:
        """Whether nodeheal gave the reason, for another incident than this one."""
        return self.incident not in ("", incident)

    @property
    def is_by_person(self) -> bool:
        """Whether somebody else took it out of service: neither nodeheal nor Slurm itself."""
        return not self.is_in_service and not self.is_ours and not all(map(_is_slurms, self.reason.split(_THEN)))

    @property
    def taken_by(self) -> str:
        """Return who took it out of service, in words; empty: it is in service, or has no reason."""
        if self.is_in_service or not self.reason:
            return ""
        return "nodeheal" if self.is_ours else "a person" if self.is_by_person else "Slurm"


@dataclass(frozen=True)
class SlurmJob:
    """A job in Slurm. `job_id`: as for `scontrol`, with the index of an array's task; waiting tasks share one,
    `12_[3-7]`. Times are epoch seconds, or None before the event; one that is COMPLETING because it was requeued ends
    in the future. `exit_code` and `signal`: how it ended; None: it has not, or Slurm does not report it. `is_held`: it
    starts only when somebody releases it.
    """

    job_id: str
    state: str
    user: str
    may_requeue: bool
    restarts: int
    partition: str
    nodes: int
    node_list: str
    exit_code: int | None = None
    signal: int | None = None
    submitted_at: int | None = None
    started_at: int | None = None
    ended_at: int | None = None
    reason: str = ""
    name: str = ""
    is_held: bool = False

    @property
    def is_over(self) -> bool:
        """Whether it has ended, successfully or not."""
        return self.state in _OVER

    @property
    def waits(self) -> bool:
        """Whether it has no nodes yet, or none any more."""
        return self.state in _WAITING

    @property
    def is_leaving(self) -> bool:
        """Whether it has ended, was cancelled or was requeued, whether or not its nodes are free already."""
        return self.is_over or self.state == COMPLETING

    @property
    def has_failed(self) -> bool:
        """Whether its own exit code has ended it. Slurm still has it, and `scontrol requeue` restarts it."""
        return self.is_leaving and self.reason == "NonZeroExitCode"


def node_format(mark: str) -> str:
    """Return the format for `sinfo --Node --noheader --format`. `mark`: an unpredictable word that ends each field.

    A reason may contain anything, including line breaks and text that looks like another node, and so may a job's name.
    Neither can contain a word that is generated for the query.
    """
    return "".join(f"{field}{mark}" for field in _NODE_FIELDS)


def job_format(mark: str) -> str:
    """Return the format for `squeue --noheader --Format`."""
    return ",".join(f"{field}:{width}{mark}" for field, width in _JOB_FIELDS.items())


def parse_nodes(text: str, mark: str) -> list[SlurmNode]:
    """Parse the nodes of `sinfo`, each once, whatever partitions it is in. Raises ValueError where there is none."""
    nodes: dict[str, SlurmNode] = {}
    for name, address, state, reason_by, since, reason in _records(text, mark, _NODE_FIELDS):
        explanation = ("", "", None) if reason in (NO_REASON, "") else (reason, reason_by, _time(since))
        nodes.setdefault(name, SlurmNode(name, address, state.rstrip(_MARKS), *explanation))
    if not nodes:
        raise ValueError(f"sinfo printed no node: {text[:200]!r}")
    return list(nodes.values())


def parse_jobs(parts: Iterable[bytes], mark: str) -> Iterator[SlurmJob]:
    """Parse the jobs of `squeue` as it prints them; it keeps one at a time. Raises ValueError, which quotes the invalid
    record.
    """
    decode, rest = getincrementaldecoder("utf-8")("replace").decode, ""
    for part in parts:
        *values, rest = (rest + decode(part)).split(mark)
        whole = len(values) - len(values) % len(_JOB_FIELDS)
        yield from (_job(values[at : at + len(_JOB_FIELDS)]) for at in range(0, whole, len(_JOB_FIELDS)))
        rest = mark.join([*values[whole:], rest])
        if len(rest) > _RECORD_CHARACTERS:
            break
    if rest.strip():
        raise ValueError(f"Slurm printed {rest[-200:]!r}, which does not end with the requested mark")


def parse_config(text: str) -> dict[str, str]:
    """Parse the settings of `scontrol show config`; unset ones are empty. Raises ValueError where there is no version.

    Its last lines state which controllers answer: these are under `CONTROLLERS`. A second table, of cgroup.conf, may be
    between them and is ignored.
    """
    settings: dict[str, str] = {}
    for line in _lines(text):
        key, is_setting, value = line.partition("=")
        if is_setting:
            settings.setdefault(key.strip(), "" if value.strip() == "(null)" else value.strip())
    if not settings.get("SLURM_VERSION"):
        raise ValueError(f"scontrol printed no configuration: {text[:200]!r}")
    answers = [line.strip() for line in _lines(text) if line.startswith("Slurmctld(")]
    return settings | {"CONTROLLERS": ", ".join(answers)}


def _is_slurms(reason: str) -> bool:
    return reason in _SLURMS_WORDS or any(pattern.fullmatch(reason) for pattern in (_STEPD, _MISFIT))


def _records(text: str, mark: str, fields: Sequence[str]) -> Iterator[list[str]]:
    """Split the records into values, each on one line. Raises ValueError."""
    *values, rest = text.split(mark)
    width = len(fields)
    if rest.strip() or len(values) % width:
        raise ValueError(f"Slurm printed {text[-200:]!r}, which does not end with the requested mark")
    for at in range(0, len(values), width):
        yield [" ".join(value.split()) for value in values[at : at + width]]


def _job(values: Sequence[str]) -> SlurmJob:
    parts = [" ".join(value.split()) for value in values]
    job_id, state, user, requeue, restarts, is_batch, partition, nodes, node_list, *more = parts
    priority, status, *times, reason, name = more
    try:
        submitted_at, started_at, ended_at = map(_time, times)
        exit_code, signal = (None, None) if state not in _OVER else _ended(status)
        return SlurmJob(
            job_id,
            state,
            user,
            # Only a batch script can be restarted without the person who typed the command.
            may_requeue=requeue == "1" and is_batch == "1",
            restarts=int(restarts),
            partition=partition,
            nodes=int(nodes),
            node_list=node_list,
            exit_code=exit_code,
            signal=signal,
            submitted_at=submitted_at,
            started_at=None if state in _WAITING else started_at,
            ended_at=ended_at if state in _OVER or state == COMPLETING else None,
            reason="" if reason == "None" else reason,
            name=name,
            is_held=state in ("PENDING", COMPLETING) and priority == "0",
        )
    except ValueError:
        raise ValueError(f"squeue printed {parts!r:.200}, which is not a job") from None


def _ended(status: str) -> tuple[int | None, int | None]:
    """Return exit code and signal: Slurm 22.05 prints a wait(2) status, 24.11 the two with a colon between."""
    code, colon, signal = status.partition(":")
    if not code.isdecimal() or (colon and not signal.isdecimal()):
        return None, None
    return (int(code), int(signal)) if colon else (int(code) >> 8, int(code) & 0x7F)


def _time(text: str) -> int | None:
    """Parse epoch seconds. Slurm has several words for a missing time."""
    return int(text) if text.isdecimal() else None


def _lines(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if line.strip())
