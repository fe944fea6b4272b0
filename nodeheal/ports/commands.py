"""Commands to nodes, and what became of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from nodeheal.domain.fleet.node import Node
from nodeheal.domain.recovery.evidence import Upload

# Gives leave to upload to this key, at most so many bytes, until then. Nothing is written by asking.
SignUpload = Callable[[str, int, datetime], Upload]


@dataclass(frozen=True)
class Command:
    """What a node is to do: a document of packaging/ssm, by the name of its file, and the parameters of its own.

    `comment`: for people who look at the command where it was sent.
    """

    document: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    comment: str = ""


@dataclass(frozen=True)
class CommandStatus:
    """What became of a command on a node. `state`: PENDING, SUCCEEDED, FAILED, or UNKNOWN (SSM does not know it).

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

    def send(self, node: Node, command: Command, expires_at: datetime) -> str:
        """Send it for the boot that the node is on; the command's id. Acceptance proves nothing."""

    def send_to_all(self, nodes: Sequence[Node], command: Command, expires_at: datetime) -> Sequence[str]:
        """Send it to each of them, for commands without an answer; the commands' ids."""

    def look(self, node: Node, command_id: str) -> CommandStatus:
        """What became of the command."""
