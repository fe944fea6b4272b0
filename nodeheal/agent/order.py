"""What every order that reaches a node as a command has in common: whom it is meant for, and how it is answered."""

import logging
from collections.abc import Collection

from nodeheal.agent.bus import BusUnavailable, EventBus
from nodeheal.agent.clock import Clock
from nodeheal.agent.event import NodeFact
from nodeheal.agent.spool import Entry, Spool

EXIT_DONE = 0
EXIT_REFUSED = 3

logger = logging.getLogger(__name__)


def why_refuse(meant_for: Collection[str], expires_at: float, boot_id: str, clock: Clock) -> str | None:
    """Why an order for these boots must not be carried out on this one now; None where it may be."""
    if boot_id not in meant_for:
        return f"meant for boot {', '.join(meant_for)}, this is {boot_id}"
    now = clock.utc_now().timestamp()
    if not now < expires_at:  # an end that is no number is none: `nan` is not later
        return f"the order has expired: its end is {expires_at:.0f}, this node's clock says {now:.0f}"
    return None


def report(event: NodeFact, spool: Spool, bus: EventBus) -> None:
    """Keep the answer, then try to deliver it; if that fails, the running agent does, now or after a restart."""
    spool.put([event])
    entry = Entry(
        event.event_id, event.detail_type, event.to_json(), event.observed_at.timestamp(), event.boot_id, spool.zero()
    )
    try:
        receipt = bus.put([entry])
    except BusUnavailable as error:
        logger.error("the bus is out of reach; the agent will deliver the result", extra={"why": error})
        return
    if receipt.later:
        logger.error("the bus has not taken the result; the agent will deliver it", extra={"why": receipt.why_later})
    spool.forget(receipt.accepted)
