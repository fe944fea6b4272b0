"""A human's last word on a node that nodeheal has taken out of service: back to work, or away for good."""

from dataclasses import replace

from nodeheal.contract.vocabulary import IncidentState, NodeState
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node, moved
from nodeheal.domain.recovery.approval_links import Question
from nodeheal.domain.recovery.timeline import NodeReleased
from nodeheal.operations.engine import reconcile
from nodeheal.operations.questions import find_question
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_nodes import nodes_it_has
from nodeheal.services.operators.close_incident import write_closed
from nodeheal.services.recovery.undo_isolation import incident_of, is_a_humans, is_left_isolated, undo_isolation
from nodeheal.services.recovery.wait_for_news import bring_news
from nodeheal.services.saving import change_node, node_of
from nodeheal.services.steps import clear_if_owner


def release_node(node_id: str, why: str, ports: Ports, *, retire: bool = False, actor: str | None = None) -> Node:
    """Free the node, its slot of the budget and its incident. Only what nodeheal did is undone.

    Written first and switched on then: a node takes work only when it is known to be in service. Where it broke off
    between, the repeated call goes on: a node that names what a human has seen to is not done yet.

    Raises NotFound for an unknown node, ValueError for one that is in service, NotAccepted when others write it.
    """
    node = node_of(node_id, ports)
    if is_left_isolated(node, ports) and retire is (node.state is NodeState.RETIRED):
        return _finish(node, why, ports, actor)
    _must_be_idle(node, ports)
    before = node

    def freed(known: Node) -> Node:
        nonlocal before
        before, after = known, _freed(known, why, retire, ports)  # may raise: before anything is undone
        named = known.open_incident if is_a_humans(known, ports) else None  # what lives finds its node gone
        return replace(after, open_incident=named, healthy_since=ports.clock())

    change_node(node_id, ports, freed)
    return _finish(before, why, ports, actor)


def check_release(node: Node, ports: Ports) -> None:
    """Raises ValueError where release_node would refuse the node as it is now. Changes nothing."""
    if not is_left_isolated(node, ports) or node.state is NodeState.RETIRED:
        _must_be_idle(node, ports)
        _freed(node, "", retire=False, ports=ports)


def _finish(node: Node, why: str, ports: Ports, actor: str | None) -> Node:
    """All that follows from the node's being written as in service, or retired. `node`: with the incident's name."""
    _release_replacement_nodes(node, ports)
    try:
        after = undo_isolation(node, ports)
    except NotAccepted as error:
        wake_its_workflow(node, ports)  # it is not this incident's any more, whenever the command is repeated
        reason = f"{node.node_id} is on record as given back, and gets no work yet: {error}; repeat the command"
        raise NotAccepted(reason) from error
    _close(node, why, ports, actor)
    wake_its_workflow(node, ports)
    return after


def _must_be_idle(node: Node, ports: Ports) -> None:
    """Raises ValueError while a recovery is at work on the node: it would reboot or replace what has been given back.

    One that only waits may be overtaken: it finds the node gone when it wakes.
    """
    incident = incident_of(node, ports)
    if incident is not None and incident.state is IncidentState.OPEN and incident.turn:
        reason = f"{incident.incident_id} is at work on {node.node_id}; wait until it has ended"
        raise ValueError(f"{reason}: `nodeheal incidents show {incident.incident_id}`")


def _freed(node: Node, why: str, retire: bool, ports: Ports) -> Node:
    """The node with nothing of ours on it, but for a job that goes on there, or will. Raises ValueError."""
    is_suspect = (
        node.state is NodeState.SUSPECT and node.open_incident is None
    )  # a replacement node that proved nothing
    if node.state is NodeState.RETIRED:
        raise ValueError(f"{node.node_id} is retired: there is no way back; a machine comes back under another id")
    if node.state not in OUT_OF_SERVICE and not is_suspect:
        state = node.as_shown(ports.clock()).state
        ends = f"; `nodeheal nodes diagnose {node.node_id} --why …` ends its probation if it passes"
        reason = f"{node.node_id} is {state}: nodeheal has not taken it out of service"
        raise ValueError(f"{reason}{ends if state is NodeState.PROBATION else ''}")
    quarantined = node if is_suspect else moved(node, NodeState.QUARANTINED, why, ports.clock())
    freed = moved(quarantined, NodeState.RETIRED if retire else NodeState.HEALTHY, why, ports.clock())
    job = ports.jobs.get(node.job_id) if node.job_id is not None and not retire else None
    goes_on = job is not None and node.node_id in nodes_it_has(job, ports)
    return replace(freed, open_incident=None, job_id=node.job_id if goes_on else None)


def _release_replacement_nodes(node: Node, ports: Ports) -> None:
    """Releases what a broken-off incident has claimed. Nothing else would release it."""
    if not is_a_humans(node, ports):
        return  # its workflow is running, and releases them itself
    for other in ports.nodes.in_pool(node.pool):
        if other.node_id == node.node_id or other.open_incident != node.open_incident:
            continue
        clear_if_owner(ports, other.node_id, open_incident=node.open_incident)


def _close(node: Node, why: str, ports: Ports, actor: str | None) -> None:
    incident = incident_of(node, ports)
    if incident is not None:
        entry_id = f"released-{ports.clock():%Y%m%dT%H%M%S}"
        write_closed(incident, entry_id, f"{node.node_id} given back by hand: {why}", ports, actor, NodeReleased())


def wake_its_workflow(node: Node, ports: Ports) -> None:
    """Wakes the workflow, so that it sees that the node is gone and ends now, and not at its deadline hours later."""
    incident = incident_of(node, ports)
    if incident is None:
        return
    bring_news(incident.incident_id, ports)
    asked = find_question(Question(incident.incident_id, incident.turn), ports)
    if asked is not None:
        reconcile(asked, ports)
