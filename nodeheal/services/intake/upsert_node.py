"""Finds or creates the record of the node that reports a fact. Facts of unenrolled nodes do not count."""

from dataclasses import replace
from datetime import datetime, timedelta

from nodeheal.contract.health_event import NodeBooted, NodeFact
from nodeheal.contract.vocabulary import NodeState
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.fleet.node import Node
from nodeheal.ports import Ports

# How soon the machine's tags are read again: each of its events would cost a call.
ASKED_AGAIN_SECONDS = 300


def enrolled_node(fact: NodeFact, ports: Ports) -> Node | None:
    """Returns the enrolled node that reports this fact. The caller saves it. An announced node becomes HEALTHY.

    None: nobody has enrolled the node, by command or by a tag. Its record is kept, so that operators can list it.
    """
    node = ports.nodes.get(fact.node_id)
    if node is None or node.state is NodeState.UNENROLLED:
        return _enrolled_by_tag(fact, node, ports)
    return node if node.has_reported else node.with_first_report(node_from_report(fact, ports.clock()))


def _enrolled_by_tag(fact: NodeFact, known: Node | None, ports: Ports) -> Node | None:
    now = ports.clock()
    reported = node_from_report(fact, now)
    if known is not None and now - known.last_seen < timedelta(seconds=ASKED_AGAIN_SECONDS):
        return None
    pool = ports.enrolment_tags.pool_of(fact.node_id, fact.provider)
    version = known.version if known is not None else 0
    if pool is None:
        ports.nodes.save(replace(reported, state=NodeState.UNENROLLED, last_seen=now, version=version))
        return None
    reported = replace(reported, pool=pool or reported.pool, version=version)
    if known is None:
        return reported
    # Written as not heard yet, so that the store makes the pool known before its node is in it.
    ports.nodes.save(replace(reported, state=NodeState.ENROLLED))
    saved = ports.nodes.get(fact.node_id)
    return saved.with_first_report(reported) if saved is not None else None


def node_from_report(fact: NodeFact, now: datetime) -> Node:
    """Builds the record of a node from its first report. Times are at most `now`: its clock may be ahead."""
    seen_at = min(fact.observed_at, now)
    address, accelerators = (fact.address, fact.accelerators) if isinstance(fact, NodeBooted) else ("", 0)
    return Node(
        node_id=fact.node_id,
        cluster=Cluster(fact.scheduler, fact.cluster),
        pool=fact.pool,
        provider=fact.provider,
        instance_id=fact.instance_id,
        boot_id=fact.boot_id,
        booted_at=seen_at,
        last_seen=seen_at,
        address=address,
        accelerators=accelerators,
        agent_version=fact.agent_version,
    )
