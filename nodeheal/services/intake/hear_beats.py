"""Signs of life that machines have written down themselves: what they say about the nodes, and what they are told."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from nodeheal.domain.fleet.liveness import Heartbeat, NodeLiveness, apply_heartbeat
from nodeheal.domain.fleet.node import ABSENT
from nodeheal.domain.operation import node_owner
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.operations.engine import reconcile_all
from nodeheal.ports import Ports

# What one run may do. What is left over, the next run does: nothing of it is urgent.
BOOTS_A_RUN = 100
MACHINES_TOLD_A_RUN = 500


def lay_over(glimpses: Iterable[NodeLiveness], beats: Mapping[str, Heartbeat], now: datetime) -> list[NodeLiveness]:
    """The nodes with their machines' own signs of life; the record has those that came over the bus."""
    return [glimpse.with_heartbeat(beats.get(glimpse.instance_id), now) for glimpse in glimpses]


def note_boots(glimpses: Iterable[NodeLiveness], beats: Mapping[str, Heartbeat], ports: Ports) -> list[str]:
    """Record the boots that nobody has announced, and end the waits for them; the nodes that have booted.

    The announcement is what tells of a boot. This makes up for one that was lost.
    """
    booted: list[str] = []
    looked = 0
    for glimpse in glimpses:
        beat = beats.get(glimpse.instance_id)
        if beat is None or beat.boot_id == glimpse.boot_id or glimpse.state in ABSENT:
            continue
        looked += 1
        if looked > BOOTS_A_RUN:
            break
        if _note_boot(glimpse.node_id, beat, ports):
            booted.append(glimpse.node_id)
    return booted


def _note_boot(node_id: str, beat: Heartbeat, ports: Ports) -> bool:
    """False: it is known, or past, or somebody else is just writing the node, and the next run looks again."""
    node = ports.nodes.get(node_id)
    known = apply_heartbeat(node, beat, ports.clock()) if node is not None else None
    if node is None or known is None or known.boot_id == node.boot_id or not ports.nodes.save(known):
        return False
    reconcile_all(node_owner(node_id), ports)
    return True


def ask_for_interval(beats: Mapping[str, Heartbeat], ports: Ports, policy: RecoveryPolicy) -> int:
    """Ask machines for the policy's interval; how many were asked. Each hears of it in the answer to its next beat."""
    every = policy.silence.heartbeat_seconds
    late = [beat for beat in beats.values() if beat.needs_interval(every)][:MACHINES_TOLD_A_RUN]
    for beat in late:
        ports.heartbeats.want(beat, every)
    return len(late)
