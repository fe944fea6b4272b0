"""Records as they are stored, for what a screen shows beside a view, such as a node's state at its own scheduler."""

from datetime import datetime

from nodeheal.contract.vocabulary import IncidentState
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.recovery.incident import Incident
from nodeheal.ports import Ports
from nodeheal.services.operators.look_at_job import find_job
from nodeheal.services.operators.review_incidents import list_incidents
from nodeheal.services.saving import node_of


def node(node_id: str, ports: Ports) -> Node:
    """Return a node's record. Raises NotFound."""
    return node_of(node_id, ports)


def job(job_id: str, ports: Ports) -> Job:
    """Return a job's record. Raises NotFound."""
    return find_job(job_id, ports)


def incidents(since: datetime, ports: Ports) -> list[Incident]:
    """Return the records of all incidents that were opened since, the newest first."""
    return list_incidents(ports, list(ports.fleet_index.pools()), list(IncidentState), since)
