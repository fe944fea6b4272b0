"""S2: IAM binds who submits jobs to the keys of jobs, and the index has keys that every writer chooses.

An item under a job's key that stands in the index among nodes, incidents, faults or waits is none of them.
"""

from collections.abc import Iterator
from datetime import timedelta

import boto3
import pytest
from moto import mock_aws

from nodeheal.adapters.aws.items import Item
from nodeheal.contract import names
from nodeheal.contract.vocabulary import IncidentState, VerbName
from nodeheal.domain.recovery.incident import Incident, incident_id_of
from nodeheal.ports import Ports
from nodeheal.services.jobs.ask_after_ranks import ask_after_ranks
from nodeheal.services.jobs.sweep_jobs import sweep_jobs
from tests.support.builders import ACT, NOW, FrozenClock, node, under_way, xid
from tests.support.dynamo_tables import dynamo_ports
from tests.support.jobs import ecs_job

LINE = "BUDGET/demo"


@pytest.fixture
def ports() -> Iterator[Ports]:
    with mock_aws():
        made = dynamo_ports(FrozenClock(NOW))
        victim = node("mi-0a1")
        made.nodes.save(victim)
        event = xid(79)
        made.nodes.record(event, None)
        stored = made.nodes.get("mi-0a1")
        assert stored is not None
        incident = Incident(incident_id_of(event), "mi-0a1", "demo", event, NOW, "1")
        assert made.incidents.open(incident, stored)
        under_way(made, VerbName.WAIT, incident_id=incident.incident_id, line=(LINE, "1"))
        yield made


def seen(ports: Ports) -> list[object]:
    """All that is read from the index."""
    since, until = NOW - timedelta(days=1), NOW + timedelta(days=1)
    return [
        list(ports.nodes.in_pool("demo")),
        list(ports.fleet_index.liveness_page("demo", "", 100)[0]),
        list(ports.fleet_index.incidents("demo", IncidentState.OPEN, since, until)),
        list(ports.nodes.observations("mi-0b2", since, "demo", since)),
        list(ports.operations.queued(LINE)),
        list(ports.job_notes.in_pool("demo")),
    ]


def copied_below_a_job() -> list[Item]:
    """Every item, once more under a key that a job's submitter may write."""
    client = boto3.client("dynamodb", region_name="us-east-1")
    found = client.scan(TableName="state")["Items"]
    copies = [{**item, "pk": {"S": names.job_pk(f"evil-{number}")}} for number, item in enumerate(found)]
    for copy in copies:
        client.put_item(TableName="state", Item=copy)
    return copies


def test_an_item_below_a_jobs_key_is_no_node_no_incident_no_fault_and_no_wait(ports: Ports) -> None:
    before = seen(ports)
    assert [len(each) for each in before if isinstance(each, list)] == [1, 1, 1, 1, 1, 0]

    copied_below_a_job()

    assert seen(ports) == before


def test_an_item_below_a_jobs_key_ends_no_page_early(ports: Ports) -> None:
    copied_below_a_job()

    pages, after = [], "start"
    while after:
        page, after = ports.fleet_index.liveness_page("demo", "" if after == "start" else after, 1)
        pages += [node_liveness.node_id for node_liveness in page]

    assert pages == ["mi-0a1"]


def test_an_item_that_is_no_job_keeps_the_sweep_from_nothing_else(
    ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    """Every run of the sweep broke off at it: nobody's silence was heard, and nobody who waited was woken."""
    ports.jobs.save(ecs_job("llama", "demo", "training", "trainer:1", "trainer", 2))
    table = ports.jobs._table  # type: ignore[attr-defined]
    real = table.get(names.job_pk("llama"), names.JOB_SK)
    keys = {names.PARTITION_KEY, names.SORT_KEY, names.INDEX_PARTITION_KEY, names.INDEX_SORT_KEY}
    forged = {name: value if name in keys else {"S": "x"} for name, value in real.items()}
    table.put({**forged, names.PARTITION_KEY: {"S": names.job_pk("evil")}})

    assert sweep_jobs("demo", ports, ACT) == []
    assert ask_after_ranks(["demo"], ports) == []
    assert [job.job_id for job in ports.job_notes.in_pool("demo")] == ["llama"]
    assert "not a valid job was skipped" in caplog.text
