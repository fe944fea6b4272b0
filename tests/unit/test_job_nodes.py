"""Which nodes a job is given."""

from dataclasses import replace
from datetime import timedelta

import pytest

from nodeheal.services.jobs.job_nodes import claim
from tests.support.jobs import ecs_job
from tests.unit.builders import ACT, NOW, FrozenClock, memory_ports, node, stored_node


def test_a_node_that_was_paused_since_its_pool_was_listed_is_not_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = memory_ports(FrozenClock())
    ports.nodes.save(node())
    listed = list(ports.nodes.in_pool("demo"))
    name = listed[0].node_id
    ports.nodes.save(replace(stored_node(ports, name), paused_until=NOW + timedelta(hours=1), paused_why="ada looks"))
    monkeypatch.setattr(ports.nodes, "in_pool", lambda pool: listed)

    placement = claim(ecs_job("llama", "demo", "training", "trainer:1", "trainer", 1), ports, ACT)

    assert list(placement.nodes) == []
    assert stored_node(ports, name).claimed_by is None
