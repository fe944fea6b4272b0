"""Which nodes a job is given."""

from dataclasses import replace

import pytest

from nodeheal.ports import Ports
from nodeheal.services.jobs import job_nodes
from nodeheal.services.jobs.job_nodes import claim
from nodeheal.services.operators.operator_guardrails import pause_node
from tests.support.builders import ACT, FrozenClock, memory_ports, node, stored_node
from tests.support.incident_steps import LLAMA
from tests.support.jobs import ecs_job

JOB = ecs_job("llama", "demo", "training", "trainer:1", "trainer", 1)


@pytest.fixture
def ports() -> Ports:
    ports = memory_ports(FrozenClock())
    ports.nodes.save(node())
    return ports


def test_a_paused_node_is_not_claimed(ports: Ports) -> None:
    name = node().node_id
    pause_node(name, 3_600, "ada looks", ports)

    placement = claim(JOB, ports, ACT)

    assert list(placement.nodes) == []
    assert stored_node(ports, name).claimed_by is None


def test_a_node_that_got_an_incident_since_its_pool_was_listed_is_not_claimed(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = list(ports.nodes.in_pool("demo"))
    name = listed[0].node_id
    ports.nodes.save(replace(stored_node(ports, name), open_incident="inc-1"))
    monkeypatch.setattr(ports.nodes, "in_pool", lambda pool: listed)

    placement = claim(JOB, ports, ACT)

    assert list(placement.nodes) == []
    assert stored_node(ports, name).claimed_by is None


def test_a_job_does_not_stand_before_itself(three_nodes: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    """Submitted again with less priority, it has its old place until it stands in line again."""
    monkeypatch.setattr(job_nodes, "jobs_in_line", lambda *_: {"llama": "000", "gpt": "001", "bert": "999"})

    assert job_nodes.jobs_before(LLAMA, three_nodes) == ["gpt"]
