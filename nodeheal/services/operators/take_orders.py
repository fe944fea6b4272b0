"""Does what people order by a node's mark at its scheduler: the same request as by the command, and once."""

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from nodeheal.contract.acts import Actor, Reboot, Replace
from nodeheal.contract.vocabulary import Action, Provider
from nodeheal.domain.errors import NotAccepted, NotFound
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.fleet.node_order import ClusterOrders, NodeOrder, StandingOrder
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.operators.do_act import request_act

logger = logging.getLogger(__name__)

_WORDS = 200  # characters of why an order waits: all orders are one record
_MOST = 200  # orders of a cluster: one who can set every mark would fill the record of them
_ACTS: Mapping[Action, type[Reboot] | type[Replace]] = {Action.REBOOT: Reboot, Action.REPLACE: Replace}


def take_orders(clusters: Iterable[Cluster], stop_at: datetime, ports: Ports, policy: RecoveryPolicy) -> list[str]:
    """Request what is ordered in these clusters, and in those of the last look; the nodes concerned.

    An order that cannot be requested now stands until it can, or until its mark is gone.
    """
    known = {of_cluster.cluster: of_cluster for of_cluster in ports.fleet_index.cursor().orders}
    taken: list[str] = []
    for cluster in sorted({*known, *clusters}):
        scheduler = ports.schedulers.get(cluster.kind)
        if scheduler is None or scheduler.orders is None or ports.clock() >= stop_at:
            continue
        try:
            pending, is_limited = scheduler.orders.pending(cluster), scheduler.orders.is_limited(cluster)
        except NotAccepted as error:
            logger.warning("orders of a cluster are not known", extra={"cluster": cluster.name, "why": str(error)})
            continue
        except NotFound:  # the cluster is gone
            _save(cluster, None, ports)
            continue
        standing = tuple(_standing(pending, known.get(cluster)))
        after = ClusterOrders(cluster, standing, is_limited and len(pending) <= _MOST)
        if after != known.get(cluster):
            _save(cluster, after, ports)
        for order in pending:
            taken += _taken(order, after, ports, policy)
    return taken


def _standing(pending: Sequence[NodeOrder], last: ClusterOrders | None) -> Iterator[StandingOrder]:
    """Yield each order that stands now, those first that are taken already.

    A mark that is new may be older than what limits who sets it, unless that was in force at the last look.
    """
    before = {(order.node_id, order.action): order for order in last.standing} if last is not None else {}
    was_limited = last is not None and last.is_limited
    orders = {(order.machine_id, order.action): order for order in sorted(pending, key=lambda order: order.machine_id)}
    for place in sorted(orders, key=lambda place: place not in before or not before[place].is_taken)[:_MOST]:
        needs_approval = not (was_limited and orders[place].is_authorised)
        known = before.get(place, StandingOrder(*place, needs_approval))
        yield known if known.is_taken else replace(known, needs_approval=known.needs_approval or needs_approval)


def _taken(order: NodeOrder, of_cluster: ClusterOrders, ports: Ports, policy: RecoveryPolicy) -> list[str]:
    """Request the order, and return its node; empty where it waits, was taken before, or is none, since the node is not
    on record as HyperPod's in this cluster.

    It is recorded as taken first: one that breaks off here is not requested twice, and its person marks the node again.
    """
    cluster, place = of_cluster.cluster, (order.machine_id, order.action)
    standing = next((order for order in of_cluster.standing if (order.node_id, order.action) == place), None)
    node = ports.nodes.get(order.machine_id)
    if standing is None or standing.is_taken or node is None:
        return []
    if (node.cluster, node.provider) != (cluster, Provider.hyperpod):
        return []
    act, actor = _ACTS[order.action](node=node.node_id, why=order.how), Actor(id=order.who, name=order.who)
    key = hashlib.sha256(f"{node.node_id} {order.action} {ports.clock().isoformat()}".encode()).hexdigest()[:32]
    _change(cluster, standing, replace(standing, is_taken=True, waits_because=""), ports)
    try:
        request_act(act, actor, key, ports, policy, needs_approval=standing.needs_approval)
    except (NotAccepted, ValueError) as error:  # busy, paused, without an attempt left
        _change(cluster, standing, replace(standing, waits_because=str(error)[:_WORDS]), ports)
        return []
    return [node.node_id]


def _change(cluster: Cluster, known: StandingOrder, changed: StandingOrder, ports: Ports) -> None:
    by_cluster = {standing.cluster: standing for standing in ports.fleet_index.cursor().orders}
    of_cluster = by_cluster[cluster]
    place = (known.node_id, known.action)
    kept = tuple(changed if (order.node_id, order.action) == place else order for order in of_cluster.standing)
    _save(cluster, replace(of_cluster, standing=kept), ports)


def _save(cluster: Cluster, after: ClusterOrders | None, ports: Ports) -> None:
    """Write it beside the others, before another cluster is asked."""
    cursor = ports.fleet_index.cursor()
    others = tuple(of_other for of_other in cursor.orders if of_other.cluster != cluster)
    ports.fleet_index.save_cursor(replace(cursor, orders=(*others, after) if after is not None else others))
