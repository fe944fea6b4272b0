"""The console's report: what incidents add up to by day, rack and part, and the record of a part for its vendor."""

import json
import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from nodeheal.api.client import Client
from nodeheal.services.intake.ingest import ingest
from tests.support.acts import MemoryControlPlane
from tests.support.builders import ACT, memory_ports, node, xid
from tests.support.console import ServedConsole, served

A, B = "mi-0a1b2c3d4e5f60718", "mi-0b1b2c3d4e5f60718"
SERIAL = "1650 #47/11"  # what the contract permits, a path would not keep


@pytest.fixture
def client() -> Client:
    ports = memory_ports()
    for node_id in (A, B):  # the part was moved, and fails again
        ports.nodes.save(node(node_id))
        ingest(xid(79, node_id=node_id, component_serial=SERIAL, labels={"rack": "r7"}), ports, ACT)
    return Client(ports, lambda: ACT, MemoryControlPlane(ports, ACT))


@pytest.fixture
def console(client: Client) -> Iterator[ServedConsole]:
    with served(client) as console:
        console.enter()
        yield console


def test_the_report_counts_the_incidents_of_its_time_by_fault_and_rack(console: ServedConsole) -> None:
    page = console.get("/report").text
    assert "XID 79" in page
    assert "r7" in page

    exported = json.loads(console.get("/report/export?since=7d&pool=demo").text)

    assert (exported["tally"]["incidents"], exported["pool"], exported["tally"]["by_rack"]) == (2, "demo", {"r7": 2})
    assert console.get("/report?since=1y").status == 400


def test_the_plot_of_the_days_is_a_picture_by_itself(console: ServedConsole) -> None:
    answer = console.get("/report/days.svg?since=7d")

    root = ElementTree.fromstring(answer.text)
    assert root.tag.endswith("svg")
    assert [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")] == [
        "2026-03-01: 0 of 2 recovered, 0.0 accelerator-hours lost"
    ]
    assert answer.headers["content-disposition"] == 'attachment; filename="nodeheal-7d.svg"'


def test_a_part_has_a_record_for_its_vendor(console: ServedConsole) -> None:
    [link] = set(re.findall(r'href="(/part\?[^"]+)"', console.get("/report").text))

    page = console.get(link)

    assert SERIAL in page.text
    exported = json.loads(console.get(link.replace("/part?", "/part/export?")).text)
    assert exported["serial"] == SERIAL
    assert len(exported["faults"]) == 2


def test_a_part_that_no_incident_names_is_refused_with_those_that_are_known(console: ServedConsole) -> None:
    answer = console.get("/part?serial=0")

    assert answer.status == 400
    assert "no incident names the serial" in answer.text
