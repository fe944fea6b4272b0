"""A free node for an incident is one that nothing else gives out."""

import pytest

from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.services.recovery.spares import claim_spare
from tests.unit.builders import memory_ports, node, scheduler_in

A, B = "mi-0aaaaaaaaaaaaaaaa", "mi-0bbbbbbbbbbbbbbbb"


@pytest.mark.parametrize("requeues", [False, True])
def test_a_node_that_looks_free_is_claimed_unless_its_scheduler_may_have_a_job_there(requeues: bool) -> None:
    ports = memory_ports()
    ports.nodes.save(node(A, open_incident="inc-1"))
    ports.nodes.save(node(B))
    scheduler_in(ports).requeues = requeues

    claimed = claim_spare(node(A), "inc-1", ports, RecoveryPolicy())

    other = ports.nodes.get(B)
    assert other is not None
    assert (claimed is not None, other.open_incident) == ((False, None) if requeues else (True, "inc-1"))
