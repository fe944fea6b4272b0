"""`nodeheal-agent run evidence`: saves evidence of a node's fault before any action, and answers whether the node shows
that fault.
"""

import argparse
import json
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from nodeheal import __version__
from nodeheal.agent.commands.node_command import (
    EXIT_DONE,
    EXIT_REFUSED,
    NodeCommand,
    add_request_id,
    end_well_when_terminated,
    report,
    whole_number,
    why_refuse,
)
from nodeheal.agent.evidence import bundle
from nodeheal.agent.evidence.confirm import NOT_ASKED, confirm, read_accusation
from nodeheal.agent.evidence.evidence_commands import evidence_commands
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.compose import event_bus, open_spool
from nodeheal.agent.runtime.config import AgentConfig
from nodeheal.agent.transport.bus import EventBus
from nodeheal.agent.transport.event import Confirmed, EventFactory, Saved
from nodeheal.agent.transport.spool import Spool
from nodeheal.agent.transport.upload import BadTicket, NotUploaded, Ticket, read_ticket, upload
from nodeheal.contract import names

TICKET_CHARACTERS = 64 * 1024
MAX_BYTES = 64 * 1024 * 1024
LARGEST_BYTES = 999_999_999_999  # the twelve digits that the SSM document accepts
FOLDER = "evidence"
NO_TICKET = "none"  # in place of a ticket: the policy disables evidence
NOTHING_WANTED = "the policy says to save no evidence"
# The share of the given time that packing and uploading may need: a slow link must not lose the collected evidence.
UPLOAD_SHARE = 0.4
SHORTEST_UPLOAD_SECONDS = 1.0
# The share that searching the reported fault may need.
CONFIRM_SHARE = 0.3
# The share that reporting may need: an answer after the deadline is useless.
REPORT_SHARE = 0.05
LONGEST_SECONDS = 1_800.0  # policy.evidence.seconds at most: more remains only where this node's clock is wrong
STALE_SECONDS = 3_600.0  # longer than any command may take

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FreezeEvidenceCommand:
    """The request, the boot, the expiry, and the upload target. No ticket: nothing is saved."""

    request_id: str
    boot_id: str
    expires_at: float
    ticket: str
    max_bytes: int
    with_bug_report: bool = False
    accused: str = ""  # Base64: the fault that was reported of this node; empty: none to confirm


def freeze_evidence(
    command: FreezeEvidenceCommand, config: AgentConfig, spool: Spool, bus: EventBus, clock: Clock
) -> int:
    """Collect, pack, upload, report, and print one line of JSON; returns the exit code. A stale command is refused."""
    refusal = why_refuse([command.boot_id], command.expires_at, config.boot_id(), clock)
    if refusal:
        logger.error("evidence refused", extra={"why": refusal, "request": command.request_id})
        return EXIT_REFUSED
    given = min(command.expires_at - clock.utc_now().timestamp(), LONGEST_SECONDS)
    until = clock.monotonic() + given * (1 - REPORT_SHARE)
    confirmed = _confirmed(command, config, given * CONFIRM_SHARE)
    saved = _save(command, config, clock, lambda: until - clock.monotonic(), given * UPLOAD_SHARE)
    event_factory = EventFactory(config.identity, command.boot_id)
    report(event_factory.froze(command.request_id, saved, confirmed, clock.utc_now()), spool, bus)
    sys.stdout.write(json.dumps({**asdict(saved), **asdict(confirmed), "request_id": command.request_id}) + "\n")
    return EXIT_DONE


def _confirmed(command: FreezeEvidenceCommand, config: AgentConfig, seconds: float) -> Confirmed:
    """Return whether this node shows the fault. It runs before the collection, so that no hanging tool delays it."""
    try:
        accusation = read_accusation(command.accused)
        return confirm(accusation, config, seconds) if accusation is not None else Confirmed(confirmed_by=NOT_ASKED)
    except (ValueError, OSError) as error:
        return Confirmed(confirmed_by=str(error))


def _save(
    command: FreezeEvidenceCommand,
    config: AgentConfig,
    clock: Clock,
    seconds_left: Callable[[], float],
    for_upload: float,
) -> Saved:
    """Save the evidence; returns the result. Any failure is an answer, not a crash: the recovery waits for one."""
    if command.ticket == NO_TICKET:
        return Saved(reason=NOTHING_WANTED)
    try:
        ticket = read_ticket(command.ticket)
        place = _workplace(Path(config.orders_dir) / FOLDER, clock.utc_now().timestamp())
        with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as folder:
            (files := Path(folder) / "files").mkdir()
            wanted = list(evidence_commands(config, command.with_bug_report))
            items = bundle.collect(wanted, files, lambda: seconds_left() - for_upload)
            archive = Path(folder) / "evidence.tar.gz"
            items = bundle.pack(items, _about(command, config), archive, command.max_bytes)
            failed = tuple(item.exhibit.name for item in items if item.has_failed)
            return _upload(archive, ticket, sum(item.is_kept for item in items), failed, seconds_left())
    except (BadTicket, OSError) as error:
        return Saved(reason=str(error))


def _workplace(place: Path, now: float) -> Path:
    """Create a folder below the commands' one. What killed commands left there is removed."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in place.iterdir():
        if old.stat().st_mtime < now - STALE_SECONDS:
            shutil.rmtree(old, ignore_errors=True)
    return place


def _upload(archive: Path, ticket: Ticket, items: int, failed: tuple[str, ...], seconds: float) -> Saved:
    try:
        upload(archive, ticket, max(seconds, SHORTEST_UPLOAD_SECONDS))
    except (NotUploaded, OSError) as error:
        logger.error("the evidence was not uploaded", extra={"why": error})
        return Saved(None, 0, items, failed, str(error))
    return Saved(ticket.object_key, archive.stat().st_size, items, failed)


def _about(command: FreezeEvidenceCommand, config: AgentConfig) -> dict[str, object]:
    return {
        "schema_version": 1,
        "request_id": command.request_id,
        "node_id": config.node_id,
        "pool": config.pool,
        "boot_id": command.boot_id,
        "agent_version": __version__,
        "agent_config": asdict(config),
    }


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_id(parser)
    parser.add_argument("--upload", required=True, help="the ticket for the upload; -: from standard input")
    parser.add_argument("--max-bytes", type=whole_number(1, LARGEST_BYTES), default=MAX_BYTES, help="of the archive")
    parser.add_argument("--bug-report", choices=("yes", "no"), default="no", help="nvidia-bug-report.sh, some minutes")


def _carry_out(arguments: argparse.Namespace, config: AgentConfig) -> int:
    end_well_when_terminated()
    clock = Clock()
    # Standard input keeps it out of the process list: anybody who has the ticket can use it.
    ticket = sys.stdin.read(TICKET_CHARACTERS).strip() if arguments.upload == "-" else arguments.upload
    command = FreezeEvidenceCommand(
        arguments.request_id,
        arguments.boot_id,
        arguments.expires_at,
        ticket,
        arguments.max_bytes,
        arguments.bug_report == "yes",
        _accused(),
    )
    return freeze_evidence(command, config, open_spool(config), event_bus(config, clock), clock)


def _accused() -> str:
    """Read the fault from the environment, not an option: agents that do not know the variable still save evidence."""
    accused = os.environ.get(names.ACCUSED, "")
    return accused if accused != "none" else ""


COMMAND = NodeCommand(
    help="save evidence of the node's fault",
    add_arguments=_add_arguments,
    carry_out=_carry_out,
)
