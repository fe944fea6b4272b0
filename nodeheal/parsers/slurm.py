"""Reads what Slurm's `sinfo` and `squeue` print with a format of ours. Pure, standard library.

Their JSON changed its shape with nearly every release, and `squeue --json` of 22.05 ignores its filters. The format
options did not change.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

# What `sinfo --Node --noheader --format` is asked for: name, address, state, who gave the reason, the reason. The last
# one may hold any character.
NODE_FORMAT = "%N|%o|%T|%u|%E"
# The same for `squeue --noheader --Format`. The job's name is left out: its owner may put a line break into it, and so
# the line of another job.
JOB_FORMAT = (
    "JobArrayID:|,State:|,UserName:|,Requeue:|,RestartCnt:|,BatchFlag:|,Partition:|,NumNodes:|,NodeList:|,EndTime:|,"
    "Reason:|"
)
# By this a reason is known as ours.
OUR_REASON = "nodeheal:"
NO_REASON = "none"

# How `sinfo` marks a state on top: not responding, powered off, and so on. The word before it is the state.
_MARKS = "*~#!%$@^-+"
# States in which Slurm gives a node work.
_IN_SERVICE = frozenset({"allocated", "completing", "idle", "mixed", "planned", "reserved", "blocked"})
# What slurmctld gives as a reason by itself, by its source (src/slurmctld: agent.c, job_mgr.c, node_mgr.c,
# ping_nodes.c, power_save.c) and slurm_errno.c. An operator's reason begins otherwise.
_SLURMS_OWN = (
    "Not responding",
    "Prolog error",
    "Prolog/Epilog failure",
    "Epilog error",
    "Job env setup error",
    "Kill task failed",
    "Duplicate jobid",
    "Node unexpectedly rebooted",
    "ResumeTimeout reached",
    "reboot complete",
    "reboot issued",
    "reboot requested",
    "reboot timed out",
    "Low ",
    "gres/",
)


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
    def is_ours(self) -> bool:
        """Whether nodeheal gave the reason."""
        return self.reason.startswith(OUR_REASON)

    @property
    def is_by_person(self) -> bool:
        """Whether somebody else took it out of service: neither nodeheal nor Slurm by itself."""
        return not self.is_in_service and not self.is_ours and not self.reason.startswith(_SLURMS_OWN)


@dataclass(frozen=True)
class SlurmJob:
    """A job that Slurm has. `job_id`: as `scontrol` takes it, with the index of an array's task.

    `ends_at`: epoch seconds when it has ended, or must; None: it has no limit.
    """

    job_id: str
    state: str
    user: str
    may_requeue: bool
    restarts: int
    partition: str
    nodes: int
    node_list: str
    ends_at: float | None = None
    reason: str = ""

    @property
    def is_ending(self) -> bool:
        """Whether it has ended, was cancelled or was requeued, whether or not its nodes are free already."""
        return self.state in ("COMPLETING", "FAILED")

    @property
    def has_failed(self) -> bool:
        """Whether its own exit code has ended it. Slurm still knows it, and `scontrol requeue` starts it anew."""
        return self.is_ending and self.reason == "NonZeroExitCode"


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


def _job(line: str) -> SlurmJob:
    parts = [part.strip() for part in line.split("|")]
    try:
        job_id, state, user, requeue, restarts, is_batch, partition, nodes, node_list, ends_at, reason, _ = parts
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
            ends_at=_epoch(ends_at),
            reason=reason,
        )
    except ValueError:
        raise ValueError(f"squeue printed {line[:200]!r}, which is no job") from None


def _epoch(text: str) -> float | None:
    """A time of Slurm's commands, which say it in the machine's own zone."""
    return None if text in ("N/A", "NONE", "Unknown") else datetime.fromisoformat(text).timestamp()


def _lines(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if line.strip())
