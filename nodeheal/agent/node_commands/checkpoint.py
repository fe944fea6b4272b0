"""`nodeheal-agent run checkpoint`: requests a checkpoint from the training tasks of this node.

The request is a file in a folder that tasks see, too: `<job>.json`, replaced atomically. No process is signalled, so a
task that does not take part is never killed by it. docs/agent.md describes what a task does with it.
"""

import argparse
import json
import logging
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeheal.agent.commands.node_command import EXIT_DONE, EXIT_REFUSED, NodeCommand, why_refuse
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.config import AgentConfig
from nodeheal.agent.runtime.safe_files import replace_file

# Tasks run as any user: they read, and only this process writes.
FILE_MODE = 0o644
_JOB = re.compile(r"[A-Za-z0-9._-]{1,128}")  # as in the SSM document

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CheckpointCommand:
    """The job that is to write a checkpoint, on which boots, and until when."""

    job_id: str
    boot_ids: Sequence[str]
    expires_at: float


def ask_for_checkpoint(command: CheckpointCommand, config: AgentConfig, clock: Clock) -> int:
    """Write the request for the job's tasks; returns the exit code. A stale command is refused."""
    refusal = why_refuse(command.boot_ids, command.expires_at, config.boot_id(), clock)
    if refusal:
        logger.error("checkpoint request refused", extra={"why": refusal, "job": command.job_id})
        return EXIT_REFUSED
    asked = {"job_id": command.job_id, "asked_at": clock.utc_now().timestamp(), "expires_at": command.expires_at}
    replace_file(Path(config.checkpoint_dir, f"{command.job_id}.json"), json.dumps(asked), FILE_MODE)
    sys.stdout.write(json.dumps(asked) + "\n")
    return EXIT_DONE


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--job", type=_job, required=True, help="the job's id; --boot-id may then contain several boots: a,b,c"
    )


def _job(text: str) -> str:
    """Check a job's id: it becomes a file name."""
    if not _JOB.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}: a job's id has letters, digits, `.`, `_` and `-`, at most 128")
    return text


def _carry_out(arguments: argparse.Namespace, config: AgentConfig) -> int:
    command = CheckpointCommand(arguments.job, arguments.boot_id.split(","), arguments.expires_at)
    return ask_for_checkpoint(command, config, Clock())


COMMAND = NodeCommand(
    help="request a checkpoint from a job's tasks on this node",
    add_arguments=_add_arguments,
    carry_out=_carry_out,
)
