"""`nodeheal-agent slurm`: what the control plane has done on the machine of a Slurm controller, and what a person sees.

Each verb prints one JSON object, except `doctor`. Slurm's commands get argument lists and no shell, and each has a
deadline: a client waits for ever for a controller that is down. Nothing is done twice by repeating a verb, and a reason
that a person gave is never replaced.
"""

import argparse
import json
import os
import re
import secrets
import socket
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any

from nodeheal.agent.checks.tools import run_tool
from nodeheal.agent.diagnostics.bench import OUTPUT_BYTES, Output
from nodeheal.agent.node_command import EXIT_DONE, EXIT_REFUSED, LATEST, number, whole_number
from nodeheal.contract import words
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

EXIT_NO_ANSWER = 75  # as sysexits(3) has a failure that may pass: nothing can be said, asking again is harmless
SECONDS = 10.0  # that one of Slurm's commands may take
ACTION_REPLACE = "Action:Replace"  # the reason that HyperPod's own daemon looks for
POWER_DOWN = "power_down"
NONE = "none"  # an option that is not given, as the SSM document says it
ADDRESSES = 50  # of nodes that one call is about
_INCIDENT = re.compile(words.INCIDENT)
_JOB_ID = re.compile(r"[0-9]{1,10}([_+][0-9]{1,10})?")  # of an array's task, of a part of a heterogeneous job
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_NEVER_ENDS = 2**31 - 1
# So Slurm's commands say that no controller in charge has answered: it is down, gone, or its backup takes over.
_NOT_REACHED = ("Unable to contact slurm controller", "standby mode", "Socket timed out", "Zero Bytes were transmitted")
# A job that has failed so lately on a node may have failed by its fault: the program ends first, its node is drained
# seconds later.
FAILED_SECONDS = 120.0
# Jobs that have, are leaving, or have left their nodes.
_ON_NODES = "RUNNING,COMPLETING,CONFIGURING,SUSPENDED,STAGE_OUT,STOPPED,SIGNALING,FAILED,NODE_FAIL"
# The same, of jobs that wait, or run, since they were requeued.
_REQUEUED = "PENDING,CONFIGURING,RUNNING,COMPLETING,REQUEUE_HOLD,SPECIAL_EXIT"
# A program may die before the kernel log has the line, and the clocks of a node and its controller differ a little.
BEFORE_SECONDS = 30.0
MOST_STOPPED = 8  # jobs that a fault may have stopped: those of the last seconds, and in a large cluster of others too
# What the control plane is told of a job that is to be requeued: SSM hands 24,000 characters on.
_OF_A_JOB = (
    "job_id",
    "state",
    "user",
    "may_requeue",
    "restarts",
    "partition",
    "nodes",
    "node_list",
    "has_failed",
    "name",
)
_LOST = ("FAILED", "NODE_FAIL")
LOST, REQUEUED = "lost", "requeued"  # what had become of a job before nodeheal came

Run = Callable[[Sequence[str], float], Output]


class NoAnswerError(Exception):
    """Slurm has not answered, or nobody can read what it said."""


@dataclass(frozen=True)
class Requeued:
    """What became of a job that was to be requeued. `is_held`: it waits for a person, who releases it."""

    requeued: bool
    is_held: bool = False
    why: str = ""


class Controller:
    """A Slurm cluster, as its own commands show it on a machine that has them."""

    def __init__(self, run: Run = run_tool) -> None:
        """Slurm's commands inherit this process's environment, and with it how they are to print times."""
        os.environ.update(TIMES)
        self._run = run

    def nodes(self) -> list[SlurmNode]:
        """All nodes. Raises NoAnswerError."""
        mark = _mark()
        return _read(parse_nodes, self._asked("sinfo", "--Node", "--noheader", "--format", node_format(mark)), mark)

    def nodes_at(self, addresses: Collection[str]) -> dict[str, SlurmNode]:
        """The nodes that Slurm reaches at these addresses, by address. One that two nodes have is left out.

        Raises NoAnswerError, also where a node's name could be taken for an option.
        """
        found: dict[str, list[SlurmNode]] = {address: [] for address in addresses}
        for node in self.nodes():
            for address in _addresses_of(node.address) & found.keys():
                _name_of(node)
                found[address].append(node)
        return {address: nodes[0] for address, nodes in found.items() if len(nodes) == 1}

    def jobs(self, nodes: Sequence[SlurmNode]) -> list[SlurmJob]:
        """The jobs that have a part on one of these nodes and have not ended. Raises NoAnswerError.

        With them come those that had a part, have just failed, and may be requeued.
        """
        jobs = self._jobs_on(nodes)
        return [job for job in jobs if not job.is_leaving or (job.may_requeue and _has_just_failed(job))]

    def stopped(self, nodes: Sequence[SlurmNode], incident: str) -> dict[str, tuple[SlurmJob, str]]:
        """The jobs that the fault of these nodes may have stopped already, by id, each with what became of it.

        LOST: it failed there, and its owner does not let it be requeued. REQUEUED: that was done, by its own script for
        example. It need not have run there: Slurm forgets where. Raises NoAnswerError.
        """
        since = _fault_at(incident) - BEFORE_SECONDS
        found = [(job, LOST) for job in self._jobs_on(nodes) if job.state in _LOST and not job.may_requeue]
        found += [(job, REQUEUED) for job in self._jobs("--states", _REQUEUED) if job.restarts] if nodes else []
        at = {job.job_id: (job.ended_at if what == LOST else job.submitted_at) or 0 for job, what in found}
        near = [one for one in found if since <= at[one[0].job_id] <= since + BEFORE_SECONDS + FAILED_SECONDS]
        newest = sorted(near, key=lambda one: -at[one[0].job_id])[:MOST_STOPPED]
        return {job.job_id: (job, what) for job, what in newest}

    def _jobs_on(self, nodes: Sequence[SlurmNode]) -> list[SlurmJob]:
        here = ("--nodelist", ",".join(_name_of(node) for node in nodes))
        return self._jobs(*here, "--states", _ON_NODES) if nodes else []

    def report(self) -> dict[str, Any]:
        """The nodes out of service and the jobs that Slurm knows, so many as one answer holds. Raises NoAnswerError."""
        out = [(node, sorted(_addresses_of(node.address))) for node in self.nodes() if not node.is_in_service]
        return slurm_report.pack(out, self._jobs("--states", "all"))

    def drain(self, addresses: Collection[str], incident: str) -> dict[str, SlurmNode]:
        """Take no new work on these nodes, with our reason. Where a person has given one, the node is left as it is."""
        before = self.nodes_at(addresses)
        reason = f"{OUR_REASON}{incident}"
        wanted = [
            node
            for node in before.values()
            if not node.is_by_person and not (_is_drained(node) and node.incident == incident)
        ]
        if not wanted:
            return before
        names = ",".join(_name_of(node) for node in wanted)
        self._told("scontrol", "update", f"NodeName={names}", "State=DRAIN", f"Reason={reason}")
        return self.nodes_at(addresses)

    def resume(self, addresses: Collection[str], incident: str = NONE) -> dict[str, SlurmNode]:
        """Take new work again, where the reason is nodeheal's for this incident, if one is given, or Slurm's own."""
        before = self.nodes_at(addresses)
        others = [node for node in before.values() if incident != NONE and node.is_ours_for_another(incident)]
        out = [node for node in before.values() if not node.is_by_person and not node.is_in_service]
        wanted = [node for node in out if node not in others]
        for node in wanted:
            self._told("scontrol", "update", f"NodeName={_name_of(node)}", "State=RESUME")
        return self.nodes_at(addresses) if wanted else before

    def replace(self, addresses: Collection[str], how: str) -> dict[str, tuple[SlurmNode, str]]:
        """Have the cluster replace these nodes' machines; and why not, in words. Empty: that is asked for.

        It is asked for where nodeheal has drained the node, and nowhere else.
        """
        return {address: (node, self._replace(node, how)) for address, node in self.nodes_at(addresses).items()}

    def _replace(self, node: SlurmNode, how: str) -> str:
        if node.reason == ACTION_REPLACE:
            return ""
        if not node.is_ours:
            by = f"{node.state} by {node.reason_by or 'nobody'}: {node.reason or 'no reason'}"
            return f"nodeheal has not drained {node.name} ({by})"
        reason = f"{OUR_REASON}{node.incident}" if how == POWER_DOWN else ACTION_REPLACE
        state = "POWER_DOWN_FORCE" if how == POWER_DOWN else "FAIL"
        told = ("scontrol", "update", f"NodeName={_name_of(node)}", f"State={state}", f"Reason={reason}")
        refused = self._refused(*told)
        hint = "; Slurm powers no node down without SuspendProgram and SuspendTime" if how == POWER_DOWN else ""
        return f"Slurm refuses: {refused}{hint}" if refused else ""

    def requeue(self, job_id: str, address: str, restarts: int, *, hold: bool = False) -> Requeued:
        """Have Slurm restart the job, elsewhere. `restarts`: how often it had been when that was decided.

        `hold`: it waits for a person. Safe to repeat: one that was requeued meanwhile, or
        that has left the node, is not touched.
        """
        node = self.nodes_at([address]).get(address)
        here = {job.job_id: job for job in self.jobs([node])} if node is not None else {}
        job = here.get(job_id)
        if job is None or job.restarts > restarts:
            return self._gone(job_id, restarts)
        if not job.may_requeue:
            return Requeued(requeued=False, why="its owner does not let it be requeued, or it has no batch script")
        refused = self._refused("scontrol", "requeuehold" if hold else "requeue", job_id)
        if refused and self._gone(job_id, restarts).requeued is False:
            return Requeued(requeued=False, why=refused)
        return Requeued(requeued=True, is_held=hold)

    def _gone(self, job_id: str, restarts: int) -> Requeued:
        """Of a job that does not run on the node: whether it was requeued since."""
        known = self._jobs("--jobs", job_id, "--states", "all") if self._knows(job_id) else []
        job = next((one for one in known if one.job_id == job_id), None)
        if job is not None and job.restarts > restarts:
            return Requeued(requeued=True, is_held=job.is_held)
        if job is not None and not job.is_leaving:
            return Requeued(requeued=False, why=f"it is {job.state}, and not on this node")
        return Requeued(requeued=False, why="it had ended by itself, or Slurm does not know it any more")

    def _knows(self, job_id: str) -> bool:
        return not self._refused("scontrol", "show", "job", job_id)

    def _jobs(self, *only: str) -> list[SlurmJob]:
        mark = _mark()
        return _read(parse_jobs, self._asked("squeue", "--noheader", "--Format", job_format(mark), *only), mark)

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
        """What Slurm says against it; empty: it is done. Raises NoAnswerError where Slurm cannot be reached."""
        output = self._ended(command)
        words_said = output.errors.strip() or output.last_words
        if output.ran.exit_code and any(told in words_said for told in _NOT_REACHED):
            raise NoAnswerError(f"{command[0]}: {words_said}")
        return words_said if output.ran.exit_code else ""

    def _ended(self, command: Sequence[str]) -> Output:
        output = self._run(command, SECONDS)
        if output.ran.error:  # not installed, hung, or not to be started
            raise NoAnswerError(no_answer(command[0], output))
        return output


def no_answer(tool: str, output: Output) -> str:
    """Why one of Slurm's commands has not answered, with the last that it said."""
    last = output.errors.strip().rpartition("\n")[2]
    return f"{tool}: {output.ran.error}" + f"; it said {last!r}" * bool(last)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A verb, and what it is about."""
    about = {
        "nodes": "the nodes at these addresses; with none: all nodes",
        "drain": "take no new work there; a person's reason is left as it is",
        "resume": "take new work there again, where the reason is nodeheal's or Slurm's own",
        "replace": "have the cluster replace the machine, where the reason is nodeheal's",
        "jobs": "the jobs that have a part there, or that its fault may have stopped",
        "requeue": "have Slurm restart a job, elsewhere; with --hold once a person has released it",
        "report": "the nodes out of service, and the jobs that Slurm knows, ended ones included",
    }
    verbs = parser.add_subparsers(dest="verb", required=True)
    doctor = verbs.add_parser("doctor", help="say whether Slurm is set up so that its nodes can be healed")
    doctor.add_argument("--json", action="store_true", help="one JSON object a line")
    for name, purpose in about.items():
        verb = verbs.add_parser(name, help=purpose)
        verb.add_argument("--addresses", type=_addresses, default=[], help="of nodes, with commas between")
        verb.add_argument("--incident", type=_text(_INCIDENT), default=NONE, help="it is named in the reason")
        verb.add_argument("--job", type=_text(_JOB_ID), default=NONE, help="its id: 12, or 12_3 in an array")
        verb.add_argument("--how", choices=("action_replace", POWER_DOWN, NONE), default=NONE, help="of `replace`")
        verb.add_argument("--restarts", type=whole_number(0, _NEVER_ENDS), default=0, help="as they were then")
        verb.add_argument("--hold", choices=("yes", "no"), default="no", help="`requeue`: a person must release it")
        until = "epoch seconds; refused from then on"
        verb.add_argument("--expires-at", type=number(0, LATEST), default=float(LATEST), help=until)


def carry_out(arguments: argparse.Namespace) -> int:
    """Do it, and print what came of it; the exit code."""
    if arguments.verb == "doctor":
        from nodeheal.agent import slurm_doctor

        return slurm_doctor.doctor(as_json=arguments.json)
    if not time.time() < arguments.expires_at:
        return _print({"error": "the command has expired"}, EXIT_REFUSED)
    wrong = _what_is_missing(arguments)
    if wrong:
        return _print({"error": wrong}, EXIT_REFUSED)
    try:
        return _print(_done(arguments, Controller()), EXIT_DONE)
    except NoAnswerError as error:
        return _print({"error": str(error)}, EXIT_NO_ANSWER)


def _what_is_missing(arguments: argparse.Namespace) -> str:
    verb = arguments.verb
    if verb not in ("nodes", "report") and not arguments.addresses:
        return f"{verb} needs --addresses"
    if verb == "drain" and arguments.incident == NONE:
        return "drain needs --incident"
    if verb == "replace" and arguments.how == NONE:
        return "replace needs --how action_replace or --how power_down"
    if verb == "requeue" and (arguments.job == NONE or len(arguments.addresses) != 1):
        return "requeue needs --job, and one address"
    return ""


def _done(arguments: argparse.Namespace, controller: Controller) -> dict[str, Any]:
    addresses = arguments.addresses
    match arguments.verb:
        case "nodes":
            found = controller.nodes_at(addresses) if addresses else {node.name: node for node in controller.nodes()}
            return _nodes(found, addresses)
        case "drain":
            drained = controller.drain(addresses, arguments.incident)
            has_jobs = {where: bool(_jobs(controller, [node], arguments.incident)) for where, node in drained.items()}
            return _nodes(drained, addresses, has_jobs=has_jobs)
        case "resume":
            return _nodes(controller.resume(addresses, arguments.incident), addresses)
        case "replace":
            asked = controller.replace(addresses, arguments.how)
            nodes = {where: node for where, (node, _) in asked.items()}
            return _nodes(nodes, addresses, why_not={where: why_not for where, (_, why_not) in asked.items()})
        case "jobs":
            return {"jobs": _jobs(controller, list(controller.nodes_at(addresses).values()), arguments.incident)}
        case "report":
            return controller.report()
        case _:
            return vars(
                controller.requeue(arguments.job, addresses[0], arguments.restarts, hold=arguments.hold == "yes")
            )


def _jobs(controller: Controller, nodes: Sequence[SlurmNode], incident: str) -> list[dict[str, Any]]:
    """What the control plane reads of each; `before`: what had become of one already, empty where it is there."""
    told = {job.job_id: (job, "") for job in controller.jobs(nodes)}
    found = {**controller.stopped(nodes, incident), **told}
    return [{**{name: getattr(job, name) for name in _OF_A_JOB}, "before": before} for job, before in found.values()]


def _nodes(
    found: Mapping[str, SlurmNode], addresses: Sequence[str], **more: Mapping[str, bool | str]
) -> dict[str, Any]:
    """What the control plane reads of each: its name, whether it takes work, whose reason stands; `more`, by node.

    A person is told of addresses without a node; the control plane sees that they are not there.
    """
    told = {}
    for where in [where for where in addresses if where not in found]:
        sys.stderr.write(f"Slurm has no node at {where}, or more than one\n")
    for where, node in found.items():
        derived = {name: getattr(node, name) for name in ("is_in_service", "is_ours", "is_by_person")}
        told[where] = {**vars(node), **derived, **{name: known[where] for name, known in more.items()}}
    return {"nodes": told}


def _has_just_failed(job: SlurmJob) -> bool:
    """One that was cancelled by its owner has not failed. One that was requeued ends in the future."""
    now = time.time()
    return job.has_failed and job.ended_at is not None and now - FAILED_SECONDS < job.ended_at <= now


def _fault_at(incident: str) -> float:
    """When the incident's fault was seen, in epoch seconds: its id says so. Of none, some time ago."""
    if incident == NONE:
        return time.time() - FAILED_SECONDS
    return datetime.strptime(incident.split("-")[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC).timestamp()


def _is_drained(node: SlurmNode) -> bool:
    return node.state in ("drained", "draining")


def _name_of(node: SlurmNode) -> str:
    """Its name, as an argument that is a name and nothing else. Raises NoAnswerError."""
    if not _NODE_NAME.fullmatch(node.name):
        raise NoAnswerError(f"sinfo printed {node.name[:100]!r}, which is no name of a node")
    return node.name


def _addresses_of(said: str) -> set[str]:
    """The addresses that Slurm's word for one means: itself, or those of the host that it names."""
    try:
        return {str(ip_address(said))}
    except ValueError:
        pass
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(said, None)}
    except OSError:
        return set()


def _mark() -> str:
    """A word that nobody can have put into a reason or a name before."""
    return f"|{secrets.token_urlsafe(6)}|"


def _read(parse: Callable[[str, str], list[Any]], text: str, mark: str) -> list[Any]:
    try:
        return parse(text, mark)
    except ValueError as error:
        raise NoAnswerError(str(error)) from None


def _addresses(text: str) -> list[str]:
    given = [] if text == NONE else text.split(",")
    if len(given) > ADDRESSES or not all(part and re.fullmatch(words.ADDRESS, part) for part in given):
        raise argparse.ArgumentTypeError(f"{text!r}: give 1 to {ADDRESSES} addresses, with commas between")
    return given


def _text(pattern: re.Pattern[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text != NONE and not pattern.fullmatch(text):
            raise argparse.ArgumentTypeError(f"{text!r}: it must match {pattern.pattern}")
        return text

    return read


def _print(answer: Mapping[str, Any], exit_code: int) -> int:
    sys.stdout.write(json.dumps(answer, sort_keys=True) + "\n")
    return exit_code
