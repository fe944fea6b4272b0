"""NEW_NODE: a node that comes up for the first time stands in its pool's line, until it is diagnosed or may serve.

No workflow waits for it. The function that finds a place for it, or sees that it needs none, ends the operation.
"""

from datetime import timedelta

from nodeheal.contract.names import new_nodes_line
from nodeheal.contract.vocabulary import VerbName
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.operation import Operation, node_owner
from nodeheal.operations.handler import STANDS_IN_LINE
from nodeheal.operations.record import start_waiting, update
from nodeheal.ports import Ports

# For a place, or for the scheduler to know it. Then the node serves undiagnosed: its jobs have checks of their own.
_WAITS_AT_MOST = timedelta(hours=2)


def stand_in_line(node: Node, ports: Ports) -> None:
    """Put the node at the end of its pool's line. Repeating is harmless."""
    now = ports.clock()
    standing = Operation(
        owner=node_owner(node.node_id),
        operation_id=f"new-{node.pool}-{node.boot_id}",
        verb=VerbName.NEW_NODE,
        token="",
        incident_id="",
        deadline_at=now + _WAITS_AT_MOST,
        request_json="",
        node_id=node.node_id,
        boot_id=node.boot_id,
        line=(new_nodes_line(node.pool), f"{now:%Y-%m-%dT%H:%M:%SZ}#{node.node_id}"),
    )
    start_waiting(standing, ports)


def leave_line(standing: Operation, ports: Ports) -> None:
    """It stands in the line no more."""
    update(standing, ports, Operation.delivered)


HANDLER = STANDS_IN_LINE
