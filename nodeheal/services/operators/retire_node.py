"""Give a node up for good, by hand: it is out of the pool. Its tags are taken off by who may set them."""

from dataclasses import replace

from nodeheal.contract.vocabulary import NodeState
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node, moved
from nodeheal.ports import Ports
from nodeheal.services.operators.release_node import release_node
from nodeheal.services.operators.request_action import why_busy
from nodeheal.services.recovery.undo_isolation import is_left_isolated
from nodeheal.services.saving import node_of


def retire_node(node_id: str, why: str, ports: Ports, actor: str | None = None) -> Node:
    """The retired node. Safe to repeat: it goes on where it broke off.

    Raises NotFound for an unknown node, ValueError for one that serves a job or has an open incident, NotAccepted when
    others write it.
    """
    node = node_of(node_id, ports)
    is_half_done = node.state is NodeState.RETIRED and is_left_isolated(node, ports)
    if node.state in OUT_OF_SERVICE or is_half_done:
        return release_node(node_id, why, ports, retire=True, actor=actor)
    if node.state is NodeState.RETIRED:
        return node
    check_retirement(node, ports)
    retired = moved(node, NodeState.RETIRED, why, ports.clock())
    if not ports.nodes.save(replace(retired, is_spare=False)):
        raise NotAccepted(f"{node.node_id} is being written by others; nothing was changed, try again")
    return replace(retired, is_spare=False)


def check_retirement(node: Node, ports: Ports) -> None:
    """Raises ValueError for a node in service that serves a job or has an open incident."""
    if node.state in OUT_OF_SERVICE or node.state is NodeState.RETIRED:
        return
    if node.job_id is not None:
        raise ValueError(
            f"{node.node_id} runs {node.job_id}; stop the job first, or say it is over: nodes enroll --job none"
        )
    if busy := why_busy(node, ports):
        raise ValueError(busy)
