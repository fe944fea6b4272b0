"""Merges heartbeats into node records and requests interval changes."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from nodeheal.domain.fleet.liveness import Heartbeat, NodeLiveness, apply_heartbeat
from nodeheal.domain.fleet.node import ABSENT
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.recovery.wait_for_news import tell_of_boot

# What one run may do. What is left over, the next run does: nothing of it is urgent.
BOOTS_A_RUN = 100
MACHINES_ASKED_A_RUN = 500


def merge_heartbeats(
    liveness_page: Iterable[NodeLiveness], heartbeats: Mapping[str, Heartbeat], now: datetime
) -> list[NodeLiveness]:
    """Returns the nodes with the heartbeats of their machines. Node records have only what came over the bus."""
    return [
        node_liveness.with_heartbeat(heartbeats.get(node_liveness.instance_id), now) for node_liveness in liveness_page
    ]


def record_missed_boots(
    liveness_page: Iterable[NodeLiveness], heartbeats: Mapping[str, Heartbeat], ports: Ports
) -> list[str]:
    """Records boots that no event has announced, and reconciles the operations that wait for them.

    Returns the nodes that have booted. A boot is normally reported by an event; this makes up for a lost one.
    """
    booted: list[str] = []
    looked = 0
    for node_liveness in liveness_page:
        heartbeat = heartbeats.get(node_liveness.instance_id)
        if heartbeat is None or heartbeat.boot_id == node_liveness.boot_id or node_liveness.state in ABSENT:
            continue
        looked += 1
        if looked > BOOTS_A_RUN:
            break
        if _record_boot(node_liveness.node_id, heartbeat, ports):
            booted.append(node_liveness.node_id)
    return booted


def _record_boot(node_id: str, heartbeat: Heartbeat, ports: Ports) -> bool:
    """Records one boot. False: the boot is known or past, or another writer won; the next run checks again."""
    node = ports.nodes.get(node_id)
    known = apply_heartbeat(node, heartbeat, ports.clock()) if node is not None else None
    if node is None or known is None or known.boot_id == node.boot_id or not ports.nodes.save(known):
        return False
    tell_of_boot(known, ports)
    return True


def request_interval(newest: Mapping[str, Heartbeat], ports: Ports, policy: RecoveryPolicy) -> int:
    """Requests the policy's interval from machines that use another one. Returns how many.

    A machine gets the request with the answer to its next heartbeat.
    """
    every = policy.silence.heartbeat_seconds
    late = [heartbeat for heartbeat in newest.values() if heartbeat.needs_interval(every)][:MACHINES_ASKED_A_RUN]
    for heartbeat in late:
        ports.heartbeats.want(heartbeat, every)
    return len(late)
