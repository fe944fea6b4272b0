"""Free nodes of a pool, claimed for an incident."""

from collections.abc import Collection
from dataclasses import replace

from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.pause import Pauses
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.saving import change_node


def claimed_spare(broken: Node, incident_id: str, ports: Ports) -> Node | None:
    """The spare that this incident holds already."""
    others = (ports.nodes.get(n.node_id) for n in ports.nodes.in_pool(broken.pool) if n.node_id != broken.node_id)
    return next((n for n in others if n is not None and n.open_incident == incident_id), None)


def claim_spare(
    broken: Node,
    incident_id: str,
    ports: Ports,
    policy: RecoveryPolicy,
    but: Collection[str] = (),
    job: Job | None = None,
) -> Node | None:
    """A free node of the pool, claimed for the incident: if there is one, a node that is kept as a spare.

    Returns None where no node is free. `but`: nodes on which the job has, or will have, another rank. `job`: of which
    the spare would take a rank.
    """
    pauses = ports.pauses.read()
    for listed in _candidates(broken, ports, policy, but, job):
        node = ports.nodes.get(listed.node_id)  # the list lags; the claim is made on what is stored
        usable = node is not None and node.is_available(ports.clock(), pauses)
        if node is not None and usable and ports.nodes.save(replace(node, open_incident=incident_id)):
            return node
    return claimed_spare(broken, incident_id, ports)  # a claim whose answer was lost looks like a lost race


def next_spare(broken: Node, pauses: Pauses, ports: Ports, policy: RecoveryPolicy) -> Node | None:
    """The node that would be claimed now for a node without a job; None: none is free."""
    now = ports.clock()
    return next((node for node in _candidates(broken, ports, policy) if node.is_available(now, pauses)), None)


def _candidates(
    broken: Node, ports: Ports, policy: RecoveryPolicy, but: Collection[str] = (), job: Job | None = None
) -> list[Node]:
    """The other nodes of the pool that may take its place, those that are kept as spares first."""
    known = [node for node in ports.nodes.in_pool(broken.pool) if node.node_id not in (broken.node_id, *but)]
    known = [node for node in known if job is None or job.may_run_on(node.node_id)]
    free = [node for node in known if not policy.why_opted_out(node.node_id)]
    return sorted(free, key=lambda node: not node.is_spare)


def claim_node(node_id: str, incident_id: str, pauses: Pauses, ports: Ports) -> bool:
    """Claims it for the incident, on its stored record: no job starts there. False: a job or an incident has it."""

    def claimed(node: Node) -> Node:
        if not node.is_available(ports.clock(), pauses):
            return node
        return replace(node, open_incident=incident_id)

    return change_node(node_id, ports, claimed).open_incident == incident_id
