"""`nodeheal-agent run ORDER`: what SSM commands ask of a node. Each names the boot that it is for, and its end."""

import argparse
import math
import os
import re
import signal
import sys
from pathlib import Path

from nodeheal.agent import config as configuration
from nodeheal.agent.checkpoint import CheckpointOrder, ask_for_checkpoint
from nodeheal.agent.clock import Clock
from nodeheal.agent.compose import event_bus, open_spool
from nodeheal.agent.config import AgentConfig
from nodeheal.agent.diagnose import CHECKS, DiagnoseOrder, diagnose
from nodeheal.agent.diagnostics.fabric import Way
from nodeheal.agent.evidence import EvidenceOrder, freeze_evidence
from nodeheal.agent.fabric import FabricOrder, try_fabric
from nodeheal.agent.find_checkpoint import FindOrder, find_checkpoint
from nodeheal.agent.inject import InjectOrder, inject
from nodeheal.agent.inject_dcgm import DcgmOrder, inject_dcgm
from nodeheal.agent.reboot import RebootOrder, reboot
from nodeheal.contract import names
from nodeheal.contract.check_seconds import HEALTHY_SECONDS
from nodeheal.contract.vocabulary import Check, CheckpointFormat, FabricRole

EXIT_TERMINATED = 128 + signal.SIGTERM
TICKET_CHARACTERS = 64 * 1024
MAX_BYTES = 64 * 1024 * 1024
FABRIC_PORT, FABRIC_SECONDS = 47592, 60.0  # as contract.fabric has them; a test compares them
LONGEST_FABRIC_SECONDS = 600.0
_PEER = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,254}")
_JOB = re.compile(r"[A-Za-z0-9._-]{1,128}")  # as the document has it
_PROGRESS = re.compile(r"[A-Za-z0-9._-]{1,155}\.json")

Parsers = list[argparse.ArgumentParser]


def carry_out(arguments: argparse.Namespace) -> int:
    """Do what is ordered; the exit code. 3: refused, because it is stale."""
    config = configuration.given(arguments)
    return _ORDERS[arguments.order](config, arguments)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Every order, under `run`."""
    stale = argparse.ArgumentParser(add_help=False)
    stale.add_argument("--boot-id", required=True, help="the boot that the order is meant for; another one refuses it")
    stale.add_argument("--expires-at", type=float, required=True, help="epoch seconds; refused from then on")
    orders, parents = parser.add_subparsers(dest="order", required=True), [configuration.option(), stale]
    orders.add_parser(
        "reboot", parents=parents, help="reboot a few seconds later; exit code 194: the SSM agent must do it"
    )
    _add_reports(orders, parents)
    _add_drills(orders, parents)


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name and name != "none"]


def _checks(text: str) -> list[Check]:
    wrong = [name for name in _names(text) if name not in list(CHECKS)]
    if wrong or not _names(text):
        raise argparse.ArgumentTypeError(f"{text!r}: give some of {', '.join(CHECKS)}, with commas between")
    return [Check(name) for name in _names(text)]


def _diagnose(config: AgentConfig, arguments: argparse.Namespace) -> int:
    _end_well_when_terminated()
    clock = Clock()
    order = DiagnoseOrder(
        arguments.level,
        arguments.request_id,
        arguments.boot_id,
        arguments.expires_at,
        arguments.deadline_seconds,
        tuple(arguments.checks),
        tuple(arguments.first),
    )
    return diagnose(order, config, open_spool(config), event_bus(config, clock), clock)


def _fabric(config: AgentConfig, arguments: argparse.Namespace) -> int:
    _end_well_when_terminated()
    clock, peer = Clock(), arguments.peer
    role = FabricRole.SERVE if peer is None else FabricRole.CONNECT
    way = Way(
        role,
        peer or "",
        arguments.port,
        arguments.seconds,
        arguments.min_mb_per_second,
        arguments.all_reduce == "yes",
        arguments.min_all_reduce_mb_per_second,
    )
    order = FabricOrder(way, arguments.request_id, arguments.boot_id, arguments.expires_at)
    return try_fabric(order, config, open_spool(config), event_bus(config, clock), clock)


def _peer(text: str) -> str | None:
    if text == "none":
        return None
    if not _PEER.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}: give a host name or an IPv4 address, or none to serve")
    return text


def _seconds(text: str) -> float:
    if not re.fullmatch(r"\d{1,3}(?:\.\d{1,3})?", text) or not 1 <= float(text) <= LONGEST_FABRIC_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r}: give seconds, 1 to {LONGEST_FABRIC_SECONDS:g}")
    return float(text)


def _deadline(text: str) -> float:
    """A tool that is given no time at all would be said to hang, which is a verdict on the node."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: give seconds, more than 0")
    return seconds


def _evidence(config: AgentConfig, arguments: argparse.Namespace) -> int:
    _end_well_when_terminated()
    clock = Clock()
    # From standard input it is in no process list: whoever has the ticket can use it.
    ticket = sys.stdin.read(TICKET_CHARACTERS).strip() if arguments.upload == "-" else arguments.upload
    order = EvidenceOrder(
        arguments.request_id,
        arguments.boot_id,
        arguments.expires_at,
        ticket,
        arguments.max_bytes,
        arguments.bug_report == "yes",
        _accused(),
    )
    return freeze_evidence(order, config, open_spool(config), event_bus(config, clock), clock)


def _accused() -> str:
    """Named in the environment, and not as an option: agents that do not know it save evidence all the same."""
    accused = os.environ.get(names.ACCUSED, "")
    return accused if accused != "none" else ""


def _job(text: str) -> str:
    """It becomes a file's name."""
    if not _JOB.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}: a job's id has letters, digits, `.`, `_` and `-`, at most 128")
    return text


def _checkpoint(config: AgentConfig, arguments: argparse.Namespace) -> int:
    order = CheckpointOrder(arguments.job, arguments.boot_id.split(","), arguments.expires_at)
    return ask_for_checkpoint(order, config, Clock())


def _find_checkpoint(config: AgentConfig, arguments: argparse.Namespace) -> int:
    clock = Clock()
    order = FindOrder(
        arguments.directory,
        CheckpointFormat(arguments.format),
        arguments.request_id,
        arguments.boot_id,
        arguments.expires_at,
        _progress_of(config),
        arguments.sight_after,
    )
    return find_checkpoint(order, config, open_spool(config), event_bus(config, clock), clock)


def _progress_of(config: AgentConfig) -> Path | None:
    """Named in the environment, and not as an option: agents that do not know it look for a checkpoint all the same."""
    name = os.environ.get(names.PROGRESS_OF_RUN, "")
    return Path(config.progress_dir, name) if _PROGRESS.fullmatch(name) else None


def _reboot(config: AgentConfig, arguments: argparse.Namespace) -> int:
    return reboot(RebootOrder(arguments.boot_id, arguments.expires_at), config, Clock())


def _inject(config: AgentConfig, arguments: argparse.Namespace) -> int:
    return inject(InjectOrder(arguments.line, arguments.boot_id, arguments.expires_at), config, Clock())


def _inject_dcgm(config: AgentConfig, arguments: argparse.Namespace) -> int:
    order = DcgmOrder(arguments.gpu, arguments.field, arguments.value, arguments.boot_id, arguments.expires_at)
    return inject_dcgm(order, config, Clock())


def _end_well_when_terminated() -> None:
    """An exit like any other, so that no tool outlives the command that asked for it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))


def _add_reports(orders: "argparse._SubParsersAction[argparse.ArgumentParser]", parents: Parsers) -> None:
    order = orders.add_parser("diag", parents=parents, help="run diagnostics once and report the verdict")
    order.add_argument("--level", type=int, choices=sorted(HEALTHY_SECONDS), required=True)
    order.add_argument("--request-id", required=True, help="echoed in the report")
    order.add_argument("--deadline-seconds", type=_deadline, help="how long each tool may take; default: by level")
    order.add_argument("--checks", type=_checks, default=[Check.dcgm], help=f"of {','.join(CHECKS)}; default: dcgm")
    order.add_argument("--first", type=_names, default=[], help="tests that failed before, to be rerun first: a,b")
    order = orders.add_parser("fabric", parents=parents, help="test the way to another node, which must take part")
    order.add_argument("--request-id", required=True, help="echoed in the report")
    order.add_argument("--peer", type=_peer, required=True, help="the node that serves; none: this one serves")
    order.add_argument("--port", type=int, default=FABRIC_PORT, help=f"of the node that serves; default: {FABRIC_PORT}")
    order.add_argument("--seconds", type=_seconds, default=FABRIC_SECONDS, help="for all of it, waiting included")
    order.add_argument(
        "--min-mb-per-second", type=float, default=0.0, help="less has failed; default: any speed will do"
    )
    order.add_argument("--all-reduce", choices=("yes", "no"), default="no", help="then sum up over both nodes' GPUs")
    order.add_argument("--min-all-reduce-mb-per-second", type=float, default=0.0, help="of its bus; less has failed")
    order = orders.add_parser("evidence", parents=parents, help="save what the node can tell of its fault")
    order.add_argument("--request-id", required=True, help="echoed in the report")
    order.add_argument("--upload", required=True, help="the ticket for the upload; -: from standard input")
    order.add_argument("--max-bytes", type=int, default=MAX_BYTES, help="of the archive")
    order.add_argument("--bug-report", choices=("yes", "no"), default="no", help="nvidia-bug-report.sh, some minutes")
    order = orders.add_parser("checkpoint", parents=parents, help="ask a job's tasks here for a checkpoint, now")
    order.add_argument(
        "--job", type=_job, required=True, help="the job's id; --boot-id may then name several boots: a,b,c"
    )

    order = orders.add_parser("find-checkpoint", parents=parents, help="find a job's newest checkpoint that is whole")
    order.add_argument("--request-id", required=True, help="echoed in the report")
    order.add_argument("--directory", required=True, help="an absolute path; it is read as the agent's own user")
    order.add_argument("--format", choices=list(CheckpointFormat), default="auto", help="auto: found out by looking")
    order.add_argument(
        "--sight-after", type=float, help="search nothing: say what is seen there, so many seconds from now"
    )


def _add_drills(orders: "argparse._SubParsersAction[argparse.ArgumentParser]", parents: Parsers) -> None:
    drill = orders.add_parser("inject", parents=parents, help="a drill: write a fault where the agent reads them")
    drill.add_argument("--line", required=True, help="the kernel's words, as URL-safe Base64")
    drill = orders.add_parser("inject-dcgm", parents=parents, help="a drill: hand DCGM a value that no GPU has said")
    drill.add_argument("--gpu", type=int, required=True, help="DCGM's id of the GPU")
    drill.add_argument("--field", type=int, required=True, help="DCGM's id of the field, e.g. 230 for XID errors")
    drill.add_argument("--value", required=True, help="a number")


_ORDERS = {
    "diag": _diagnose,
    "evidence": _evidence,
    "fabric": _fabric,
    "checkpoint": _checkpoint,
    "find-checkpoint": _find_checkpoint,
    "reboot": _reboot,
    "inject": _inject,
    "inject-dcgm": _inject_dcgm,
}
