"""`nodes show`: what a node is made of, and what took it out of service."""

import json

import pytest
from typer.testing import CliRunner

from nodeheal.cli import connect
from nodeheal.cli.main import app
from tests.support.builders import ACT, xid
from tests.support.fake_cluster import BROKEN, PEER, FakeCluster
from tests.support.hardware import GPUS, reports_hardware

URL = "https://eu-central-1.console.aws.amazon.com/cloudwatch/home?region=eu-central-1#dashboards/dashboard/nodeheal"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    it = FakeCluster(ACT)
    monkeypatch.setattr(connect, "ports", lambda table: it.ports)
    monkeypatch.setattr(connect, "policy", lambda: it.policy)
    monkeypatch.setattr(connect, "dashboard_url", lambda: URL)
    return it


def shown(node_id: str, *options: str) -> str:
    answer = CliRunner().invoke(app, ["nodes", "show", node_id, *options])
    assert answer.exit_code == 0, (answer.output, answer.exception)
    return answer.output


def test_a_node_shows_its_machine_its_accelerators_and_its_dashboard(cluster: FakeCluster) -> None:
    reports_hardware(cluster.ports, PEER)

    text = shown(PEER)

    assert "Machine      p5.48xlarge\n" in text
    assert ", NVIDIA H100 80GB HBM3, 81,559 MiB each\n" in text
    assert "  GPU  ADDRESS       SERIAL        CELSIUS  ECC  ROWS  LINKS UP\n" in text
    assert "  1    0000:ba:00.0  165392200011  41       1    2     17 of 18\n" in text
    assert f"Dashboard    {URL}\n" in text


def test_a_node_shows_its_hardware_to_programs(cluster: FakeCluster) -> None:
    assert json.loads(shown(PEER, "--json"))["hardware"] is None
    reports_hardware(cluster.ports, PEER)

    hardware = json.loads(shown(PEER, "--json"))["hardware"]

    assert hardware["machine"] == "p5.48xlarge"
    assert hardware["accelerators"] == [gpu.model_dump(mode="json") for gpu in GPUS]


def test_a_node_shows_the_fault_of_each_recovery_and_how_it_ended(cluster: FakeCluster) -> None:
    cluster.reports(xid(79, node_id=BROKEN, instance_id=BROKEN))

    text, past = shown(BROKEN), json.loads(shown(BROKEN, "--json"))["recoveries"]

    assert "Recoveries, the newest first:\n" in text
    assert "XID 79 (GPU has fallen off the bus)  recovered: " in text
    assert [(one["incident"], one["state"]) for one in past] == [(cluster.incident_id, "recovered")]


def test_a_report_from_a_clock_that_is_ahead_does_not_outlive_the_next_one(cluster: FakeCluster) -> None:
    reports_hardware(cluster.ports, PEER, observed_at="2099-01-01T00:00:00Z", event_id="ahead")
    cluster.clock.advance(60)
    reports_hardware(cluster.ports, PEER, event_id="later")

    kept = cluster.ports.hardware.of(PEER)
    assert kept is not None
    assert kept.event_id == "later"


def test_hardware_of_an_unknown_node_or_an_earlier_boot_is_not_kept(cluster: FakeCluster) -> None:
    reports_hardware(cluster.ports, PEER, reporter="mi-0eeeeeeeeeeeeeeee")
    reports_hardware(cluster.ports, PEER, boot_id="of-old", observed_at="2020-01-01T00:00:00Z")

    assert cluster.ports.hardware.of("mi-0eeeeeeeeeeeeeeee") is None
    assert cluster.ports.hardware.of(PEER) is None
