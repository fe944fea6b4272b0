"""Commands to nodes, and what became of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from nodeheal.contract.fabric import FabricOrder
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import DirectoryLook
from nodeheal.domain.recovery.evidence import Diagnosis, EvidenceAsked, Upload

# Gives leave to upload to this key, at most so many bytes, until then. Nothing is written by asking.
SignUpload = Callable[[str, int, datetime], Upload]


# Asks a node, by request id and until then, to look into a job's checkpoint directory; the command's id. The node
# answers with Checkpoint Found. As NodeCommands has it, one that is not known (any more) is NotFound.
FindCheckpoint = Callable[[Node, DirectoryLook, str, datetime], str]


# Asks a node to take its part in the test of the way to another one; the command's id. The node answers with
# Diagnostics Finished. As NodeCommands has it, one that is not known (any more) is NotFound.
TryWay = Callable[[Node, FabricOrder], str]


@dataclass(frozen=True)
class CommandStatus:
    """What became of a command on a node. `state`: PENDING, SUCCEEDED, FAILED, or UNKNOWN (nobody knows it).

    `exit_code`: of the script on the node; None: not known.
    """

    state: str
    output: str = ""
    exit_code: int | None = None

    @property
    def has_script_failed(self) -> bool:
        """Whether the script itself ended with this failure.

        The SSM agent and SSM make up the other codes, and they say nothing about what the script has done: -1 for one
        that never began or that a signal ended, 1 for one that was cut off by a power loss or a reboot, 137 for one
        that was killed at its time-out or cancelled.
        """
        return self.state == "FAILED" and self.exit_code not in (None, -1, 1, 137)


class NodeCommands(Protocol):
    """Makes nodes do things. Every command names the boot it is meant for and when it expires.

    A node that the other side does not know (any more) is NotFound, and nothing was sent.
    """

    def reboot(self, node: Node, expires_at: datetime) -> str:
        """Ask for a reboot of exactly this boot; the command's id. Acceptance proves nothing."""

    def diagnose(self, node: Node, ask: Diagnosis, request_id: str, expires_at: datetime) -> str:
        """Ask for diagnostics; the command's id. The node answers with a Diagnostics Finished event."""

    def collect(self, node: Node, ask: EvidenceAsked, request_id: str, expires_at: datetime) -> str:
        """Ask for evidence, to be uploaded by `expires_at`, and whether the node shows the fault; the command's id.
        The node answers with Evidence Frozen."""

    def checkpoint(self, nodes: Sequence[Node], job_id: str, expires_at: datetime) -> Sequence[str]:
        """Ask the job's tasks on these nodes to write a checkpoint now; the commands' ids. Nobody answers."""

    def look(self, node: Node, command_id: str) -> CommandStatus:
        """What became of the command."""
