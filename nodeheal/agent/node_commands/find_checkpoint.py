"""`nodeheal-agent run find-checkpoint`: reports the newest complete checkpoint of a job.

With `--sight-after` it reports only what this node sees at the directory. From the answers of all nodes of a job, the
control plane decides whether they share the directory.
"""

import argparse
import json
import logging
import os
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from nodeheal.agent.commands.node_command import (
    EXIT_DONE,
    EXIT_REFUSED,
    NodeCommand,
    add_request_id,
    number,
    report,
    why_refuse,
)
from nodeheal.agent.identity.mount_identity import see_apart
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.compose import event_bus, open_spool
from nodeheal.agent.runtime.config import AgentConfig
from nodeheal.agent.runtime.file_owner import ROOT
from nodeheal.agent.runtime.training_files import read_progress, step_in
from nodeheal.agent.transport.bus import EventBus
from nodeheal.agent.transport.event import EventFactory, Found
from nodeheal.agent.transport.spool import Spool
from nodeheal.checkpoints.apart import SearchFailed, list_apart, tell_apart
from nodeheal.checkpoints.found import DirectoryListing, Distrusted
from nodeheal.checkpoints.place import why_not_plain
from nodeheal.contract import names
from nodeheal.contract.vocabulary import CheckpointFormat

LONGEST_SECONDS = 40.0  # the control plane asks another node after 60
LONGEST_WAIT_SECONDS = 99.0  # the two digits that the SSM document accepts
LEAST_LOOK_SECONDS = 5.0  # to stat a folder; a file system that takes longer hangs
STEP_SECONDS = 3.0  # to read the progress file of the previous run
TO_REPORT_SECONDS = 5.0  # the share of the given time that reporting may need
_NUMBER = re.compile(r"[0-9]{1,18}")
_PROGRESS = re.compile(r"[A-Za-z0-9._-]{1,155}\.(json|steps)")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FindCheckpointCommand:
    """The directory, the boot, and the expiry."""

    directory: str
    format: CheckpointFormat
    request_id: str
    boot_id: str
    expires_at: float
    progress: Path | None = None  # where the previous run may have written its steps
    distrusted: Distrusted | None = None  # what is left out
    sight_after: float | None = None  # report only what is seen there, after so many seconds


def find_checkpoint(
    command: FindCheckpointCommand, config: AgentConfig, spool: Spool, bus: EventBus, clock: Clock
) -> int:
    """Search, report, and print one line of JSON; returns the exit code. A stale command and an invalid path are
    refused.
    """
    refusal = why_refuse([command.boot_id], command.expires_at, config.boot_id(), clock)
    not_plain = why_not_plain(command.directory)
    refusal = refusal or (f"{command.directory!r} is not searched: {not_plain}" if not_plain else None)
    if refusal:
        logger.error("search for a checkpoint refused", extra={"why": refusal, "request": command.request_id})
        return EXIT_REFUSED
    left = command.expires_at - clock.utc_now().timestamp() - TO_REPORT_SECONDS
    answer = _look(command, max(1.0, min(left, LONGEST_SECONDS)), _as_agent(Path(config.state_dir)))
    report(
        EventFactory(config.identity, command.boot_id).found_checkpoint(command.request_id, answer, clock.utc_now()),
        spool,
        bus,
    )
    sys.stdout.write(
        json.dumps({**asdict(answer), "request_id": command.request_id}, default=datetime.isoformat) + "\n"
    )
    return EXIT_DONE


def _last_step(file: Path, become: Callable[[], None]) -> int | None:
    """Return the step, read as the user of `become`; None where the file does not exist or contains none."""
    try:
        step = tell_apart(lambda: step_in(read_progress(file)), STEP_SECONDS, become)
    except SearchFailed:
        return None
    return step if isinstance(step, int) else None


def _look(command: FindCheckpointCommand, seconds: float, become: Callable[[], None]) -> Found:
    if command.sight_after is None:
        listing = list_apart(
            command.directory,
            command.format,
            seconds,
            to_newest_valid=True,
            distrusted=command.distrusted,
            prepare=become,
        )
        answer = _found(listing)
        return replace(answer, last_step=_last_step(command.progress, become)) if command.progress else answer
    after = min(command.sight_after, seconds - LEAST_LOOK_SECONDS)
    sight = see_apart(command.directory, max(0.0, after), LEAST_LOOK_SECONDS, become)
    known = Found(command.directory, command.format)
    return replace(known, reason=sight) if isinstance(sight, str) else replace(known, sight=sight)


def _found(listing: DirectoryListing) -> Found:
    newest = listing.newest_valid
    skipped = tuple(checkpoint.told for checkpoint in listing.skipped)
    if newest is None:
        return Found(
            listing.directory, listing.format, skipped=skipped, reason=listing.problem or listing.why_incomplete
        )
    written_at = datetime.fromtimestamp(newest.written_at, UTC) if newest.written_at else None
    return Found(listing.directory, listing.format, newest.path, newest.step, skipped, written_at=written_at)


def _as_agent(state: Path) -> Callable[[], None]:
    """Switch to the agent's user in the searching process: commands run as root, and jobs write what is read."""

    def become() -> None:
        if os.geteuid() != ROOT:
            return
        owner = state.stat()
        os.setgroups([])
        os.setgid(owner.st_gid)
        os.setuid(owner.st_uid)

    return become


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_id(parser)
    parser.add_argument("--directory", required=True, help="an absolute path; it is read as the agent's own user")
    parser.add_argument(
        "--format", choices=list(CheckpointFormat), default="auto", help="auto: detected from the files"
    )
    apart, what = number(0, LONGEST_WAIT_SECONDS), "do not search: report what is seen there, after so many seconds"
    parser.add_argument("--sight-after", type=apart, help=what)


def _carry_out(arguments: argparse.Namespace, config: AgentConfig) -> int:
    clock = Clock()
    command = FindCheckpointCommand(
        arguments.directory,
        CheckpointFormat(arguments.format),
        arguments.request_id,
        arguments.boot_id,
        arguments.expires_at,
        _progress_of(config),
        _distrusted(),
        arguments.sight_after,
    )
    return find_checkpoint(command, config, open_spool(config), event_bus(config, clock), clock)


def _progress_of(config: AgentConfig) -> Path | None:
    """Read the file from the environment, not an option: agents that do not know the variable still search for a
    checkpoint.
    """
    name = os.environ.get(names.PROGRESS_OF_RUN, "")
    return Path(config.progress_dir, name) if _PROGRESS.fullmatch(name) else None


def _distrusted() -> Distrusted | None:
    """Read what is left out from the environment, for the same reason."""
    step, until = (os.environ.get(name, "") for name in (names.DISTRUSTED_STEP, names.DISTRUSTED_UNTIL))
    return Distrusted(int(step), float(until)) if _NUMBER.fullmatch(step) and _NUMBER.fullmatch(until) else None


COMMAND = NodeCommand(
    help="find a job's newest complete checkpoint",
    add_arguments=_add_arguments,
    carry_out=_carry_out,
)
