"""`nodeheal-agent doctor`: what works on this node, what is missing, and whether the bus hears it."""

import argparse
import errno
import json
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from nodeheal import __version__
from nodeheal.agent.bus import BusUnavailable, EventBus
from nodeheal.agent.checks.check import Check, Place
from nodeheal.agent.checks.journal import TOOL as JOURNAL_TOOL
from nodeheal.agent.checks.registry import chosen
from nodeheal.agent.checks.tools import is_installed, run_tool
from nodeheal.agent.clock import Clock
from nodeheal.agent.compose import event_bus
from nodeheal.agent.config import AgentConfig, ConfigError, KernelLog, given
from nodeheal.agent.spool import Entry
from nodeheal.contract.names import AGENT_DOCTOR

GOOD, BAD, ABSENT = "ok", "WRONG", "-"
# What an order may run on a node, and what for.
TOOLS = {
    "dcgmi": "diagnostics and health of NVIDIA GPUs",
    "nvidia-smi": "evidence; GPU state where NVML cannot be loaded",
    "neuron-ls": "diagnostics of Trainium and Inferentia",
    "fi_info": "diagnostics of EFA",
    "fi_pingpong": "the way to another node over EFA, on command",
    "stress-ng": "CPU stress",
}


@dataclass(frozen=True)
class Sign:
    """One thing that was looked at. Only what is BAD keeps the agent from its work."""

    what: str
    state: str
    said: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How to tell."""
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def carry_out(arguments: argparse.Namespace) -> int:
    """Look; the exit code."""
    config = given(arguments)
    bus = event_bus(config, Clock())
    return doctor(config, chosen(config), Place(config, run_tool), bus, as_json=arguments.json)


def doctor(config: AgentConfig, checks: Sequence[Check], place: Place, bus: EventBus, *, as_json: bool) -> int:
    """Print what was found; 0 where the agent can do its work, else 1."""
    signs = [*_host(config), _heard(bus), *_checks(checks, place), *_tools()]
    for sign in signs:
        line = f"{sign.what:<24}{sign.state:<7}{sign.said}"
        sys.stdout.write((json.dumps(asdict(sign)) if as_json else line.rstrip()) + "\n")
    return 1 if any(sign.state == BAD for sign in signs) else 0


def _host(config: AgentConfig) -> Iterator[Sign]:
    yield Sign("agent", GOOD, f"{__version__}, Python {platform.python_version()}, node {config.node_id}")
    yield _tried("boot id", config.boot_id)
    for log in config.kernel_log:
        yield _tried(f"kernel log ({log.kind})", partial(_opened, log))
    yield _tried("spool", partial(_writable, Path(config.state_dir)))


def _tried(what: str, work: Callable[[], str]) -> Sign:
    try:
        return Sign(what, GOOD, work())
    except ConfigError as error:
        return Sign(what, BAD, str(error))
    except OSError as error:
        return Sign(what, BAD, f"{error.filename or ''}: {error.strerror}".lstrip(": "))


def _opened(log: KernelLog) -> str:
    if log.kind == "journald":
        if not is_installed(JOURNAL_TOOL):
            raise FileNotFoundError(errno.ENOENT, "not installed", JOURNAL_TOOL)
        return log.path or "of this machine"
    with Path(log.path).open("rb"):
        return log.path


def _writable(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder):
        return str(folder)


def _heard(bus: EventBus) -> Sign:
    """By an event that nobody listens to: PutEvents has no dry run. It costs a millionth of a dollar."""
    now = Clock().utc_now().timestamp()
    try:
        receipt = bus.put([Entry("doctor", AGENT_DOCTOR, "{}", now)])
    except BusUnavailable as error:
        hint = "; see 'Let it speak' in docs/agent.md" if error.is_refusal else ""
        return Sign("bus", BAD, f"{error}{hint}")
    finally:
        bus.close()
    refused = "; ".join(why for _, why in receipt.hopeless)
    return Sign("bus", BAD if refused else GOOD, refused or "takes events of this node")


def _checks(checks: Sequence[Check], place: Place) -> Iterator[Sign]:
    for check in checks:
        why_not = check.why_not(place)
        yield Sign(f"check {check.name}", ABSENT if why_not else GOOD, why_not or check.about)


def _tools() -> Iterator[Sign]:
    for tool, purpose in TOOLS.items():
        path = shutil.which(tool)
        yield Sign(f"tool {tool}", GOOD if path else ABSENT, path or f"not installed ({purpose})")
