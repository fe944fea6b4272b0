"""`nodeheal-agent run inject-dcgm`: a drill in DCGM. Injects a value that no GPU has reported into its host engine.

Every client of this host engine reads it, until the driver's next value replaces it. The kernel log shows nothing.
"""

import argparse
import json
import logging
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from nodeheal.agent.checks.dcgm_drills import note
from nodeheal.agent.checks.dcgm_host import dcgmi
from nodeheal.agent.commands.node_command import EXIT_DONE, EXIT_REFUSED, NodeCommand, whole_number, why_refuse
from nodeheal.agent.runtime import probe
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.config import AgentConfig

EXIT_NOT_INJECTED = 1
SECONDS = 20.0
OUTPUT_BYTES = 64 * 1024
VALUE = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,6})?")
# What dcgmi prints after an injection, and without a host engine. Both from its source, dcgmi/ in NVIDIA/DCGM.
_DONE = "Successfully injected"
_NO_ENGINE = re.compile(r"(?i)unable to (establish a connection|connect to host engine)")
_TOLD_CHARACTERS = 300

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class InjectDcgmCommand:
    """The value, the field and the GPU, the boot, and the expiry."""

    gpu: int
    field: int
    value: str
    boot_id: str
    expires_at: float


def inject_dcgm(order: InjectDcgmCommand, config: AgentConfig, clock: Clock) -> int:
    """Inject the value into DCGM; returns the exit code. The result is one line of JSON for the operator."""
    refusal = why_refuse([order.boot_id], order.expires_at, config.boot_id(), clock) or _why_not(order, config)
    if refusal:
        logger.error("drill refused", extra={"why": refusal})
        _answer({"refused": refusal})
        return EXIT_REFUSED
    failure = _noted(order, config)
    if failure:
        logger.error("DCGM has not accepted the drill", extra={"why": failure})
        _answer({"refused": failure})
        return EXIT_NOT_INJECTED
    _answer({"injected": f"{order.field}={order.value}", "gpu": order.gpu})
    return EXIT_DONE


def _why_not(order: InjectDcgmCommand, config: AgentConfig) -> str | None:
    if not config.drills:
        return "this node accepts no drills: set `drills = true` in its configuration and restart the agent"
    if not VALUE.fullmatch(order.value):
        return f"{order.value!r} is not a number"
    return None


def _noted(order: InjectDcgmCommand, config: AgentConfig) -> str:
    """Record the drill, then inject the value: the agent must not report it without the drill's mark."""
    try:
        take_back = note(config, order.gpu, order.field, order.value)
        failure = _inject(order, config)
        if failure:
            take_back()
    except OSError as error:
        return f"{config.dcgm_drills_file} cannot be written: {error.strerror}"
    return failure


def _inject(order: InjectDcgmCommand, config: AgentConfig) -> str:
    """Inject the value. Returns why that failed; empty: it succeeded. Without a GPU, dcgmi would use GPU 1."""
    which = ("--gpuid", str(order.gpu), "-f", str(order.field), "-v", order.value)
    command = dcgmi(config, "test", "--inject", *which)
    with tempfile.TemporaryDirectory(prefix="nodeheal-", ignore_cleanup_errors=True) as folder:
        output = Path(folder) / "output"
        ran = probe.run(command, output, SECONDS, OUTPUT_BYTES)
        text = output.read_text("utf-8", "replace") if output.exists() else ""
    return _why_failed(ran, " ".join(text.split()))


def _why_failed(ran: probe.Ran, text: str) -> str:
    if ran.error == probe.NOT_INSTALLED:
        return "DCGM is not on this node: there is no dcgmi"
    if ran.error:
        return f"dcgmi: {ran.error}"
    if _NO_ENGINE.search(text):
        return "DCGM's host engine does not run, or does not answer: start nv-hostengine (nvidia-dcgm.service)"
    if ran.exit_code != 0 or _DONE not in text:
        return f"dcgmi ended with {ran.exit_code}: {text[:_TOLD_CHARACTERS] or 'it printed nothing'}"
    return ""


def _answer(answer: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpu", type=whole_number(0, 999), required=True, help="DCGM's id of the GPU")
    parser.add_argument(
        "--field", type=whole_number(0, 99_999), required=True, help="DCGM's id of the field, e.g. 230 for XID errors"
    )
    parser.add_argument("--value", required=True, help="a number")


def _carry_out(arguments: argparse.Namespace, config: AgentConfig) -> int:
    order = InjectDcgmCommand(arguments.gpu, arguments.field, arguments.value, arguments.boot_id, arguments.expires_at)
    return inject_dcgm(order, config, Clock())


COMMAND = NodeCommand(
    help="a drill: inject a value that no GPU has reported into DCGM",
    add_arguments=_add_arguments,
    carry_out=_carry_out,
)
