"""`nodeheal-agent run reset-gpu`: resets one GPU of this node, where no process uses a GPU, and reports the result.

nvidia-smi resets a GPU only while nothing has it open. So the services that monitor GPUs, this node's own agent
included, are stopped before and started again after it, whatever the result; and so is the GPU's legacy persistence
mode, which is a client inside the driver. Workloads are never stopped: where a process has a GPU open, the command is
refused.

Sources: the manual of nvidia-smi, `--gpu-reset` and `--persistence-mode`; NVIDIA's Driver Persistence; NVIDIA's MIG
User Guide, "Driver Clients"; hooks.sh of NVIDIA/mig-parted.
"""

import argparse
import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from nodeheal.agent.checks.check import CheckContext
from nodeheal.agent.checks.gpu_processes import holds_accelerator
from nodeheal.agent.checks.hardware import nvswitches
from nodeheal.agent.checks.nvidia_services import FABRIC_MANAGER, PERSISTENCE
from nodeheal.agent.checks.tools import run_tool
from nodeheal.agent.commands.node_command import (
    EXIT_DONE,
    EXIT_REFUSED,
    NodeCommand,
    add_request_id,
    end_well_when_terminated,
    report,
    why_refuse,
)
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.compose import event_bus, open_spool
from nodeheal.agent.runtime.config import AgentConfig
from nodeheal.agent.transport.bus import EventBus
from nodeheal.agent.transport.event import CHECK_CHARACTERS, EventFactory, NodeFact, clip
from nodeheal.agent.transport.spool import Spool
from nodeheal.contract import words
from nodeheal.contract.vocabulary import Outcome
from nodeheal.parsers.nvidia_smi_readers import address

SMI = "nvidia-smi"
ASK = (SMI, "--query-gpu=pci.bus_id,uuid,mig.mode.current", "--format=csv,noheader")
# Services that have GPUs open without using them. DCGM's unit has had two names.
CLIENTS = (
    "nodeheal-agent.service",
    "dcgm-exporter.service",
    "nvidia-dcgm.service",
    "dcgm.service",
    "nvsm.service",
    PERSISTENCE,
)
ASK_SECONDS, STOP_SECONDS, RESET_SECONDS = 20.0, 60.0, 90.0
AFTERWARDS_SECONDS = STOP_SECONDS + 5.0  # the share of the given time for starting them again and for reporting
LEAST_SECONDS = 30.0  # a reset with less time than this is not begun
# The Fabric Manager and its subnet manager, by the 15 characters of a name that the kernel keeps. They keep running.
_FABRIC = ("nv-fabricmanage", "nvlsm")
_HOLDERS_TOLD = 5

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ResetGpuCommand:
    """The GPU by its address or UUID, the boot, and the expiry."""

    gpu: str
    request_id: str
    boot_id: str
    expires_at: float


@dataclass(frozen=True, kw_only=True)
class GpuResetFinished(NodeFact):
    """The answer to the command."""

    detail_type: ClassVar[str] = "GPU Reset Finished"

    request_id: str
    outcome: Outcome  # DONE, REFUSED or FAILED
    reason: str = ""


@dataclass(frozen=True)
class ResetOutcome:
    """The result and its reason. REFUSED: nothing was tried."""

    outcome: Outcome
    reason: str


def reset_gpu(command: ResetGpuCommand, place: CheckContext, spool: Spool, bus: EventBus, clock: Clock) -> int:
    """Reset the GPU, report, and print one line of JSON; returns the exit code. Refuses a stale command without a
    report.
    """
    config = place.config
    refusal = why_refuse([command.boot_id], command.expires_at, config.boot_id(), clock)
    if refusal:
        logger.error("GPU reset refused", extra={"why": refusal, "request": command.request_id})
        return EXIT_REFUSED
    ended = _reset(command, place, clock)
    reason = clip(" ".join(ended.reason.split()), CHECK_CHARACTERS)
    header = EventFactory(config.identity, command.boot_id).header("gpu-reset", command.request_id, at=clock.utc_now())
    report(GpuResetFinished(**header, request_id=command.request_id, outcome=ended.outcome, reason=reason), spool, bus)
    answer = {"outcome": ended.outcome, "reason": reason, "request_id": command.request_id}
    sys.stdout.write(json.dumps(answer) + "\n")
    return EXIT_DONE


def _reset(command: ResetGpuCommand, place: CheckContext, clock: Clock) -> ResetOutcome:
    bus_id, why_not = _find(command.gpu, place)
    units = _states(place)
    why_not = why_not or _why_not_alone(place, units)
    if why_not:
        return ResetOutcome(Outcome.REFUSED, why_not)
    with _without([unit for unit in CLIENTS if units.get(unit) == "active"], place) as still_there:
        why_not = still_there or _why_in_use(place)
        seconds = min(RESET_SECONDS, command.expires_at - clock.utc_now().timestamp() - AFTERWARDS_SECONDS)
        if not why_not and seconds < LEAST_SECONDS:
            why_not = f"only {seconds:.0f} s are left, and a reset needs up to {LEAST_SECONDS:.0f}"
        if why_not:
            return ResetOutcome(Outcome.REFUSED, why_not)
        with _without_persistence_mode(bus_id, place) as why_not:
            return ResetOutcome(Outcome.REFUSED, why_not) if why_not else _run_reset(bus_id, seconds, place)


def _find(gpu: str, place: CheckContext) -> tuple[str, str]:
    """Return (its address as nvidia-smi writes it, why it cannot be reset). A GPU that the driver does not list is
    unknown.
    """
    answer = place.run(ASK, ASK_SECONDS)
    if answer.ran.error:
        return "", f"{SMI} does not list the GPUs: {answer.ran.error}"
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.text.splitlines()]
    matches = [row for row in rows if len(row) == 3 and gpu in (address(row[0]), row[1])]
    if len(matches) != 1:
        return "", f"{SMI} lists no GPU {gpu}; {answer.last_words}"
    bus_id, _, mig = matches[0]
    # A reset would remove the instances, and they are not created again before the next boot.
    return bus_id, "it is split into MIG instances, which a reset removes" if mig == "Enabled" else ""


def _why_not_alone(place: CheckContext, units: Mapping[str, str]) -> str:
    """Return why it cannot be reset alone. Behind NVSwitches that needs a running Fabric Manager; otherwise all GPUs
    would have to be reset.
    """
    is_managed = units.get(FABRIC_MANAGER) == "active"
    return (
        ""
        if is_managed or not nvswitches(place)
        else f"there are NVSwitches, and {FABRIC_MANAGER} does not run: start it"
    )


def _states(place: CheckContext) -> dict[str, str]:
    """Return the state of each unit; no state at all where systemd does not return one for each."""
    units = (FABRIC_MANAGER, *CLIENTS)
    states = place.run(["systemctl", "is-active", *units], ASK_SECONDS).text.split()
    return dict(zip(units, states, strict=True)) if len(states) == len(units) else {}


@contextmanager
def _without(units: list[str], place: CheckContext) -> Iterator[str]:
    """Stop these units, and start them again at the end, whatever happens. Yields why they could not be stopped."""
    try:
        yield _systemctl("stop", units, place)
    finally:
        failed = _systemctl("start", units, place)
        if failed:
            logger.error(
                "the services that monitor GPUs were not started again: start them by hand",
                extra={"why": failed, "units": units},
            )


@contextmanager
def _without_persistence_mode(bus_id: str, place: CheckContext) -> Iterator[str]:
    """Switch the GPU's persistence mode off where it is on without the daemon, and on again at the end. Yields why it
    could not be switched off.
    """
    answer = place.run([SMI, "--query-gpu=persistence_mode", "--format=csv,noheader", "-i", bus_id], ASK_SECONDS)
    if answer.ran.error or answer.text.strip() != "Enabled":  # what is not known, the reset itself says
        yield ""
        return
    try:
        yield _set_persistence_mode(bus_id, 0, place)
    finally:
        failed = _set_persistence_mode(bus_id, 1, place)
        if failed:
            logger.error(
                "the GPU's persistence mode was not switched on again: do it by hand",
                extra={"why": failed, "gpu": bus_id},
            )


def _set_persistence_mode(bus_id: str, mode: int, place: CheckContext) -> str:
    """Returns why it failed; empty: it succeeded."""
    answer = place.run([SMI, "-i", bus_id, "-pm", str(mode)], ASK_SECONDS)
    is_done = not answer.ran.error and answer.ran.exit_code == 0
    return "" if is_done else f"{SMI} -pm {mode}: {answer.ran.error or answer.last_words}"


def _systemctl(verb: str, units: list[str], place: CheckContext) -> str:
    """Run systemctl for all of them. Returns why it failed; empty: it succeeded."""
    if not units:
        return ""
    answer = place.run(["systemctl", verb, *units], STOP_SECONDS)
    is_done = not answer.ran.error and answer.ran.exit_code == 0
    return "" if is_done else f"systemctl {verb}: {answer.ran.error or answer.last_words}"


def _why_in_use(place: CheckContext) -> str:
    """Return which processes have an accelerator or a fabric port open; empty: none.

    Any of them counts: work on one GPU can access another one, and so does RDMA.
    """
    folders = [folder for folder in place.proc.iterdir() if folder.name.isdecimal()]
    held = {folder: holds_accelerator(folder, None) for folder in folders}
    users = [folder for folder in folders if held[folder] and _name(folder) not in _FABRIC]
    if users:
        named = ", ".join(f"{_name(folder)} ({folder.name})" for folder in users[:_HOLDERS_TOLD])
        return f"{len(users)} processes have accelerators open: {named}"
    # Without the driver's device file, none can be open.
    unknown = sum(held[folder] is None for folder in folders) if any(place.dev.glob("nvidia*")) else 0
    return f"it is not known whether {unknown} processes have an accelerator open" if unknown else ""


def _name(folder: Path) -> str:
    try:
        return (folder / "comm").read_text("utf-8", "replace").strip()
    except OSError:
        return "ended"


def _run_reset(bus_id: str, seconds: float, place: CheckContext) -> ResetOutcome:
    """Reset the GPU. Only the tool's own message about this GPU is a success: the exit code is 0 for warnings, too."""
    answer = place.run([SMI, "--gpu-reset", "-i", bus_id], seconds)
    if not answer.ran.error and answer.ran.exit_code == 0 and f"GPU {bus_id} was successfully reset" in answer.text:
        return ResetOutcome(Outcome.DONE, f"GPU {bus_id} was reset")
    message = answer.ran.error or f"{answer.text} {answer.errors}".strip() or answer.last_words
    return ResetOutcome(Outcome.FAILED, f"{SMI} --gpu-reset: {message}")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_id(parser)
    parser.add_argument("--gpu", type=_gpu, required=True, help="its PCI address (0000:b9:00.0) or its UUID (GPU-…)")


def _gpu(text: str) -> str:
    if not re.fullmatch(words.GPU, text):
        raise argparse.ArgumentTypeError(f"{text!r}: give a PCI address like 0000:b9:00.0, or a UUID")
    return text


def _carry_out(arguments: argparse.Namespace, config: AgentConfig) -> int:
    end_well_when_terminated()
    clock = Clock()
    command = ResetGpuCommand(arguments.gpu, arguments.request_id, arguments.boot_id, arguments.expires_at)
    return reset_gpu(command, CheckContext(config, run_tool), open_spool(config), event_bus(config, clock), clock)


COMMAND = NodeCommand(
    help="reset one GPU, if no process uses any GPU",
    add_arguments=_add_arguments,
    carry_out=_carry_out,
)
