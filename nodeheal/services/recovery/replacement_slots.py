"""How many machines of a pool are replaced at once: numbered slots, as the disruption budget has them."""

from nodeheal.domain.fleet.node import Node
from nodeheal.ports import Ports

REPLACEMENT = "replacement"  # the kind of the wait for a new machine; its key is the broken node


def claim_slot(node: Node, slots: int, ports: Ports) -> bool:
    """Take a slot for the node. Its wait must be stored before: who holds a slot without one has crashed."""
    name = _slots_of(node.pool)
    if ports.pools.claim(name, node.node_id, slots):
        return True
    crashed = [holder for holder in ports.pools.holders(name) if ports.waits.get(REPLACEMENT, holder) is None]
    for holder in crashed:
        ports.pools.release(name, holder)
    return bool(crashed) and ports.pools.claim(name, node.node_id, slots)


def free_slot(node: Node, ports: Ports) -> None:
    """Give the node's slot back, if it has one."""
    ports.pools.release(_slots_of(node.pool), node.node_id)


def _slots_of(pool: str) -> str:
    return f"{pool}#replacements"
