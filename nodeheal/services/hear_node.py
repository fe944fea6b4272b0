"""Whose fact this is: a node that is known, one that an operator has announced, or one that nobody has heard of."""

from dataclasses import replace
from datetime import datetime

from nodeheal.contract.health_event import NodeFact
from nodeheal.domain.node import Node
from nodeheal.ports import Ports


def hear_node(fact: NodeFact, ports: Ports) -> Node:
    """The node that says this itself, still to be saved. One that was only enrolled is HEALTHY from now on."""
    node = ports.nodes.get(fact.node_id)
    if node is None:
        return enrolled(fact, ports.clock())
    if node.is_heard:
        return node
    if node.pool != fact.pool:
        # The agent knows. Written as not heard yet, so that the store makes the pool known before its node is in it.
        ports.nodes.save(replace(node, pool=fact.pool))
        node = ports.nodes.get(fact.node_id) or node
    return node if node.is_heard else node.first_heard(enrolled(fact, ports.clock()))


def enrolled(fact: NodeFact, now: datetime) -> Node:
    """A node that has not been heard of before, as its first event describes it; its clock may be ahead."""
    seen_at = min(fact.observed_at, now)
    return Node(
        node_id=fact.node_id,
        cluster=fact.cluster,
        pool=fact.pool,
        provider=fact.provider,
        instance_id=fact.instance_id,
        boot_id=fact.boot_id,
        booted_at=seen_at,
        last_seen=seen_at,
    )
