"""`nodeheal-agent slurm`: runs on the machine of a Slurm controller, for the control plane and for people.

Each verb prints one JSON object, except `doctor`.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nodeheal.agent.commands.node_command import EXIT_DONE, EXIT_REFUSED, LATEST, number, whole_number
from nodeheal.agent.slurm.controller import NONE, Controller, NoAnswerError
from nodeheal.contract import words
from nodeheal.parsers import slurm_report
from nodeheal.parsers.slurm import SlurmNode

EXIT_NO_ANSWER = 75  # a temporary failure in sysexits(3): nothing is known, and a retry is harmless
POWER_DOWN = "power_down"
ADDRESSES = 50  # nodes of one call
NODE_CHARACTERS = 700  # of an answer, for what is not a job: a reason names an incident, or is cut
REASON_CHARACTERS = 200
_INCIDENT = re.compile(words.INCIDENT)
_JOB_ID = re.compile(r"[0-9]{1,10}([_+][0-9]{1,10})?")  # of an array's task, of a part of a heterogeneous job
_NEVER_ENDS = 2**31 - 1
# What the control plane gets of a job to be requeued: SSM returns 24,000 characters.
_OF_A_JOB = (
    "job_id",
    "state",
    "user",
    "may_requeue",
    "restarts",
    "partition",
    "nodes",
    "has_failed",
    "name",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verbs and their options."""
    about = {
        "nodes": "the nodes at these addresses; without addresses: all nodes",
        "drain": "drain nodes; a person's reason is left as it is",
        "resume": "resume nodes whose reason is nodeheal's or Slurm's own",
        "replace": "have the cluster replace the machine of nodes whose reason is nodeheal's",
        "jobs": "list the jobs with a part there, or that its fault may have stopped",
        "requeue": "requeue a job on other nodes; with --hold it waits until a person releases it",
        "report": "list the nodes out of service, and the jobs that Slurm knows, ended ones included",
    }
    verbs = parser.add_subparsers(dest="verb", required=True)
    doctor = verbs.add_parser("doctor", help="check whether Slurm is set up so that its nodes can be healed")
    doctor.add_argument("--json", action="store_true", help="one JSON object a line")
    for name, purpose in about.items():
        verb = verbs.add_parser(name, help=purpose)
        verb.add_argument("--addresses", type=_addresses, default=[], help="addresses of nodes, separated by commas")
        verb.add_argument(
            "--incident", type=_incidents, default=[], help="the incident; of `drain`: that of each address, by commas"
        )
        verb.add_argument("--job", type=_text(_JOB_ID), default=NONE, help="its id: 12, or 12_3 in an array")
        verb.add_argument("--how", choices=(POWER_DOWN, NONE), default=NONE, help="of `replace`")
        verb.add_argument(
            "--restarts",
            type=whole_number(0, _NEVER_ENDS),
            default=0,
            help="the job's restart count at the time of the decision",
        )
        verb.add_argument("--hold", choices=("yes", "no"), default="no", help="`requeue`: a person must release it")
        until = "epoch seconds; refused after that"
        verb.add_argument("--expires-at", type=number(0, LATEST), default=float(LATEST), help=until)


def carry_out(arguments: argparse.Namespace) -> int:
    """Run the verb and print its result; returns the exit code."""
    if arguments.verb == "doctor":
        from nodeheal.agent.slurm.doctor import doctor

        return doctor(as_json=arguments.json)
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
    if verb == "drain" and len(arguments.incident) != len(set(arguments.addresses)):
        return "drain needs --incident with one incident for each of --addresses"
    if verb == "replace" and arguments.how == NONE:
        return "replace needs --how power_down"
    if verb == "requeue" and (arguments.job == NONE or len(arguments.addresses) != 1):
        return "requeue needs --job, and one address"
    return ""


def _done(arguments: argparse.Namespace, controller: Controller) -> dict[str, Any]:
    addresses = arguments.addresses
    incident = arguments.incident[0] if arguments.incident else NONE
    match arguments.verb:
        case "nodes":
            by_address = (
                controller.nodes_at(addresses) if addresses else {node.name: node for node in controller.nodes()}
            )
            return _nodes(by_address, addresses)
        case "drain":
            incidents = dict(zip(addresses, arguments.incident, strict=True))
            drained = controller.drain(incidents)
            room = slurm_report.CHARACTERS // len(incidents) - NODE_CHARACTERS
            jobs = {where: _fitting_jobs(controller, node, incidents[where], room) for where, node in drained.items()}
            return _nodes(drained, addresses, jobs=jobs)
        case "resume":
            return _nodes(controller.resume(addresses, incident), addresses)
        case "replace":
            asked = controller.replace(addresses, arguments.how)
            nodes = {where: node for where, (node, _) in asked.items()}
            return _nodes(nodes, addresses, why_not={where: why_not for where, (_, why_not) in asked.items()})
        case "jobs":
            listed = _jobs(controller, list(controller.nodes_at(addresses).values()), incident)
            return {"jobs": slurm_report.fitting(listed, slurm_report.CHARACTERS)[0]}
        case "report":
            return controller.report()
        case _:
            return vars(
                controller.requeue(arguments.job, addresses[0], arguments.restarts, hold=arguments.hold == "yes")
            )


def _fitting_jobs(
    controller: Controller, node: SlurmNode, incident: str, characters: int
) -> list[dict[str, Any]] | None:
    """Return the jobs of a node that is drained now. None: they are not known, or too many for this answer, and the
    control plane asks again; the drain is done all the same.
    """
    try:
        jobs = _jobs(controller, [node], incident)
    except NoAnswerError as error:
        sys.stderr.write(f"the jobs of {node.name} are not known: {error}\n")
        return None
    return jobs if len(slurm_report.fitting(jobs, characters)[0]) == len(jobs) else None


def _jobs(controller: Controller, nodes: Sequence[SlurmNode], incident: str) -> list[dict[str, Any]]:
    """Return what the control plane reads of each job; `before`: the outcome of one that has ended already, empty where
    it is there.
    """
    present_jobs = {job.job_id: (job, "") for job in controller.jobs(nodes)}
    all_jobs = {**controller.stopped(nodes, incident), **present_jobs}
    return [{**{name: getattr(job, name) for name in _OF_A_JOB}, "before": before} for job, before in all_jobs.values()]


def _nodes(
    by_address: Mapping[str, SlurmNode], addresses: Sequence[str], **more: Mapping[str, object]
) -> dict[str, Any]:
    """Return what the control plane reads of each node: its name, whether it takes work, its reason; `more`, by node.

    Addresses without a node are printed for people; the control plane sees that they are missing.
    """
    rows = {}
    for where in [where for where in addresses if where not in by_address]:
        sys.stderr.write(f"Slurm has no node at {where}, or more than one\n")
    for where, node in by_address.items():
        derived = {name: getattr(node, name) for name in ("is_in_service", "is_by_person", "incident")}
        rows[where] = {
            **vars(node),
            "reason": node.reason[:REASON_CHARACTERS],
            **derived,
            **{name: known[where] for name, known in more.items()},
        }
    return {"nodes": rows}


def _addresses(text: str) -> list[str]:
    given = [] if text == NONE else text.split(",")
    if len(given) > ADDRESSES or not all(part and re.fullmatch(words.ADDRESS, part) for part in given):
        raise argparse.ArgumentTypeError(f"{text!r}: give 1 to {ADDRESSES} addresses, separated by commas")
    return given


def _incidents(text: str) -> list[str]:
    given = [] if text == NONE else text.split(",")
    if not all(map(_INCIDENT.fullmatch, given)):
        raise argparse.ArgumentTypeError(f"{text!r}: each must match {_INCIDENT.pattern}")
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
