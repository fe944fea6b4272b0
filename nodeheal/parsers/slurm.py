"""Reads what Slurm's `sinfo` and `squeue` print with a format of ours. Pure, standard library.

Their JSON changed its shape with nearly every release, and `squeue --json` of 22.05 ignores its filters. The format
options did not change.
"""

from collections.abc import Iterator
from dataclasses import dataclass

# What `sinfo --Node --noheader --format` is asked for: name, address, state, who gave the reason, the reason. The last
# one may hold any character.
NODE_FORMAT = "%N|%o|%T|%u|%E"
# The same for `squeue --noheader --Format`. The job's name is left out: its owner may put a line break into it, and so
# the line of another job.
JOB_FORMAT = (
    "JobArrayID:|,State:|,UserName:|,Requeue:|,RestartCnt:|,BatchFlag:|,Partition:|,NumNodes:|,NodeList:|,"
    "PriorityLong:|"
)
# By this a reason is known as ours.
OUR_REASON = "nodeheal:"
NO_REASON = "none"

# How `sinfo` marks a state on top: not responding, powered off, and so on. The word before it is the state.
_MARKS = "*~#!%$@^-+"
# States in which Slurm gives a node work; unknown: as soon as slurmctld, which has lost its state, has heard from it.
_IN_SERVICE = frozenset({"allocated", "completing", "idle", "mixed", "planned", "reserved", "blocked", "unknown"})
_WITH_JOBS = frozenset({"allocated", "completing", "draining", "failing", "mixed"})
# What Slurm gives as a reason by itself, by the source of 22.05 and of 26.05: src/slurmctld (agent.c, job_mgr.c,
# node_mgr.c, ping_nodes.c, power_save.c, proc_req.c), src/slurmd/slurmstepd, src/interfaces/gres.c, slurm_errno.c.
_SLURMS_WORDS = frozenset(
    {
        "Not responding",
        "Prolog error",
        "Prolog/Epilog failure",
        "Epilog error",
        "Job env setup error",
        "batch job complete failure",
        "Kill task failed",
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
# After these Slurm says more: numbers, names, and what else does not fit its configuration.
_SLURMS_BEGINNINGS = (
    "Kill task failed (JobId=",
    "Low socket*core",
    "Low CPUs",
    "Low RealMemory",
    "Low TmpDisk",
    "CoreSpec differ",
    "RestrictedCoresPerGPU",
    "Could not unpack gres data",
    "gres/",
)
_THEN = " : "  # before what Slurm adds to a reason that is there


@dataclass(frozen=True)
class SlurmNode:
    """A node as Slurm has it. `state`: Slurm's long word, without the marks on top."""

    name: str
    address: str
    state: str
    reason: str = ""
    reason_by: str = ""

    @property
    def is_in_service(self) -> bool:
        """Whether Slurm gives it work."""
        return self.state in _IN_SERVICE

    @property
    def has_jobs(self) -> bool:
        """Whether a job has it, or is just leaving it: Slurm's words for a node without work are others."""
        return self.state in _WITH_JOBS

    @property
    def is_ours(self) -> bool:
        """Whether nodeheal gave the reason."""
        return self.reason.startswith(OUR_REASON)

    @property
    def is_by_person(self) -> bool:
        """Whether somebody else took it out of service: neither nodeheal nor Slurm by itself."""
        return not self.is_in_service and not self.is_ours and not all(map(_is_slurms, self.reason.split(_THEN)))


@dataclass(frozen=True)
class SlurmJob:
    """A job that Slurm has. `job_id`: as `scontrol` takes it, with the index of an array's task.

    `is_held`: it starts when somebody releases it, and not before.
    """

    job_id: str
    state: str
    user: str
    may_requeue: bool
    restarts: int
    partition: str
    nodes: int
    node_list: str
    is_held: bool


def parse_nodes(text: str) -> list[SlurmNode]:
    """The nodes of `sinfo`, each once, whatever partitions it is in. Raises ValueError where there is none.

    A line that is no node is the rest of a reason, into which an operator has put a line break.
    """
    nodes: dict[str, SlurmNode] = {}
    for line in _lines(text):
        parts = [part.strip() for part in line.split("|", 4)]
        if len(parts) == 5 and parts[0]:
            name, address, state, reason_by, reason = parts
            said = ("", "") if reason in (NO_REASON, "") else (reason, reason_by)
            nodes.setdefault(name, SlurmNode(name, address, state.rstrip(_MARKS), *said))
    if not nodes:
        raise ValueError(f"sinfo printed no node: {text[:200]!r}")
    return list(nodes.values())


def parse_jobs(text: str) -> list[SlurmJob]:
    """The jobs of `squeue`. Raises ValueError, which quotes the line."""
    return [_job(line) for line in _lines(text)]


def parse_config(text: str) -> dict[str, str]:
    """The settings of `scontrol show config`; what is not set is empty. Raises ValueError where there is no version.

    Its last lines say which controllers answer: these stand under `CONTROLLERS`. A second table, of cgroup.conf, may
    stand between and does not count.
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
    return reason in _SLURMS_WORDS or reason.startswith(_SLURMS_BEGINNINGS)


def _job(line: str) -> SlurmJob:
    parts = [part.strip() for part in line.split("|")]
    try:
        job_id, state, user, requeue, restarts, is_batch, partition, nodes, node_list, priority, _ = parts
        return SlurmJob(
            job_id,
            state,
            user,
            # Only a batch script can be started again without the person who typed the command.
            may_requeue=requeue == "1" and is_batch == "1",
            restarts=int(restarts),
            partition=partition,
            nodes=int(nodes),
            node_list=node_list,
            is_held=state == "PENDING" and priority == "0",
        )
    except ValueError:
        raise ValueError(f"squeue printed {line[:200]!r}, which is no job") from None


def _lines(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if line.strip())
