"""Three nodes of one pool, and a run of a job on two of them."""

from typing import Any

import pytest

from nodeheal.contract.health_event import NodeBooted
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.ports import Ports
from nodeheal.services.saving import node_of
from tests.support.builders import NOW, SHARED_FACTS, FrozenClock, memory_ports, node, started_job, stored_run, xid
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


def booted(boot_id: str = "boot-1", **changes: Any) -> NodeBooted:
    fact = xid(79, node_id=A).model_dump(include=SHARED_FACTS | {"observed_at", "node_id", "instance_id"})
    known = {"event_id": "b", "boot_id": boot_id, "booted_at": NOW, "address": "127.0.0.1", "accelerators": 8}
    return NodeBooted(**fact, **{**known, **changes})
