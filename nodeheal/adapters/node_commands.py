"""Sends each command the way that its node's scheduler has, and by SSM where it has none."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.domain.fleet.node import Node
from nodeheal.ports.commands import Command, CommandStatus, NodeCommands


class NodeCommandsByScheduler:
    """Implements NodeCommands. `makers`: the schedulers with a way of their own; it is made when a node has one."""

    def __init__(self, makers: Mapping[SchedulerKind, Callable[[], NodeCommands]], by_ssm: NodeCommands) -> None:
        self._makers, self._by_ssm = makers, by_ssm
        self._made: dict[SchedulerKind, NodeCommands] = {}

    def send(self, node: Node, command: Command, expires_at: datetime) -> str:
        return self._of(node.cluster.kind).send(node, command, expires_at)

    def send_to_all(self, nodes: Sequence[Node], command: Command, expires_at: datetime) -> Sequence[str]:
        kinds = dict.fromkeys(node.cluster.kind for node in nodes)
        return [
            sent
            for kind in kinds
            for sent in self._of(kind).send_to_all(
                [node for node in nodes if node.cluster.kind is kind], command, expires_at
            )
        ]

    def look(self, node: Node, command_id: str) -> CommandStatus:
        return self._of(node.cluster.kind).look(node, command_id)

    def _of(self, kind: SchedulerKind) -> NodeCommands:
        if kind not in self._makers:
            return self._by_ssm
        if kind not in self._made:
            self._made[kind] = self._makers[kind]()
        return self._made[kind]
