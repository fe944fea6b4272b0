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

_MOST = 200  # orders of a cluster: one who can set every mark would fill the record of them
_ACTS: Mapping[Action, type[Reboot] | type[Replace]] = {Action.REBOOT: Reboot, Action.REPLACE: Replace}


def take_orders(clusters: Iterable[Cluster], stop_at: datetime, ports: Ports, policy: RecoveryPolicy) -> list[str]:
    """Request what is ordered in these clusters, and in those of the last look; the nodes concerned.

    An order that cannot be requested now stands until it can, or until its mark is gone.
    """
    known = {one.cluster: one for one in ports.fleet_index.cursor().orders}
    taken: list[str] = []
    for cluster in sorted({*known, *clusters}):
        scheduler = ports.schedulers.get(cluster.kind)
        if scheduler is None or scheduler.orders is None or ports.clock() >= stop_at:
            continue
        try:
            pending = scheduler.orders.pending(cluster)
        except NotAccepted as error:
            logger.warning("orders of a cluster are not known", extra={"cluster": cluster.name, "why": str(error)})
            continue
        except NotFound:  # the cluster is gone
            after = None
        else:
            standing = tuple(_standing(cluster, pending, known.get(cluster), ports, policy))
            after = ClusterOrders(cluster, standing)
            before = known[cluster].standing if cluster in known else ()
            taken += [one.node_id for one in standing if one.is_taken and one not in before]
        if after != known.get(cluster):
            _save(cluster, after, ports)
    return taken


def _standing(
    cluster: Cluster, pending: Sequence[NodeOrder], last: ClusterOrders | None, ports: Ports, policy: RecoveryPolicy
) -> Iterator[StandingOrder]:
    """Yield each order that stands now, after it was requested if it can be.

    A mark that stood at the first look at its cluster may be older than what limits who sets it.
    """
    before = {(one.node_id, one.action): one for one in last.standing} if last is not None else {}
    for order in sorted(pending, key=lambda order: order.machine_id)[:_MOST]:
        known = before.get((order.machine_id, order.action))
        if known is not None and known.is_taken:
            yield known
            continue
        is_doubted = known.needs_approval if known is not None else last is None
        standing = StandingOrder(order.machine_id, order.action, is_doubted or not order.is_authorised)
        yield replace(standing, is_taken=_is_requested(standing, order, cluster, ports, policy))


def _is_requested(
    standing: StandingOrder, order: NodeOrder, cluster: Cluster, ports: Ports, policy: RecoveryPolicy
) -> bool:
    """Whether an incident has the order. It is none for a node that is not on record as HyperPod's in this cluster."""
    node = ports.nodes.get(order.machine_id)
    if node is None or (node.cluster, node.provider) != (cluster, Provider.hyperpod):
        return False
    now, actor = ports.clock(), Actor(id=order.who, name=order.who)
    act = _ACTS[order.action](node=node.node_id, why=order.how)
    key = hashlib.sha256(f"{node.node_id} {order.action} {now.isoformat()}".encode()).hexdigest()[:32]
    try:
        request_act(act, actor, key, ports, policy, needs_approval=standing.needs_approval)
    except (NotAccepted, ValueError) as error:  # busy, paused, without an attempt left
        logger.info("an order waits", extra={"node": node.node_id, "order": order.how, "why": str(error)})
        return False
    return True


def _save(cluster: Cluster, after: ClusterOrders | None, ports: Ports) -> None:
    """Write it beside the others, before another cluster is asked."""
    cursor = ports.fleet_index.cursor()
    others = tuple(one for one in cursor.orders if one.cluster != cluster)
    ports.fleet_index.save_cursor(replace(cursor, orders=(*others, after) if after is not None else others))
