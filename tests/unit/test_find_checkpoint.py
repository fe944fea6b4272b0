"""Which node is asked for a job's newest checkpoint, and when."""

from dataclasses import replace

import pytest

from nodeheal.contract.job_spec import Checkpoints
from nodeheal.contract.steps import StepRequest
from nodeheal.domain.jobs.job import FoundCheckpoint
from nodeheal.domain.recovery.incident import Incident
from nodeheal.ports import Ports
from nodeheal.services.jobs import find_checkpoint, job_steps
from tests.support.builders import NOW, xid
from tests.support.incident_steps import LLAMA, A, B, C
from tests.support.observed_operations import ended, saved
from tests.support.steps import asking
from tests.support.three_nodes import started_run

WITH_CHECKPOINTS = replace(LLAMA, checkpoints=Checkpoints(directory="/mnt/llama"))


def searched(ports: Ports, monkeypatch: pytest.MonkeyPatch, request: StepRequest) -> list[str]:
    """The nodes that are asked while a node is away."""
    asked: list[str] = []
    incident = Incident("inc-1", A, "demo", xid(79, node_id=A), NOW, "1", job_id="llama")
    monkeypatch.setattr(ports.incidents, "incident", lambda _: incident)
    monkeypatch.setattr(find_checkpoint, "is_newer_than_fault", lambda *_: False)
    monkeypatch.setattr(find_checkpoint, "begin", lambda planned, _: asked.append(planned.node_id))
    find_checkpoint.search_ahead(request, ports)
    return asked


def test_a_node_that_works_is_asked_while_the_broken_one_is_away(
    three_nodes: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started_run(three_nodes, WITH_CHECKPOINTS)
    assert searched(three_nodes, monkeypatch, asking()) == []  # the gang still writes
    saved(three_nodes, ended(run))

    assert searched(three_nodes, monkeypatch, asking()) == [B]
    assert searched(three_nodes, monkeypatch, asking(node_id=C)) == []  # the gang has left that node
    job_steps.save_job(three_nodes, "llama", found=FoundCheckpoint("/mnt/llama/9", 9, NOW, after_run=1))
    assert searched(three_nodes, monkeypatch, asking()) == []


def test_the_broken_node_is_asked_last_and_not_as_one_of_its_gang(
    three_nodes: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(three_nodes, ended(started_run(three_nodes, WITH_CHECKPOINTS)))
    incident = Incident("inc-1", A, "demo", xid(79, node_id=A), NOW, "1", job_id="llama")
    monkeypatch.setattr(three_nodes.incidents, "incident", lambda _: incident)
    monkeypatch.setattr(find_checkpoint, "is_newer_than_fault", lambda *_: False)

    _, asked = find_checkpoint._whom_to_ask(asking(node_id=C), three_nodes)

    assert [one.node_id for one in asked] == [B, C]
