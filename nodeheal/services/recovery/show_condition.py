"""Shows at the node's scheduler that an accelerator is broken. No recovery waits for that, or ends for it."""

import logging

from nodeheal.domain.faults.assessment import assess_faults
from nodeheal.domain.faults.node_condition import message_of, reason_of
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.incident import History
from nodeheal.ports import Ports
from nodeheal.services.saving import node_of

logger = logging.getLogger(__name__)


def show_condition(history: History, ports: Ports, policy: RecoveryPolicy) -> None:
    """Show the incident's gravest fault, also where nodeheal only observes. Repeating it changes nothing."""
    incident, fault = history.incident, assess_faults(history, policy).fault
    reason = reason_of(fault)
    if reason is None:
        return
    try:
        node = node_of(incident.node_id, ports)
        conditions = ports.scheduler_of(node).conditions
        if conditions is not None:
            conditions.show(node, reason, message_of(fault, incident.incident_id, is_drill=history.is_drill))
    except Exception:
        logger.exception("the condition of a node is not shown", extra={"node": incident.node_id})
