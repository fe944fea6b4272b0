"""The node that takes a broken one's place: claimed for the incident, once, and the broken one put away."""

from collections.abc import Collection
from dataclasses import replace

from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import NodeState, Outcome
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.node import Node, moved
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.incident import TimelineEntry
from nodeheal.ports import Ports
from nodeheal.services.steps import (
    SAVE_TRIES,
    add_timeline_entry,
    clear_if_owner,
    entry_id,
    node_of,
    result_of,
    save_node,
)

# Names the line of the timeline that says which new node is this turn's. The first one that is written holds.
_STAND_IN = "stand-in"


def claimed_spare(broken: Node, incident_id: str, ports: Ports) -> Node | None:
    """The spare that this incident holds already."""
    others = (ports.nodes.get(n.node_id) for n in ports.nodes.in_pool(broken.pool) if n.node_id != broken.node_id)
    return next((n for n in others if n is not None and n.open_incident == incident_id), None)


def claim_spare(
    broken: Node, incident_id: str, ports: Ports, policy: RecoveryPolicy, but: Collection[str] = ()
) -> Node | None:
    """A free node of the pool, claimed for the incident: if there is one, a node that is kept as a spare.

    None: there is none. `but`: nodes on which the job has a rank of its own already, or will have again.
    """
    known = [node for node in ports.nodes.in_pool(broken.pool) if node.node_id not in but]
    free = [node for node in known if not policy.why_opted_out(node.node_id)]
    for seen in sorted(free, key=lambda node: not node.is_spare):
        node = ports.nodes.get(seen.node_id)  # the list lags; the claim is made on what is stored
        usable = node is not None and node.node_id != broken.node_id and node.is_available(ports.clock())
        if node is not None and usable and ports.nodes.save(replace(node, open_incident=incident_id)):
            return node
    return claimed_spare(broken, incident_id, ports)  # a claim whose answer was lost looks like a lost race


def claim_new(request: StepRequest, new: Node, ports: Ports) -> bool:
    """Claim a new node for this replacement. False: it is somebody else's, or this replacement has another one.

    Two conditional writes: the node names its incident, the incident's turn names its node. Each holds for the first.
    """
    if not claim_node(new.node_id, request.incident_id, ports):
        return False
    text = f"{new.node_id} has come up, to take the place of {request.decision.node_id}"
    line = TimelineEntry(ports.clock(), "progress", entry_id(request, _STAND_IN), text, new.node_id)
    ports.incidents.append(request.incident_id, line)
    if stand_in_of(request, ports) == new.node_id:
        return True
    clear_if_owner(ports, new.node_id, open_incident=request.incident_id)
    return False


def stand_in_of(request: StepRequest, ports: Ports) -> str | None:
    """The new node that this turn has claimed (strongly consistent)."""
    told = {entry.entry_id: entry.data for entry in ports.incidents.history(request.incident_id).timeline}
    return told.get(entry_id(request, _STAND_IN))


def put_in_place(request: StepRequest, broken: Node, spare: Node, ports: Ports, what: str = "spare") -> StepResult:
    """Put the broken node away, now that another one is claimed. Repeating it changes nothing."""
    if broken.state is not NodeState.RETIRED:  # by a recovery that has gone on; what is told late changes nothing
        quarantined = moved(broken, NodeState.QUARANTINED, request.decision.reason, ports.clock())
        save_node(ports, broken, state=quarantined.state, state_reason=quarantined.state_reason, job_id=None)
    add_timeline_entry(
        request, ports, "swapped", f"{what} {spare.node_id} stands in for {broken.node_id}, which is quarantined"
    )
    reason = f"swapped for {what} {spare.node_id}"
    return result_of(request, ports, Outcome.DONE, reason, boot_id=spare.boot_id, replacement_node_id=spare.node_id)


def claim_node(node_id: str, incident_id: str, ports: Ports) -> bool:
    """Claim it for the incident, on what is stored now: no job starts there. False: somebody else has it by now."""
    for _ in range(SAVE_TRIES):
        node = node_of(node_id, ports)
        if node.open_incident == incident_id:
            return True
        if not node.is_available(ports.clock()):
            return False
        if ports.nodes.save(replace(node, open_incident=incident_id)):
            return True
    raise NotAccepted(f"{node_id} is being written by others; it is claimed later")
