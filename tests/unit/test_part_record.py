"""`nodeheal incidents rma`: one accelerator's faults, repairs and logs, for its vendor."""

import json
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from nodeheal.cli import connect
from nodeheal.cli.main import app
from nodeheal.contract.health_event import EVIDENCE_BYTES
from nodeheal.contract.names import DRILL_MARK
from nodeheal.contract.vocabulary import Verdict
from tests.support.builders import xid
from tests.support.fake_cluster import BROKEN, PEER, FakeCluster
from tests.support.hostile_text import PAYLOADS
from tests.workflows.bill import DEFAULTS

RUN = CliRunner()
SERIAL = "1654922001234"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A pool that saves evidence, before anything has failed."""
    it = FakeCluster(DEFAULTS)
    monkeypatch.setattr(connect, "ports", lambda table: it.ports)
    return it


def of_part(code: int, **changes: Any) -> Any:
    return xid(code, component_serial=SERIAL, product="NVIDIA H100 80GB HBM3", labels={"rack": "r7"}, **changes)


def rma(*words: str) -> Any:
    answer = RUN.invoke(app, ["incidents", "rma", *words])
    assert answer.exception is None or isinstance(answer.exception, SystemExit), answer.exception
    return answer


def record() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(rma(SERIAL, "--format", "json").output)
    return found


def test_it_says_what_was_reported_tried_and_proven_and_where_the_logs_are(cluster: FakeCluster) -> None:
    cluster.reports(of_part(79))

    found = record()
    page = rma(SERIAL).output

    assert (found["serial"], found["product"], found["labels"]) == (SERIAL, "NVIDIA H100 80GB HBM3", {"rack": "r7"})
    assert found["places"] == [f"{BROKEN} 0000:b9:00.0"]
    assert [(fault["fault"], fault["verdict"]) for fault in found["faults"]] == [
        ("XID 79 (GPU has fallen off the bus)", "FAILED")
    ]
    assert [(repair["step"], repair["outcome"]) for repair in found["repairs"]] == [
        ("REBOOT", "DONE"),
        ("DIAGNOSE", "DONE"),
    ]
    assert found["incidents"] == [cluster.incident_id]
    assert any(link.startswith("s3://") for link in found["evidence"])
    assert f"# Accelerator {SERIAL}: faults of the last 90d" in page
    assert "| REBOOT | DONE |" in page


def test_it_has_what_the_part_reported_and_not_its_neighbours_in_the_same_incident(cluster: FakeCluster) -> None:
    cluster.after_reboot = [
        xid(94, event_id="other", boot_id="boot-2", component="0000:17:00.0", component_serial="42"),
        of_part(79, event_id="again", boot_id="boot-2"),
    ]

    cluster.reports(of_part(79))

    assert [fault["fault"].split(" (")[0] for fault in record()["faults"]] == ["XID 79", "XID 79"]


def test_a_spares_diagnosis_is_no_test_of_the_part(cluster: FakeCluster) -> None:
    cluster.diagnoses[BROKEN] = Verdict.FAILED

    cluster.reports(of_part(79))

    assert [(repair["step"], repair["node_id"]) for repair in record()["repairs"]][:2] == [
        ("REBOOT", BROKEN),
        ("DIAGNOSE", BROKEN),
    ]
    assert {repair["node_id"] for repair in record()["repairs"]} == {BROKEN}


def test_a_part_that_was_moved_to_another_node_keeps_its_past(cluster: FakeCluster) -> None:
    cluster.reports(of_part(79))
    cluster.clock.advance(7_200)
    there = {"node_id": PEER, "instance_id": PEER, "event_id": "there", "boot_id": cluster.node(PEER).boot_id}
    cluster.reports(of_part(79, observed_at=cluster.clock(), **there))

    assert [place.split()[0] for place in record()["places"]] == [BROKEN, PEER]


def test_a_drill_is_no_fault_of_the_part(cluster: FakeCluster) -> None:
    cluster.reports(of_part(79, evidence=f"{DRILL_MARK} NVRM: Xid (PCI:0000:b9:00): 79"))

    answer = rma(SERIAL)

    assert answer.exit_code == 1
    assert "no accelerator with a serial was reported in this time" in answer.output


def test_an_unknown_serial_is_answered_with_those_that_are_known(cluster: FakeCluster) -> None:
    cluster.reports(of_part(79))

    answer = rma("1650")

    assert answer.exit_code == 1
    assert f"no incident names the serial '1650'; known in this time: {SERIAL}" in answer.output.replace("\n", " ")


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_what_the_node_reported_stays_text(cluster: FakeCluster, payload: str) -> None:
    cluster.reports(of_part(79, evidence=payload[:EVIDENCE_BYTES]))

    page = rma(SERIAL).output
    assert all(line.isprintable() for line in page.split("\n"))
    assert not re.search(r"(?<!\\)<(script|img)|(?<!\\)\]\(https?://evil", page)
    assert not re.search(r"(?m)^(# Evil|=|Needed|Evil)", page)
    assert rma(SERIAL, "--format", "json").output.isascii()
