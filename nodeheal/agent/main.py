"""The command `nodeheal-agent`."""

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from nodeheal import __version__
from nodeheal.agent import config as configuration
from nodeheal.agent.bus import EventBus, endpoint
from nodeheal.agent.checkpoint import CheckpointOrder, ask_for_checkpoint
from nodeheal.agent.clock import Clock
from nodeheal.agent.config import AgentConfig, ConfigError
from nodeheal.agent.connect import fallback, pulse
from nodeheal.agent.credentials import CredentialChain
from nodeheal.agent.diagnose import CHECKS, DiagnoseOrder, diagnose
from nodeheal.agent.diagnostics.dcgm import DEADLINE_SECONDS
from nodeheal.agent.evidence import EvidenceOrder, freeze_evidence
from nodeheal.agent.inject import InjectOrder, inject
from nodeheal.agent.inject_dcgm import DcgmOrder, inject_dcgm
from nodeheal.agent.log import log_to_stderr
from nodeheal.agent.loop import STOP_PATIENCE_SECONDS, Agent
from nodeheal.agent.sender import Sender
from nodeheal.agent.spool import Spool
from nodeheal.contract.vocabulary import Check

EXIT_CANNOT_START = 2
EXIT_TERMINATED = 128 + signal.SIGTERM
TICKET_CHARACTERS = 64 * 1024
MAX_BYTES = 64 * 1024 * 1024

Parser = argparse.ArgumentParser

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    arguments = _parser().parse_args(argv)
    log_to_stderr()
    try:
        config = configuration.load(configuration.config_path(arguments.config))
        return _COMMANDS[arguments.command](config, arguments)
    except (ConfigError, OSError) as error:
        logger.error("nodeheal-agent cannot start", extra={"why": error})
        return EXIT_CANNOT_START


def _run(config: AgentConfig, arguments: argparse.Namespace) -> int:
    clock = Clock()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    spool = _spool(config)
    sender = Sender(spool, _bus(config, clock), clock, fallback(config, clock), config.fallback_seconds)
    agent = Agent(config, spool, sender, clock)
    signs_of_life = pulse(config, clock, instead=agent.say_alive)
    signs_of_life.start()
    agent.run(stop)
    signs_of_life.stop(STOP_PATIENCE_SECONDS)
    spool.close()
    return 0


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
    return diagnose(order, config, _spool(config), _bus(config, clock), clock)


def _evidence(config: AgentConfig, arguments: argparse.Namespace) -> int:
    _end_well_when_terminated()
    clock = Clock()
    # From standard input it is in no process list: whoever has the ticket can use it.
    ticket = sys.stdin.read(TICKET_CHARACTERS) if arguments.upload == "-" else arguments.upload
    order = EvidenceOrder(
        arguments.request_id,
        arguments.boot_id,
        arguments.expires_at,
        ticket,
        arguments.max_bytes,
        arguments.bug_report == "yes",
    )
    return freeze_evidence(order, config, _spool(config), _bus(config, clock), clock)


def _checkpoint(config: AgentConfig, arguments: argparse.Namespace) -> int:
    order = CheckpointOrder(arguments.job, arguments.boot_id.split(","), arguments.expires_at)
    return ask_for_checkpoint(order, config, Clock())


def _inject(config: AgentConfig, arguments: argparse.Namespace) -> int:
    return inject(InjectOrder(arguments.line, arguments.boot_id, arguments.expires_at), config, Clock())


def _inject_dcgm(config: AgentConfig, arguments: argparse.Namespace) -> int:
    order = DcgmOrder(arguments.gpu, arguments.field, arguments.value, arguments.boot_id, arguments.expires_at)
    return inject_dcgm(order, config, Clock())


def _end_well_when_terminated() -> None:
    """An exit like any other, so that no tool outlives the command that asked for it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))


_COMMANDS = {
    "run": _run,
    "diagnose": _diagnose,
    "evidence": _evidence,
    "checkpoint": _checkpoint,
    "inject": _inject,
    "inject-dcgm": _inject_dcgm,
}


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name and name != "none"]


def _checks(text: str) -> list[Check]:
    wrong = [name for name in _names(text) if name not in list(CHECKS)]
    if wrong or not _names(text):
        raise argparse.ArgumentTypeError(f"{text!r}: give some of {', '.join(CHECKS)}, with commas between")
    return [Check(name) for name in _names(text)]


def _spool(config: AgentConfig) -> Spool:
    return Spool(Path(config.state_dir), config.spool_mib)


def _bus(config: AgentConfig, clock: Clock) -> EventBus:
    url = config.endpoint_url or endpoint(config.region)
    return EventBus(config.bus, config.region, url, CredentialChain(clock), clock)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nodeheal-agent", description="Reports facts about this node to nodeheal.")
    parser.add_argument("--version", action="version", version=f"nodeheal-agent {__version__}")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--config", metavar="FILE", help=f"default: ${configuration.ENV_CONFIG}, else /etc/nodeheal")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run", parents=[common], help="watch this node until stopped")
    stale = argparse.ArgumentParser(add_help=False)
    stale.add_argument("--boot-id", required=True, help="the boot that the order is meant for; another one refuses it")
    stale.add_argument("--expires-at", type=float, required=True, help="epoch seconds; refused from then on")
    _add_orders(commands, [common, stale])
    return parser


def _add_orders(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", parents: list[Parser]) -> None:
    order = commands.add_parser("diagnose", parents=parents, help="run diagnostics once and report the verdict")
    order.add_argument("--level", type=int, choices=sorted(DEADLINE_SECONDS), required=True)
    order.add_argument("--request-id", required=True, help="echoed in the report")
    order.add_argument("--deadline-seconds", type=float, help="how long each tool may take; default: by level")
    order.add_argument("--checks", type=_checks, default=[Check.dcgm], help=f"of {','.join(CHECKS)}; default: dcgm")
    order.add_argument("--first", type=_names, default=[], help="tests that failed before, to be rerun first: a,b")
    order = commands.add_parser("evidence", parents=parents, help="save what the node can tell of its fault")
    order.add_argument("--request-id", required=True, help="echoed in the report")
    order.add_argument("--upload", required=True, help="the ticket for the upload; -: from standard input")
    order.add_argument("--max-bytes", type=int, default=MAX_BYTES, help="of the archive")
    order.add_argument("--bug-report", choices=("yes", "no"), default="no", help="nvidia-bug-report.sh, some minutes")
    order = commands.add_parser("checkpoint", parents=parents, help="ask a job's tasks here for a checkpoint, now")
    order.add_argument("--job", required=True, help="the job's id; --boot-id may then name several boots: a,b,c")
    _add_drills(commands, parents)


def _add_drills(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", parents: list[Parser]) -> None:
    drill = commands.add_parser("inject", parents=parents, help="a drill: write a fault where the agent reads them")
    drill.add_argument("--line", required=True, help="the kernel's words, as URL-safe Base64")
    drill = commands.add_parser("inject-dcgm", parents=parents, help="a drill: hand DCGM a value that no GPU has said")
    drill.add_argument("--gpu", type=int, required=True, help="DCGM's id of the GPU")
    drill.add_argument("--field", type=int, required=True, help="DCGM's id of the field, e.g. 230 for XID errors")
    drill.add_argument("--value", required=True, help="a number")


if __name__ == "__main__":
    sys.exit(main())
