"""Three nodes of one pool, and a run of a job on two of them."""

import pytest

from nodeheal.domain.jobs.job import Job, Run
from nodeheal.ports import Ports
from nodeheal.services.saving import node_of
from tests.support.builders import FrozenClock, memory_ports, node, started_job, stored_run
from tests.support.incident_steps import LLAMA, A, B, C


@pytest.fixture
def three_nodes() -> Ports:
    """Healthy nodes A, B and C, on which nothing runs."""
    made = memory_ports(FrozenClock())
    for name in (A, B, C):
        made.nodes.save(node(name))
    return made


def started_run(ports: Ports, job: Job = LLAMA) -> Run:
    """The first run of the job, on A and B."""
    started_job(job, [node_of(A, ports), node_of(B, ports)], ports)
    return stored_run(ports, "llama", 1)
