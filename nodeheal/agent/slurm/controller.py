"""Asks a Slurm controller, and changes its nodes and jobs, by Slurm's own commands on its machine.

They get argument lists without a shell, and each has a deadline: a client of a controller that is down waits without
end. What changes something is safe to repeat, and a reason that a person gave is never replaced.
"""

import heapq
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any

from nodeheal.agent.checks.tools import run_tool
from nodeheal.agent.diagnostics.bench import OUTPUT_BYTES, Output
from nodeheal.agent.runtime.stream import NotRun, stream
from nodeheal.parsers import slurm_report
from nodeheal.parsers.slurm import (
    OUR_REASON,
    TIMES,
    SlurmJob,
    SlurmNode,
    job_format,
    node_format,
    parse_jobs,
    parse_nodes,
)

SECONDS = 10.0  # for one of Slurm's commands
NONE = "none"  # an option that is not given, as the SSM document writes it
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
# Slurm's commands print these when no controller has answered: it is down, gone, or its backup takes over.
_NOT_REACHED = ("Unable to contact slurm controller", "standby mode", "Socket timed out", "Zero Bytes were transmitted")
# A job that failed this recently on a node may have failed because of it: the program ends first, the node is drained
# seconds later.
FAILED_SECONDS = 120.0
# States of jobs that have, are leaving, or have left their nodes.
_ON_NODES = "RUNNING,COMPLETING,CONFIGURING,SUSPENDED,STAGE_OUT,STOPPED,SIGNALING,FAILED,NODE_FAIL"
# The same for requeued jobs that wait or run.
_REQUEUED = "PENDING,CONFIGURING,RUNNING,COMPLETING,REQUEUE_HOLD,SPECIAL_EXIT"
# A program may die before the kernel log has the line, and the clocks of a node and its controller differ a little.
BEFORE_SECONDS = 30.0
# Jobs that a fault may have stopped: those of the last seconds, in a large cluster including unrelated ones.
MOST_STOPPED = 8
_LOST = ("FAILED", "NODE_FAIL")
LOST, REQUEUED = "lost", "requeued"  # the outcome of a job from before nodeheal's turn

Run = Callable[[Sequence[str], float], Output]
Stream = Callable[[Sequence[str], float], Iterable[bytes]]


class NoAnswerError(Exception):
    """Slurm has not answered, or its output is not readable."""


@dataclass(frozen=True)
class Requeued:
    """The result of requeueing a job. `is_held`: it waits until a person releases it."""

    requeued: bool
    is_held: bool = False
    why: str = ""


class Controller:
    """A Slurm cluster, through its commands on a machine that has them."""

    def __init__(self, run: Run = run_tool, stream: Stream = stream) -> None:
        """Slurm's commands inherit this process's environment, which sets their time format. `stream` runs `squeue`,
        because any user may submit any number of jobs.
        """
        os.environ.update(TIMES)
        self._run, self._stream = run, stream

    def nodes(self) -> list[SlurmNode]:
        """Return all nodes. Raises NoAnswerError."""
        mark = _mark()
        try:
            return parse_nodes(self._asked("sinfo", "--Node", "--noheader", "--format", node_format(mark)), mark)
        except ValueError as error:
            raise NoAnswerError(str(error)) from None

    def nodes_at(self, addresses: Collection[str]) -> dict[str, SlurmNode]:
        """Return the nodes by these of Slurm's addresses. An address that two nodes share is left out.

        Raises NoAnswerError, also where a node's name looks like an option.
        """
        candidates: dict[str, list[SlurmNode]] = {address: [] for address in addresses}
        for node in self.nodes():
            for address in _addresses_of(node.address) & candidates.keys():
                _name_of(node)
                candidates[address].append(node)
        return {address: nodes[0] for address, nodes in candidates.items() if len(nodes) == 1}

    def jobs(self, nodes: Sequence[SlurmNode]) -> list[SlurmJob]:
        """Return the unfinished jobs with a part on one of these nodes, as many as one answer holds. Raises
        NoAnswerError.

        It includes jobs that had a part, have just failed, and may be requeued.
        """
        return slurm_report.first_jobs(self._concerned(nodes))[0]

    def _concerned(self, nodes: Sequence[SlurmNode]) -> Iterator[SlurmJob]:
        jobs = self._jobs_on(nodes)
        return (job for job in jobs if not job.is_leaving or (job.may_requeue and _has_just_failed(job)))

    def stopped(self, nodes: Sequence[SlurmNode], incident: str) -> dict[str, tuple[SlurmJob, str]]:
        """Return the jobs that the fault of these nodes may have stopped already, by id, each with its outcome.

        LOST: it failed there, and its owner does not allow a requeue. REQUEUED: that was done already, for example by
        its own script. It need not have run there: Slurm does not keep where. Raises NoAnswerError.
        """
        since = _fault_at(incident) - BEFORE_SECONDS
        until = since + BEFORE_SECONDS + FAILED_SECONDS

        def near() -> Iterator[tuple[int, SlurmJob, str]]:
            for job in self._jobs_on(nodes):
                if job.state in _LOST and not job.may_requeue and since <= (job.ended_at or 0) <= until:
                    yield job.ended_at or 0, job, LOST
            for job in self._jobs("--states", _REQUEUED) if nodes else ():
                if job.restarts and since <= (job.submitted_at or 0) <= until:
                    yield job.submitted_at or 0, job, REQUEUED

        newest = heapq.nlargest(MOST_STOPPED, near(), key=lambda entry: entry[0])
        return {job.job_id: (job, what) for _, job, what in newest}

    def _jobs_on(self, nodes: Sequence[SlurmNode]) -> Iterator[SlurmJob]:
        here = ("--nodelist", ",".join(_name_of(node) for node in nodes))
        return self._jobs(*here, "--states", _ON_NODES) if nodes else iter(())

    def report(self) -> dict[str, Any]:
        """Return the nodes out of service and the jobs that Slurm knows, up to the size of one answer. Raises
        NoAnswerError.
        """
        out = [(node, sorted(_addresses_of(node.address))) for node in self.nodes() if not node.is_in_service]
        return slurm_report.pack(out, self._jobs("--states", "all"))

    def drain(self, incidents: Mapping[str, str]) -> dict[str, SlurmNode]:
        """Drain the nodes at these addresses, each with nodeheal's reason, which names its incident. A node with a
        person's reason is left as it is. Raises NoAnswerError.
        """
        before = self.nodes_at(incidents)
        wanted = {
            where: node
            for where, node in before.items()
            if not node.is_by_person and not (_is_drained(node) and node.incident == incidents[where])
        }
        for where, node in wanted.items():
            reason = f"{OUR_REASON}{incidents[where]}"
            self._told("scontrol", "update", f"NodeName={_name_of(node)}", "State=DRAIN", f"Reason={reason}")
        return self.nodes_at(incidents) if wanted else before

    def resume(self, addresses: Collection[str], incident: str = NONE) -> dict[str, SlurmNode]:
        """Resume nodes whose reason is nodeheal's, for this incident if one is given, or Slurm's own."""
        before = self.nodes_at(addresses)
        others = [node for node in before.values() if incident != NONE and node.is_ours_for_another(incident)]
        out = [node for node in before.values() if not node.is_by_person and not node.is_in_service]
        wanted = [node for node in out if node not in others]
        for node in wanted:
            self._told("scontrol", "update", f"NodeName={_name_of(node)}", "State=RESUME")
        return self.nodes_at(addresses) if wanted else before

    def replace(self, addresses: Collection[str], how: str) -> dict[str, tuple[SlurmNode, str]]:
        """Request that the cluster replaces these nodes' machines. Returns why not, in words; empty: requested.

        Only nodes that nodeheal has drained are replaced.
        """
        return {address: (node, self._replace(node, how)) for address, node in self.nodes_at(addresses).items()}

    def _replace(self, node: SlurmNode, how: str) -> str:
        if not node.is_ours:
            by = f"{node.state} by {node.reason_by or 'nobody'}: {node.reason or 'no reason'}"
            return f"nodeheal has not drained {node.name} ({by})"
        command = ("scontrol", "update", f"NodeName={_name_of(node)}", "State=POWER_DOWN_FORCE")
        refused = self._refused(*command, f"Reason={OUR_REASON}{node.incident}")
        hint = "Slurm powers no node down without SuspendProgram and SuspendTime"
        return f"Slurm refuses: {refused}; {hint}" if refused else ""

    def requeue(self, job_id: str, address: str, restarts: int, *, hold: bool = False) -> Requeued:
        """Requeue the job on other nodes. `restarts`: its restart count at the time of the decision.

        `hold`: it waits for a person. Safe to repeat: a job that was requeued in the meantime, or has left the node, is
        not touched.
        """
        node = self.nodes_at([address]).get(address)
        here = self._concerned([node]) if node is not None else ()
        job = next((candidate for candidate in here if candidate.job_id == job_id), None)
        if job is None or job.restarts > restarts:
            return self._gone(job_id, restarts)
        if not job.may_requeue:
            return Requeued(requeued=False, why="its owner does not allow a requeue, or it has no batch script")
        refused = self._refused("scontrol", "requeuehold" if hold else "requeue", job_id)
        if refused and self._gone(job_id, restarts).requeued is False:
            return Requeued(requeued=False, why=refused)
        return Requeued(requeued=True, is_held=hold)

    def _gone(self, job_id: str, restarts: int) -> Requeued:
        """Describe a job that does not run on the node: whether it was requeued since."""
        known = self._jobs("--jobs", job_id, "--states", "all") if self._knows(job_id) else ()
        job = next((candidate for candidate in known if candidate.job_id == job_id), None)
        if job is not None and job.restarts > restarts:
            return Requeued(requeued=True, is_held=job.is_held)
        if job is not None and not job.is_leaving:
            return Requeued(requeued=False, why=f"it is {job.state}, and not on this node")
        return Requeued(requeued=False, why="it had ended by itself, or Slurm no longer knows it")

    def _knows(self, job_id: str) -> bool:
        return not self._refused("scontrol", "show", "job", job_id)

    def _jobs(self, *only: str) -> Iterator[SlurmJob]:
        mark = _mark()
        command = ("squeue", "--noheader", "--Format", job_format(mark), *only)
        try:
            yield from parse_jobs(self._stream(command, SECONDS), mark)
        except NotRun as error:
            raise NoAnswerError(_with_last_line(f"squeue: {error}", error.errors)) from None
        except ValueError as error:
            raise NoAnswerError(str(error)) from None

    def _asked(self, *command: str) -> str:
        output = self._ended(command)
        if output.ran.is_truncated:
            raise NoAnswerError(f"{command[0]}: it printed more than {OUTPUT_BYTES} bytes")
        if output.ran.exit_code != 0:
            raise NoAnswerError(f"{command[0]}: {output.last_words}")
        return output.text

    def _told(self, *command: str) -> None:
        refused = self._refused(*command)
        if refused:
            raise NoAnswerError(f"{' '.join(command[:2])}: {refused}")

    def _refused(self, *command: str) -> str:
        """Return Slurm's error; empty: it succeeded. Raises NoAnswerError where Slurm is out of reach."""
        output = self._ended(command)
        words_said = output.errors.strip() or output.last_words
        if output.ran.exit_code and any(phrase in words_said for phrase in _NOT_REACHED):
            raise NoAnswerError(f"{command[0]}: {words_said}")
        return words_said if output.ran.exit_code else ""

    def _ended(self, command: Sequence[str]) -> Output:
        output = self._run(command, SECONDS)
        if output.ran.error:  # not installed, hung, or not startable
            raise NoAnswerError(no_answer(command[0], output))
        return output


def no_answer(tool: str, output: Output) -> str:
    """Return why one of Slurm's commands gave no answer, with its last output."""
    return _with_last_line(f"{tool}: {output.ran.error}", output.errors)


def _with_last_line(why: str, errors: str) -> str:
    last = errors.strip().rpartition("\n")[2]
    return why + f"; it said {last!r}" * bool(last)


def _has_just_failed(job: SlurmJob) -> bool:
    """Whether it has just failed. A job that its owner cancelled has not failed. A requeued one has an end in the
    future.
    """
    now = time.time()
    return job.has_failed and job.ended_at is not None and now - FAILED_SECONDS < job.ended_at <= now


def _fault_at(incident: str) -> float:
    """Return when the incident's fault was seen, in epoch seconds, from its id; without an incident, some time ago."""
    if incident == NONE:
        return time.time() - FAILED_SECONDS
    return datetime.strptime(incident.split("-")[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC).timestamp()


def _is_drained(node: SlurmNode) -> bool:
    return node.state in ("drained", "draining")


def _name_of(node: SlurmNode) -> str:
    """Return the node's name, which must be safe as an argument. Raises NoAnswerError."""
    if not _NODE_NAME.fullmatch(node.name):
        raise NoAnswerError(f"sinfo printed {node.name[:100]!r}, which is not a valid node name")
    return node.name


def _addresses_of(node_address: str) -> set[str]:
    """Return the addresses of Slurm's NodeAddr: itself, or those of the host that it names."""
    try:
        return {str(ip_address(node_address))}
    except ValueError:
        pass
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(node_address, None)}
    except OSError:
        return set()


def _mark() -> str:
    """Return a random separator that no reason or name can contain."""
    return f"|{secrets.token_urlsafe(6)}|"
